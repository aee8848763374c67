"""Records of the decisions in this process: counts, latency, hot keys, listeners.

Each decision is recorded here once for its request and once for each rule. A process has one
`RECORDER`. Its memory is bounded: labels are rules, outcomes and sources, and keys are in sketches.
A *listener* gets every decision (see `listen`).

Recording takes less than a microsecond; callers on the hot path add to the counts themselves. There
is no lock: under the GIL an addition to a cell is hardly ever interrupted. Without it, an addition
may be lost now and then; nothing else can go wrong.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from dataclasses import dataclass
from random import random
from time import monotonic_ns, perf_counter_ns
from typing import TYPE_CHECKING, Final, Literal

from headgate.observability.metrics import METRICS
from headgate.observability.sketches import HeavyHitters
from headgate.units import MICROSECOND, MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headgate.observability.metrics import Sample

Outcome = Literal["allowed", "denied", "shadow_allowed", "shadow_denied"]
"""The outcome of a rule; `shadow_` if the rule does not enforce."""

DENIALS: Final[frozenset[Outcome]] = frozenset(("denied", "shadow_denied"))

Cell = list[int]
"""A count in a list of one, which callers that add to it often can keep."""

BOUNDS_NS: Final = (
    *(n * MICROSECOND for n in (1, 2, 5, 10, 25, 50, 100, 250, 500)),
    *(n * MILLISECOND for n in (1, 2, 5, 10, 25, 50, 100, 250, 500)),
    SECOND,
)
"""The upper bounds of the latency histogram."""

MOST_CELLS: Final = 8192
"""The most combinations of rule, outcome and source; beyond, the rule is called `OTHER`."""

OTHER: Final = "(other)"

SAMPLED: Final = 8
"""One of so many allowed decisions, on average, is counted for the busiest keys."""

_SPREAD: Final = 2 * SAMPLED - 1

read_timer: Final = perf_counter_ns
"""The timer of decisions, in nanoseconds."""

_OPPOSITES: Final[dict[Outcome, Outcome]] = {
    "allowed": "denied",
    "denied": "allowed",
    "shadow_allowed": "shadow_denied",
    "shadow_denied": "shadow_allowed",
}

_HALF_LIFE_NS: Final = 30 * SECOND

_LOG: Final = logging.getLogger("headgate.observability")
_LOG_INTERVAL_NS: Final = 60 * SECOND
"""The time between log lines about listeners that raise."""


@dataclass(frozen=True, slots=True)
class RuleRecord:
    """The outcome of one rule for a request of *key*, whose secrets are hashed already."""

    rule: str
    outcome: Outcome
    source: str
    key: str
    cost: int
    remaining: int
    retry_after_ns: int | None


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A decision that took *took_ns*, under the policy of *revision* (0 without one)."""

    allowed: bool
    source: str
    revision: int
    took_ns: int
    rules: tuple[RuleRecord, ...]


class DecisionRecorder:
    """The decisions of a process."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, Outcome, str], Cell] = {}
        """The number of decisions by (rule, outcome, source)."""
        self.requests: tuple[Cell, Cell] = ([0], [0])
        """The numbers of requests that were denied and allowed by all rules together."""
        self.asked_again: Cell = [0]
        """The number of allowed requests that were counted before, by another part of the app."""
        self.latency: list[int] = [0] * (len(BOUNDS_NS) + 1)
        """The number of decisions by their latency: one for each of `BOUNDS_NS`, and one above."""
        self.latency_ns = 0
        """The sum of all latencies."""
        self.busiest = HeavyHitters(512, half_life_ns=_HALF_LIFE_NS)
        """The keys with most requests, by rule: one of `SAMPLED` requests counts as so many."""
        self.refused = HeavyHitters(512, half_life_ns=_HALF_LIFE_NS)
        """The keys with most denials, by rule."""
        self.listeners: tuple[Callable[[DecisionRecord], None], ...] = ()
        """Callables that get every decision."""
        self.denial_listeners: tuple[Callable[[DecisionRecord], None], ...] = ()
        """Callables that get decisions in which a rule denies, be it a shadow rule."""
        self.has_listeners = False
        """True if there are listeners of either kind."""
        self.until_sampled = SAMPLED
        """The number of allowed decisions until one is sampled for the busiest keys."""
        self._most_allowed = 0
        self._logged_ns: int | None = None

    def cell(self, rule: str, outcome: Outcome, source: str) -> Cell:
        """Return the count of *rule*, *outcome* and *source*: add to its only element."""
        found = self.cells.get((rule, outcome, source))
        if found is None:
            if len(self.cells) >= MOST_CELLS:
                rule = OTHER
            found = self.cells.setdefault((rule, outcome, source), [0])
            # The opposite outcome starts at 0 too: Prometheus sees no growth in a counter that it
            # sees for the first time, so it would miss the first denials of a rule.
            self.cells.setdefault((rule, _OPPOSITES[outcome], source), [0])
        return found

    def record(self, rule: str, outcome: Outcome, source: str, key: str) -> None:
        """Record the *outcome* of *rule* for a request of *key*; "" if it has none."""
        (self.cells.get((rule, outcome, source)) or self.cell(rule, outcome, source))[0] += 1
        if not key:
            return
        if outcome in DENIALS:
            self.refused.add(rule, key, 1, monotonic_ns())
        self.until_sampled -= 1
        if self.until_sampled <= 0:
            self.sample(rule, key)

    def record_many(self, rule: str, outcome: Outcome, source: str, key: str, count: int) -> None:
        """Record *count* requests at once that another process decided."""
        if count <= 0:
            return
        self.cell(rule, outcome, source)[0] += count
        now_ns = monotonic_ns()
        self.busiest.add(rule, key, count, now_ns)
        if outcome in DENIALS:
            self.refused.add(rule, key, count, now_ns)

    def time(self, took_ns: int, count: int = 1) -> None:
        """Record that each of *count* decisions took *took_ns*."""
        self.latency[bisect_left(BOUNDS_NS, took_ns)] += count
        self.latency_ns += took_ns * count

    def sample(self, rule: str, key: str) -> None:
        """Count a sampled request of *key* for the busiest keys."""
        # A random interval: of eight rules that all apply, the same one would be sampled each time.
        self.until_sampled = int(random() * _SPREAD) + 1  # noqa: S311 (not a secret)
        self.busiest.add(rule, key, SAMPLED, monotonic_ns())

    def sample_gap(self, rule: str, key: str, gap: int, *, is_denied: bool) -> None:
        """Count a decision about *key* that stands for *gap* decisions of *rule*."""
        now_ns = monotonic_ns()
        self.busiest.add(rule, key, gap, now_ns)
        if is_denied:
            self.refused.add(rule, key, gap, now_ns)

    def listen(
        self, listener: Callable[[DecisionRecord], None], *, only_denials: bool = False
    ) -> Callable[[], None]:
        """Call *listener* with each decision; return a function that ends that.

        It runs in the thread of the decision, so it must be quick. Its errors are logged and do not
        affect the request. With *only_denials* it gets decisions in which a rule denies, be it a
        shadow rule; the others take no longer than without listeners.
        """
        if only_denials:
            self.denial_listeners = (*self.denial_listeners, listener)
        else:
            self.listeners = (*self.listeners, listener)
        self.has_listeners = True

        def end() -> None:
            self.listeners = _without(self.listeners, listener)
            self.denial_listeners = _without(self.denial_listeners, listener)
            self.has_listeners = bool(self.listeners or self.denial_listeners)

        return end

    def has_listener_for(self, *, denies: bool) -> bool:
        """Return True if a listener gets a decision in which a rule *denies*, or none does."""
        return bool(self.listeners or (denies and self.denial_listeners))

    def notify(self, decided: DecisionRecord) -> None:
        """Report *decided* to the listeners."""
        listeners = self.listeners
        if self.denial_listeners and any(said.outcome in DENIALS for said in decided.rules):
            listeners += self.denial_listeners
        for listener in listeners:
            try:
                listener(decided)
            except Exception:  # noqa: BLE001 (a listener's error must not affect the request)
                self._log_error(listener)

    def _log_error(self, listener: Callable[[DecisionRecord], None]) -> None:
        """Log the current exception, at most once a minute: every request may raise it."""
        now_ns = monotonic_ns()
        if self._logged_ns is None or now_ns - self._logged_ns >= _LOG_INTERVAL_NS:
            self._logged_ns = now_ns
            _LOG.exception("the decision listener %r raised", listener)

    def counts(self) -> Iterator[tuple[tuple[str, Outcome, str], int]]:
        """Yield all counts by (rule, outcome, source)."""
        for name, cell in list(self.cells.items()):
            yield name, cell[0]

    def samples(self) -> Iterator[Sample]:
        """Yield the counts of decisions as samples."""
        for (rule, outcome, source), count in self.counts():
            labels = ("outcome", outcome), ("rule", rule), ("source", source)
            yield "_total", labels, count

    def request_samples(self) -> Iterator[Sample]:
        """Yield the numbers of allowed and denied requests as samples."""
        yield "_total", (("outcome", "allowed"),), self.admitted_requests()
        yield "_total", (("outcome", "denied"),), self.requests[False][0]

    def admitted_requests(self) -> int:
        """Return the number of allowed requests, each counted once. It never decreases, though
        another part of the app may still deny the last of them."""
        self._most_allowed = max(self._most_allowed, self.requests[True][0] - self.asked_again[0])
        return self._most_allowed

    def latency_samples(self) -> Iterator[Sample]:
        """Yield the latency of decisions as a histogram."""
        total = 0
        for bound_ns, count in zip(BOUNDS_NS, self.latency, strict=False):
            total += count
            yield "_bucket", (("le", repr(bound_ns / SECOND)),), total
        total += self.latency[-1]
        yield "_bucket", (("le", "+Inf"),), total
        yield "_sum", (), self.latency_ns / SECOND
        yield "_count", (), total


def _without(
    listeners: tuple[Callable[[DecisionRecord], None], ...], gone: Callable[[DecisionRecord], None]
) -> tuple[Callable[[DecisionRecord], None], ...]:
    return tuple(one for one in listeners if one is not gone)


RECORDER: Final = DecisionRecorder()
"""The decisions of this process."""

METRICS.collect(
    "decisions", "counter", "Decisions of rules, by outcome and source.", RECORDER.samples
)
METRICS.collect(
    "requests",
    "counter",
    "Requests, by the decision of all rules together.",
    RECORDER.request_samples,
)
METRICS.collect(
    "decision_seconds",
    "histogram",
    "The time to decide, store included.",
    RECORDER.latency_samples,
)
