"""MetricRegistry in a registry of prometheus_client."""

from __future__ import annotations

import re

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from headgate import RateLimiter
from headgate.observability import MetricRegistry, metrics_text
from headgate.observability.prometheus import HeadgateCollector


class Tank:
    def level(self) -> float:
        return 0.5


_MOVING = re.compile("_seconds|_active|_store|_breaker|_fallback")
"""What may change meanwhile: stores of other tests may still be tried."""


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in plain(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def registry() -> CollectorRegistry:
    found = CollectorRegistry(auto_describe=True)
    Counter("own", "What the app counts itself.", registry=found).inc(2)
    found.register(HeadgateCollector())
    return found


def test_a_registry_tells_what_metrics_text_tells_beside_its_own() -> None:
    RateLimiter("1/s", name="in-a-registry").hit("k")
    told, expected = samples(generate_latest(registry()).decode()), samples(metrics_text())
    assert told.pop(("own_total", ())) == 2
    assert {name for name, _ in told} == {name for name, _ in expected}
    fixed, wanted = (
        {name: value for name, value in found.items() if not _MOVING.search(name[0])}
        for found in (told, expected)
    )
    assert fixed == wanted
    labels = ("outcome", "allowed"), ("rule", "in-a-registry"), ("source", "store")
    assert told["headgate_decisions_total", labels] == 1


def test_openmetrics_is_valid_histograms_included() -> None:
    RateLimiter("1/s", name="in-openmetrics").hit("k")
    text = generate_openmetrics(registry()).decode()  # type: ignore[no-untyped-call] # theirs
    families = {family.name: family for family in openmetrics(text)}  # type: ignore[no-untyped-call] # theirs
    assert families["headgate_decisions"].type == "counter"
    assert families["headgate_decision_seconds"].type == "histogram"
    assert families["headgate_fail_mode_active"].type == "gauge"


def test_measures_of_ones_own_can_be_told() -> None:
    measures = MetricRegistry()
    tank = Tank()
    measures.gauge("level", "How full it is.", tank.level, place='"a\\\n')
    (family,) = HeadgateCollector(measures).collect()
    assert (family.name, family.type, family.documentation) == (
        "headgate_level",
        "gauge",
        "How full it is.",
    )
    assert [tuple(sample)[:3] for sample in family.samples] == [
        ("headgate_level", {"place": '"a\\\n'}, 0.5)
    ]
    assert list(HeadgateCollector(measures).describe()) == []
