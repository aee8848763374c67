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


def test_what_counts_by_itself_is_a_counter_too() -> None:
    measures = MetricRegistry()
    tank, other = Tank(3), Tank(4)
    measures.tally("poured", "Poured.", tank.level, place="a")
    measures.tally("poured", "Poured.", other.level, place="a")
    assert measures.value("poured", place="a") == 7
    assert "# TYPE headgate_poured_total counter" in measures.text()
    with pytest.raises(OptionError, match="poured is a counter already"):
        measures.gauge("poured", "Poured.", tank.level)


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


def test_what_counted_by_itself_and_is_gone_is_told_on_so_that_no_counter_becomes_less() -> None:
    measures = MetricRegistry()
    kept, gone = Tank(3), Tank(4)
    measures.tally("poured", "Poured.", kept.level)
    measures.tally("poured", "Poured.", gone.level)
    measures.gauge("left", "Left.", kept.level)
    measures.gauge("left", "Left.", gone.level)
    assert measures.value("poured") == measures.value("left") == 7
    del gone
    gc.collect()
    assert (measures.value("poured"), measures.value("left")) == (7, 3)
    another = Tank(5)
    measures.tally("poured", "Poured.", another.level)
    assert measures.value("poured") == 12
    assert len(measures._families["poured"].readers[()]) == 2


def test_a_label_that_no_text_can_carry_does_not_spoil_the_rest() -> None:
    measures = MetricRegistry()
    measures.counter("hits", "Hits.", rule="half \ud800, whole \u00e9").add()
    assert 'rule="half ?, whole \u00e9"} 1' in measures.text().encode().decode()
