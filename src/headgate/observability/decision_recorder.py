"""Records of the decisions in this process: counts, latency, hot keys, listeners.

Each decision is recorded here once for its request and once for each rule. A process has one
`RECORDER`. Its memory is bounded: labels are rules, outcomes and sources, and keys are in sketches.
A *listener* gets every decision (see `listen`). A `LimiterRecorder` records those of one limiter.

Recording takes less than a microsecond; callers on the hot path add to the counts themselves. There
is no lock: under the GIL an addition to a cell is hardly ever interrupted. Without it, an addition
may be lost now and then; nothing else can go wrong.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from dataclasses import dataclass
from time import monotonic_ns, perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from headgate.chance import chance
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

GATEWAY: Final = "gateway"
"""The source of decisions that a gateway makes by a quota and reports every few seconds."""

ENVOY: Final = "envoy"
"""The source of decisions that Envoy makes by itself and counts; read every few seconds."""

SAMPLED: Final = 16
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
        self.repeated: Cell = [0]
        """The number of allowed requests that were counted before, by another part of the app."""
        self.reported = [0, 0]
        """The numbers of requests among them that gateways denied and allowed, and reported."""
        self.latency: list[int] = [0] * (len(BOUNDS_NS) + 1)
        """The number of decisions by their latency: one for each of `BOUNDS_NS`, and one above."""
        self.latency_ns = 0
        """The sum of all latencies."""
        self.untimed = 0
        """The number of decisions since the last one that was timed."""
        self.busiest = HeavyHitters(512, half_life_ns=_HALF_LIFE_NS)
        """The keys with most requests, by rule: one of `SAMPLED` requests counts as so many."""
        self.most_denied = HeavyHitters(512, half_life_ns=_HALF_LIFE_NS)
        """The keys with most denials, by rule."""
        self.listeners: tuple[Callable[[DecisionRecord], None], ...] = ()
        """Callables that get every decision."""
        self.denial_listeners: tuple[Callable[[DecisionRecord], None], ...] = ()
        """Callables that get decisions in which a rule denies, be it a shadow rule."""
        self.has_listeners = False
        """True if there are listeners of either kind."""
        self.until_sampled = SAMPLED
        """The number of allowed decisions until one is sampled for the busiest keys."""
        self._took_ns = 0
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
            self.most_denied.add(rule, key, 1, monotonic_ns())
        self.until_sampled -= 1
        if self.until_sampled <= 0:
            self.sample(rule, key)

    def record_many(self, rule: str, outcome: Outcome, source: str, key: str, count: int) -> None:
        """Record *count* requests at once that another process decided."""
        if count <= 0:
            return
        self.cell(rule, outcome, source)[0] += count
        self.sample_gap(rule, key, count, is_denied=outcome in DENIALS)

    def time(self, took_ns: int, count: int = 1) -> None:
        """Record that each of *count* decisions, and each that was not timed, took *took_ns*."""
        if self.untimed:
            count += self.untimed
            self.untimed = 0
        self._took_ns = took_ns
        self.latency[bisect_left(BOUNDS_NS, took_ns)] += count
        self.latency_ns += took_ns * count

    def sample(self, rule: str, key: str) -> None:
        """Count a sampled request of *key* for the busiest keys."""
        # A random interval: of eight rules that all apply, the same one would be sampled each time.
        self.until_sampled = int(chance() * _SPREAD) + 1
        self.busiest.add(rule, key, SAMPLED, monotonic_ns())

    def sample_gap(self, rule: str, key: str, gap: int, *, is_denied: bool) -> None:
        """Count a decision about *key* that stands for *gap* decisions of *rule*."""
        now_ns = monotonic_ns()
        self.busiest.add(rule, key, gap, now_ns)
        if is_denied:
            self.most_denied.add(rule, key, gap, now_ns)

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
        if self.denial_listeners and any(rule.outcome in DENIALS for rule in decided.rules):
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
        yield "_total", (("outcome", "allowed"),), self.allowed_requests()
        yield "_total", (("outcome", "denied"),), self.requests[False][0]

    def allowed_requests(self) -> int:
        """Return the number of allowed requests, each counted once. It never decreases, though
        another part of the app may still deny the last of them."""
        self._most_allowed = max(self._most_allowed, self.requests[True][0] - self.repeated[0])
        return self._most_allowed

    def latency_samples(self) -> Iterator[Sample]:
        """Yield the latency of decisions as a histogram."""
        self.time(self._took_ns, 0)  # those that were not timed, by the last one that was
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


class _Decided(Protocol):
    """The attributes of a `Decision` that are recorded."""

    @property
    def allowed(self) -> bool: ...
    @property
    def source(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def remaining(self) -> int: ...
    @property
    def retry_after_ns(self) -> int | None: ...


SPREAD: Final = 31
"""One of up to so many decisions of a limiter, at random, is recorded in full."""


class LimiterRecorder:
    """Records the decisions of a limiter, whose name is the rule, at little cost.

    Each decision is counted. One of up to `SPREAD` is also timed, and counted for the keys with
    most requests and most denials: it stands for all since the one before. That adds 0.3 us to a
    decision in memory; recording each in full adds 0.8 us.
    """

    __slots__ = ("_cells", "_gap", "_rule", "_skipped")

    def __init__(self, rule: str) -> None:
        self._rule = rule
        self._cells: tuple[dict[str, Cell], dict[str, Cell]] = {}, {}
        self._cells[True]["store"] = RECORDER.cell(rule, "allowed", "store")
        self._skipped = self._gap = 0

    def record(self, decision: _Decided, key: str, cost: int, began_ns: int) -> bool:
        """Record a decision that began at *began_ns*, by `perf_counter_ns`.

        Returns True if it allows.
        """
        allowed = decision.allowed
        cell = self._cells[allowed].get(decision.source)
        if cell is None or self._skipped >= self._gap or RECORDER.has_listeners:
            self._sample(decision, key, cost, perf_counter_ns() - began_ns, self._skipped + 1)
            self._skipped, self._gap = 0, _random_gap()
            return allowed
        self._skipped += 1
        cell[0] += 1
        RECORDER.requests[allowed][0] += 1
        return allowed

    def wrap(self, decide: Callable[[str, int], Any]) -> Callable[..., Any]:
        """Return *decide* with its decisions recorded; None, where it has none, is not one."""
        recorder, requests, cells, tally = RECORDER, RECORDER.requests, self._cells, self._tally
        skipped = gap = 0

        def hit(key: str, cost: int = 1) -> Any:
            nonlocal skipped, gap
            if skipped < gap and not recorder.has_listeners:
                decision = decide(key, cost)
                if decision is None:
                    return None
                skipped += 1
                allowed = decision.allowed
                cell = cells[allowed].get(decision.source)
                if cell is None:
                    tally(decision)
                else:
                    cell[0] += 1
                    requests[allowed][0] += 1
                return decision
            began_ns = perf_counter_ns()
            decision = decide(key, cost)
            if decision is None:
                return None
            self._sample(decision, key, cost, perf_counter_ns() - began_ns, skipped + 1)
            skipped, gap = 0, _random_gap()
            return decision

        return hit

    def _sample(
        self, decision: _Decided, key: str, cost: int, took_ns: int, stands_for: int
    ) -> None:
        """Record a decision in full; it *stands_for* itself and those since the last such one."""
        self._tally(decision)
        RECORDER.time(took_ns, stands_for)
        RECORDER.sample_gap(self._rule, key, stands_for, is_denied=not decision.allowed)
        if RECORDER.has_listener_for(denies=not decision.allowed):
            allowed, source = decision.allowed, decision.source
            outcome: Outcome = "allowed" if allowed else "denied"
            wait_ns = decision.retry_after_ns
            rule = RuleRecord(self._rule, outcome, source, key, cost, decision.remaining, wait_ns)
            RECORDER.notify(DecisionRecord(allowed, source, 0, took_ns, (rule,)))

    def _tally(self, decision: _Decided) -> None:
        allowed, source = decision.allowed, decision.source
        cell = self._cells[allowed].get(source)
        if cell is None:
            cell = RECORDER.cell(self._rule, "allowed" if allowed else "denied", source)
            self._cells[allowed][source] = cell
        cell[0] += 1
        RECORDER.requests[allowed][0] += 1


def _random_gap() -> int:
    """Return the number of decisions to skip until the next one that is recorded in full."""
    return int(chance() * SPREAD)
