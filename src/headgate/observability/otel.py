"""OpenTelemetry: the metrics of a process, and a span for each decision.

    instrument()                # with the global providers
    uninstrument()

Metrics have the names of `/metrics` in the form of OpenTelemetry: `headgate_store_errors_total` is
`headgate.store_errors`, `headgate_decision_seconds` is `headgate.decision.duration` in seconds, and
the label `rule` is the attribute `headgate.rule`. Attributes are bounded like labels.

A span `headgate.decide` is a child of the current span; its key is a pseudonym. A trace that is not
sampled has none, and the check costs next to nothing.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from headgate.errors import not_installed
from headgate.observability.decision_recorder import BOUNDS_NS, RECORDER
from headgate.observability.denials import pseudonyms
from headgate.observability.metrics import METRICS
from headgate.units import SECOND, seconds_at_least

try:
    from opentelemetry.metrics import MeterProvider, Observation, get_meter_provider
    from opentelemetry.trace import get_current_span, get_tracer_provider
except ModuleNotFoundError as error:
    raise not_installed("otel", error) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.metrics import CallbackOptions, Meter
    from opentelemetry.trace import Span, Tracer, TracerProvider
    from opentelemetry.util.types import AttributeValue

    from headgate.observability.decision_recorder import DecisionRecord, RuleRecord
    from headgate.observability.metrics import Family

SCOPE: Final = "headgate"
"""The name of the meter and of the tracer."""

SPAN: Final = "headgate.decide"
DURATION: Final = "headgate.decision.duration"

_UNITS: Final = {
    "decisions": "{decision}",
    "requests": "{request}",
    "store_calls": "{call}",
    "store_errors": "{error}",
    "hot_keys": "{key}",
    "gate_waiting": "{request}",
    "gate_in_flight": "{request}",
}


def metric_name(name: str) -> str:
    """Return the OpenTelemetry name of the metric *name*, which has no prefix `headgate_`."""
    own = name.removesuffix("_seconds")
    return f"headgate.{own}" if own == name else f"headgate.{own}.duration"


class _Metrics:
    """The instruments of one provider. They cannot be removed, only disabled."""

    def __init__(self, meter: Meter) -> None:
        self.is_enabled = True
        self._meter = meter
        self._duration = meter.create_histogram(
            DURATION,
            unit="s",
            description="The time to decide, store included.",
            explicit_bucket_boundaries_advisory=[bound / SECOND for bound in BOUNDS_NS],
        )
        METRICS.watch(self._add)

    def record(self, decided: DecisionRecord) -> None:
        self._duration.record(decided.took_ns / SECOND)

    def _add(self, family: Family) -> None:
        """Add an instrument for *family*, unless it is a histogram, which `record` records."""
        if family.kind == "histogram":
            return
        is_counter = family.kind == "counter"
        meter = self._meter
        make = meter.create_observable_counter if is_counter else meter.create_observable_gauge

        def read(_: CallbackOptions) -> Iterable[Observation]:
            if not self.is_enabled:
                return []
            return [
                Observation(value, {f"headgate.{name}": of for name, of in labels})
                for _, labels, value in family.snapshot().samples
            ]

        unit = "s" if family.name.endswith("_seconds") else _UNITS.get(family.name, "1")
        make(metric_name(family.name), [read], unit=unit, description=family.help)


class _Spans:
    """The spans of decisions."""

    def __init__(self, tracer: Tracer, salt: bytes | None) -> None:
        self._tracer = tracer
        self._pseudonym = pseudonyms(salt)

    def record(self, decided: DecisionRecord) -> None:
        around = get_current_span().get_span_context()
        if around.is_valid and not around.trace_flags.sampled:
            return
        now_ns = time.time_ns()
        span = self._tracer.start_span(SPAN, start_time=now_ns - decided.took_ns)
        if span.is_recording():
            self._describe(span, decided)
        span.end(now_ns)

    def _describe(self, span: Span, decided: DecisionRecord) -> None:
        span.set_attribute("headgate.outcome", "allowed" if decided.allowed else "denied")
        span.set_attribute("headgate.source", decided.source)
        span.set_attribute("headgate.revision", decided.revision)
        span.set_attribute("headgate.policy", [rule.rule for rule in decided.rules])
        binding = _binding(decided)
        if binding is not None:
            span.set_attributes(self._attributes(binding))
        if len(decided.rules) > 1:
            for rule in decided.rules:
                attributes = self._attributes(rule)
                attributes["headgate.outcome"] = rule.outcome
                attributes["headgate.source"] = rule.source
                span.add_event("headgate.rule", attributes)

    def _attributes(self, rule: RuleRecord) -> dict[str, AttributeValue]:
        attributes: dict[str, AttributeValue] = {
            "headgate.rule": rule.rule,
            "headgate.key": self._pseudonym(rule.key),
            "headgate.cost": rule.cost,
            "headgate.remaining": rule.remaining,
        }
        if rule.retry_after_ns is not None:
            attributes["headgate.retry_after"] = seconds_at_least(rule.retry_after_ns)
        return attributes


def _binding(decided: DecisionRecord) -> RuleRecord | None:
    """Return the rule that denied, or the one with least left; None if none decides."""
    deciding = [rule for rule in decided.rules if rule.outcome in ("allowed", "denied")]
    return min(deciding, key=lambda rule: (rule.outcome == "allowed", rule.remaining), default=None)


_lock: Final = threading.Lock()
_known: Final[WeakKeyDictionary[MeterProvider, _Metrics]] = WeakKeyDictionary()
_ends: Final[list[Callable[[], None]]] = []


def instrument(
    *,
    meter_provider: MeterProvider | None = None,
    tracer_provider: TracerProvider | None = None,
    spans: bool = True,
    durations: bool = True,
    salt: bytes | None = None,
) -> None:
    """Export the metrics and decisions of this process from now on, to the global providers or
    those given.

    *spans* and *durations* cost time for each decision, the histograms of the SDK about as much as
    the rest of it; all other metrics cost time only when they are read. *salt* makes the pseudonyms
    of keys equal in several processes. A second call replaces the first.
    """
    uninstrument()
    provider = meter_provider or get_meter_provider()
    with _lock:
        metrics = _known.get(provider)
        if metrics is None:
            metrics = _known[provider] = _Metrics(provider.get_meter(SCOPE))
        metrics.is_enabled = True
        if durations:
            _ends.append(RECORDER.listen(metrics.record))
        _ends.append(lambda: setattr(metrics, "is_enabled", False))
        if spans:
            tracer = (tracer_provider or get_tracer_provider()).get_tracer(SCOPE)
            _ends.append(RECORDER.listen(_Spans(tracer, salt).record))


def uninstrument() -> None:
    """End the export."""
    with _lock:
        while _ends:
            _ends.pop()()
