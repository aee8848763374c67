"""OpenTelemetry hears of what is decided."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

from headgate import RateLimiter
from headgate.engine.request import Request
from headgate.observability import METRICS, RECORDER, DecisionRecord, RuleRecord
from headgate.observability.otel import instrument, metric_name, uninstrument
from headgate.policy.loader import read_policy
from headgate.rule_engine import RuleEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


class Watched:
    """A reader of metrics and an exporter of spans, in memory."""

    def __init__(self, **options: Any) -> None:
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(**options)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))

    def metrics(self) -> dict[str, Any]:
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def value(self, name: str, **attributes: str) -> float:
        wanted = {f"headgate.{key}": value for key, value in attributes.items()}
        points = [p for p in self.metrics()[name].data.data_points if dict(p.attributes) == wanted]
        return float(sum(point.value for point in points))

    def spans(self) -> list[Any]:
        return list(self.exporter.get_finished_spans())


@contextmanager
def watched(*, spans: bool = True, **options: Any) -> Iterator[Watched]:
    one = Watched(**options)
    instrument(
        meter_provider=one.meters, tracer_provider=one.tracers, spans=spans, salt=b"for tests"
    )
    try:
        yield one
    finally:
        uninstrument()
        one.meters.shutdown()
        one.tracers.shutdown()


RULES = """
version: 1
rules:
  - {id: tight, key_by: ip, limit: 1/day}
  - {id: wide, key_by: ip, limit: 9/day}
  - {id: tried, key_by: ip, limit: 1/day, mode: shadow}
"""


def test_measures_are_metrics_with_bounded_attributes() -> None:
    with watched() as one:
        limiter = RateLimiter("1/day", name="metered by otel")
        limiter.hit("caller-zebra")
        limiter.hit("caller-zebra")
        labels = {"rule": "metered by otel", "source": "store"}
        assert one.value("headgate.decisions", outcome="allowed", **labels) == 1
        assert one.value("headgate.decisions", outcome="denied", **labels) == 1
        found = one.metrics()
        assert found["headgate.decisions"].unit == "{decision}"
        assert found["headgate.decisions"].data.is_monotonic
        assert found["headgate.fail_mode.duration"].unit == "s"
        assert "zebra" not in str(found["headgate.decisions"])


def test_how_long_decisions_take_is_a_histogram_in_seconds() -> None:
    with watched() as one:
        limiter = RateLimiter("9/day", name="timed")
        for _ in range(3):
            limiter.hit("k")
        metric = one.metrics()["headgate.decision.duration"]
        (point,) = metric.data.data_points
        assert (metric.unit, point.count) == ("s", 3)
        assert point.explicit_bounds[0] == 1e-6
        assert 0 < point.sum < 60


def test_what_is_first_counted_later_is_told_too() -> None:
    with watched() as one:
        METRICS.counter("otel_only_later", "For this test.").add(3)
        assert one.value("headgate.otel_only_later") == 3


def test_a_decision_is_a_span_within_the_current_one() -> None:
    with watched() as one:
        engine = RuleEngine(read_policy(RULES))
        with one.tracers.get_tracer("app").start_as_current_span("request"):
            engine.check(Request(peer="192.0.2.7"))
            engine.check(Request(peer="192.0.2.7"))
        first, second, request = one.spans()
        assert {first.name, second.name} == {"headgate.decide"}
        assert first.parent.span_id == second.parent.span_id == request.context.span_id
        assert first.start_time <= first.end_time
        assert first.attributes["headgate.outcome"] == "allowed"
        told = dict(second.attributes)
        assert (told["headgate.outcome"], told["headgate.rule"]) == ("denied", "tight")
        assert told["headgate.policy"] == ("tight", "wide", "tried")
        assert (told["headgate.source"], told["headgate.revision"]) == ("store", 0)
        assert told["headgate.retry_after"] > 0
        events = [dict(event.attributes) for event in second.events]
        outcomes = {event["headgate.rule"]: event["headgate.outcome"] for event in events}
        assert outcomes == {"tight": "denied", "wide": "allowed", "tried": "shadow_denied"}
        assert "192.0.2.7" not in second.to_json()


def test_the_rule_that_refuses_is_named_whatever_others_have_left() -> None:
    with watched() as one:
        rest = {"source": "store", "key": "k", "cost": 5, "retry_after_ns": None}
        full = RuleRecord("full", "allowed", remaining=0, **rest)  # type: ignore[arg-type] # as it is
        told = RuleRecord("told", "denied", remaining=3, **rest)  # type: ignore[arg-type] # as it is
        for listener in RECORDER.listeners:
            listener(DecisionRecord(False, "store", 0, 1000, (full, told)))
        (span,) = one.spans()
        assert span.attributes["headgate.rule"] == "told"
        assert "headgate.retry_after" not in span.attributes, "it can never fit"


def test_without_a_span_around_it_a_decision_is_one_of_its_own() -> None:
    with watched() as one:
        RateLimiter("9/day", name="alone").hit("k")
        (span,) = one.spans()
        assert span.parent is None
        assert span.attributes["headgate.rule"] == "alone"
        assert not span.events


def test_a_trace_that_is_not_sampled_has_no_span() -> None:
    with watched(sampler=ParentBased(ALWAYS_OFF)) as one:
        limiter = RateLimiter("9/day", name="unsampled")
        limiter.hit("k")
        with one.tracers.get_tracer("app").start_as_current_span("request"):
            limiter.hit("k")
        assert not one.spans()


def test_what_costs_for_each_decision_can_be_left_out() -> None:
    one, before = Watched(), len(RECORDER.listeners)
    instrument(meter_provider=one.meters, spans=False, durations=False)
    try:
        assert len(RECORDER.listeners) == before
        RateLimiter("9/day", name="cheap").hit("k")
        assert one.value("headgate.decisions", rule="cheap", outcome="allowed", source="store") == 1
        assert "headgate.decision.duration" not in one.metrics()
    finally:
        uninstrument()
        one.meters.shutdown()


def test_spans_can_be_left_out() -> None:
    with watched(spans=False) as one:
        RateLimiter("9/day", name="no-spans").hit("k")
        assert not one.spans()
        assert "headgate.decisions" in one.metrics()


def test_nothing_is_told_after_it_was_ended_and_all_when_it_begins_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = len(RECORDER.listeners)
    with watched() as one:
        limiter = RateLimiter("9/day", name="ended")
        uninstrument()
        assert len(RECORDER.listeners) == before
        limiter.hit("k")
        assert not one.spans()
        assert not one.metrics()
        for _ in range(2):  # a second time takes the place of the first
            instrument(meter_provider=one.meters, tracer_provider=one.tracers)
        assert len(RECORDER.listeners) == before + 2
        limiter.hit("k")
        assert len(one.spans()) == 1
        assert one.value("headgate.decisions", rule="ended", outcome="allowed", source="store") == 2
    assert not caplog.records, "nothing to complain of"


def test_names_are_those_of_metrics_in_its_way() -> None:
    assert metric_name("decisions") == "headgate.decisions"
    assert metric_name("gate_wait_seconds") == "headgate.gate_wait.duration"
