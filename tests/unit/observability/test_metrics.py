"""What is counted, and how it is told."""

import gc
import threading
from collections import deque

import pytest

from headgate.errors import OptionError
from headgate.observability import MetricRegistry


class Tank:
    def __init__(self, level: float) -> None:
        self._level = level

    def level(self) -> float:
        return self._level


def test_a_counter_is_one_for_equal_labels() -> None:
    measures = MetricRegistry()
    measures.counter("hits", "Hits.", rule="a", mode="x").add()
    measures.counter("hits", "Hits.", mode="x", rule="a").add(4)
    measures.counter("hits", "Hits.", mode="x", rule="b").add()
    assert measures.value("hits", rule="a", mode="x") == 5
    assert measures.value("hits", rule="c") == measures.value("misses") == 0


def test_threads_lose_no_count() -> None:
    counter = MetricRegistry().counter("hits", "Hits.")
    threads = [
        threading.Thread(target=lambda: deque(map(counter.add, [1] * 10_000))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.value == 40_000


def test_gauges_of_equal_labels_are_added_up_for_as_long_as_they_live() -> None:
    measures = MetricRegistry()
    one, other = Tank(1), Tank(2.5)
    measures.gauge("level", "Level.", one.level)
    measures.gauge("level", "Level.", other.level)
    assert measures.value("level") == 3.5
    del other
    assert measures.value("level") == 1
    del one
    assert not measures.text()


def test_the_text_is_that_of_prometheus() -> None:
    measures = MetricRegistry()
    tank = Tank(0.5)
    measures.gauge("level", "How full it is.", tank.level, place='a"\\\n')
    measures.counter("hits", "Hits.").add(3)
    assert measures.text() == (
        "# HELP headgate_hits_total Hits.\n"
        "# TYPE headgate_hits_total counter\n"
        "headgate_hits_total 3\n"
        "# HELP headgate_level How full it is.\n"
        "# TYPE headgate_level gauge\n"
        'headgate_level{place="a\\"\\\\\\n"} 0.5\n'
    )


def test_a_name_means_one_thing() -> None:
    measures = MetricRegistry()
    measures.counter("hits", "Hits.")
    with pytest.raises(OptionError, match="hits is a counter already"):
        measures.gauge("hits", "Hits.", Tank(1).level)
    with pytest.raises(OptionError, match="not the name of a metric"):
        measures.counter("No Hits", "Hits.")


def test_a_process_of_several_is_told_apart() -> None:
    measures = MetricRegistry()
    measures.counter("hits", "Hits.", rule="a").add(3)
    measures.counter("misses", "Misses.").add()
    measures.mark(worker="1")
    assert 'headgate_hits_total{worker="1",rule="a"} 3\n' in measures.text()
    assert 'headgate_misses_total{worker="1"} 1\n' in measures.text()
    assert measures.value("hits", rule="a") == 3


def test_a_watcher_gets_each_family_once_the_known_ones_first() -> None:
    measures, seen = MetricRegistry(), []
    measures.counter("hits", "Hits.")
    measures.watch(lambda family: seen.append((family.name, family.kind)))
    measures.counter("hits", "Hits.", rule="a").add()
    tank = Tank(1)
    measures.gauge("level", "Level.", tank.level)
    measures.collect("taps", "counter", "Taps.", list)
    assert seen == [("hits", "counter"), ("level", "gauge"), ("taps", "counter")]


def test_a_watcher_may_use_the_metrics_meanwhile() -> None:
    measures = MetricRegistry()
    measures.watch(lambda family: measures.counter("names", "Names.", of=family.name).add())
    measures.counter("hits", "Hits.")
    assert measures.value("names", of="hits") == 1


def test_a_gauge_is_read_for_as_long_as_its_object_lives() -> None:
    measures = MetricRegistry()
    kept, gone = Tank(3), [Tank(4) for _ in range(100)]
    for one in (kept, *gone):
        measures.gauge("left", "Left.", one.level)
    assert measures.value("left") == 403
    del gone, one
    gc.collect()
    assert measures.value("left") == 3
    others = [Tank(1) for _ in range(50)]
    for other in others:
        measures.gauge("left", "Left.", other.level)
    assert measures.value("left") == 53
    assert len(measures._families["left"].readers[()]) < 128


def test_a_label_that_no_text_can_carry_does_not_spoil_the_rest() -> None:
    measures = MetricRegistry()
    measures.counter("hits", "Hits.", rule="half \ud800, whole \u00e9").add()
    assert 'rule="half ?, whole \u00e9"} 1' in measures.text().encode().decode()
