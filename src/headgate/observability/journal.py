"""What was decided in this process: how often, by which rule, by whom, how quickly, for whom.

Whoever decides notes it here, once for each request and rule. There is one `JOURNAL` for a process.
It counts and remembers only what can be told of many requests at once: labels are rules, outcomes
and sources, and keys are in sketches of bounded size. Whoever wants to hear of each decision is a
*listener* (see `listen`).

To note costs less than a microsecond; what is done for every request is written out where it is
done. There is no lock: the few instructions that add to a cell are not interrupted by another
thread under the interpreter's own lock. (Without that lock, an addition may now and then be lost;
nothing else can go wrong.)
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from dataclasses import dataclass
from random import random
from time import monotonic_ns, perf_counter_ns
from typing import TYPE_CHECKING, Final, Literal

from headgate.observability.metrics import MEASURES
from headgate.observability.sketches import HeavyHitters
from headgate.units import MICROSECOND, MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headgate.observability.metrics import Sample

Outcome = Literal["allowed", "denied", "shadow_allowed", "shadow_denied"]
"""What a rule said; `shadow_` if it only says what it would have done."""

DENIALS: Final[frozenset[Outcome]] = frozenset(("denied", "shadow_denied"))

Cell = list[int]
"""A count, alone in a list: whoever adds to it often keeps the list."""

BOUNDS_NS: Final = (
    *(n * MICROSECOND for n in (1, 2, 5, 10, 25, 50, 100, 250, 500)),
    *(n * MILLISECOND for n in (1, 2, 5, 10, 25, 50, 100, 250, 500)),
    SECOND,
)
"""How long a decision took: up to each of these, or longer than all of them."""

MOST_CELLS: Final = 8192
"""How many rules, outcomes and sources are told apart; of more, the rule is called `OTHER`."""

OTHER: Final = "(other)"

SAMPLED: Final = 8
"""Of what rules say, one of so many is looked at for the busiest keys, on average."""

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
_COMPLAINS_NS: Final = 60 * SECOND
"""How often it is told that listeners raise."""


@dataclass(frozen=True, slots=True)
class Said:
    """What one rule said to a request of *key*, whose secrets are hashed already."""

    rule: str
    outcome: Outcome
    source: str
    key: str
    cost: int
    remaining: int
    retry_after_ns: int | None


@dataclass(frozen=True, slots=True)
class Decided:
    """What came of one request, under the policy of *revision* (0 without one), *took_ns* long."""

    allowed: bool
    source: str
    revision: int
    took_ns: int
    rules: tuple[Said, ...]


class Journal:
    """The decisions of a process."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, Outcome, str], Cell] = {}
        """How often which rule said what, by (rule, outcome, source)."""
        self.requests: tuple[Cell, Cell] = ([0], [0])
        """How many requests were refused, and how many were admitted, whatever the rules."""
        self.asked_again: Cell = [0]
        """How many of those that were admitted are the same request once more: it was admitted at
        one place, and asked about at another."""
        self.latency: list[int] = [0] * (len(BOUNDS_NS) + 1)
        """How many decisions took how long, by `BOUNDS_NS`."""
        self.latency_ns = 0
        """How long all of them took together."""
        self.busiest = HeavyHitters(512, half_life_ns=_HALF_LIFE_NS)
        """The keys, by rule, that most is asked of: one of `SAMPLED` requests, times that."""
        self.refused = HeavyHitters(512, half_life_ns=_HALF_LIFE_NS)
        """The keys, by rule, that most is refused to."""
        self.listeners: tuple[Callable[[Decided], None], ...] = ()
        """Who hears of each decision."""
        self.refusal_listeners: tuple[Callable[[Decided], None], ...] = ()
        """Who hears of those only in which a rule refuses, be it one in shadow."""
        self.has_listeners = False
        """True if there are listeners of either kind."""
        self.until_sampled = SAMPLED
        """How many more admissions until one is looked at for the busiest keys (see `sample`)."""
        self._told_admitted = 0
        self._complained_ns: int | None = None

    def cell(self, rule: str, outcome: Outcome, source: str) -> Cell:
        """The count of *rule*, *outcome* and *source*: add to its only element."""
        found = self.cells.get((rule, outcome, source))
        if found is None:
            if len(self.cells) >= MOST_CELLS:
                rule = OTHER
            found = self.cells.setdefault((rule, outcome, source), [0])
            # The other answer is told from now on too: Prometheus sees no growth in a counter that
            # it sees for the first time, so the first refusals of a rule would be lost to it.
            self.cells.setdefault((rule, _OPPOSITES[outcome], source), [0])
        return found

    def note(self, rule: str, outcome: Outcome, source: str, key: str) -> None:
        """*rule* said *outcome* to a request of *key*, "" for one that has none."""
        cell = self.cells.get((rule, outcome, source))
        if cell is None:
            cell = self.cell(rule, outcome, source)
        cell[0] += 1
        if not key:
            return
        if outcome == "allowed" or outcome == "shadow_allowed":
            self.admitted(rule, key)
        else:
            self.turned_away(rule, key)

    def note_many(self, rule: str, outcome: Outcome, source: str, key: str, count: int) -> None:
        """The same of *count* requests at once, that somebody else decided."""
        if count <= 0:
            return
        self.cell(rule, outcome, source)[0] += count
        now_ns = monotonic_ns()
        self.busiest.add(rule, key, count, now_ns)
        if outcome.endswith("denied"):
            self.refused.add(rule, key, count, now_ns)

    def time(self, took_ns: int, count: int = 1) -> None:
        """Record that each of *count* decisions took *took_ns*."""
        self.latency[bisect_left(BOUNDS_NS, took_ns)] += count
        self.latency_ns += took_ns * count

    def admitted(self, rule: str, key: str) -> None:
        """A request of *key* was admitted: count it among the busiest, if it is its turn."""
        self.until_sampled -= 1
        if self.until_sampled <= 0:
            self.sample(rule, key)

    def sample(self, rule: str, key: str) -> None:
        """It is the turn of this request of *key* to be counted among the busiest."""
        # By chance: of eight rules that all apply it would else always be the turn of one.
        self.until_sampled = int(random() * _SPREAD) + 1  # noqa: S311 (not a secret)
        self.busiest.add(rule, key, SAMPLED, monotonic_ns())

    def sample_gap(self, rule: str, key: str, gap: int, *, is_denied: bool) -> None:
        """Count a decision about *key* that stands for *gap* decisions of *rule*."""
        now_ns = monotonic_ns()
        self.busiest.add(rule, key, gap, now_ns)
        if is_denied:
            self.refused.add(rule, key, gap, now_ns)

    def turned_away(self, rule: str, key: str) -> None:
        """*rule* refused a request of *key*."""
        self.refused.add(rule, key, 1, monotonic_ns())
        self.admitted(rule, key)

    def listen(
        self, listener: Callable[[Decided], None], *, only_refusals: bool = False
    ) -> Callable[[], None]:
        """Have *listener* hear of each decision, in the thread that made it, so quickly it must be.
        What it raises is logged, and nobody else's trouble. What is returned ends that.

        With *only_refusals* of those in which a rule refuses, be it one in shadow: the others take
        no longer than if nobody listened.
        """
        if only_refusals:
            self.refusal_listeners = (*self.refusal_listeners, listener)
        else:
            self.listeners = (*self.listeners, listener)
        self.has_listeners = True

        def end() -> None:
            self.listeners = _without(self.listeners, listener)
            self.refusal_listeners = _without(self.refusal_listeners, listener)
            self.has_listeners = bool(self.listeners or self.refusal_listeners)

        return end

    def is_heard(self, *, refuses: bool) -> bool:
        """Whether anybody hears of a decision in which a rule *refuses*, or none does."""
        return bool(self.listeners or (refuses and self.refusal_listeners))

    def tell(self, decided: Decided) -> None:
        """Have all who listen hear of *decided*."""
        hearing = self.listeners
        if self.refusal_listeners and any(said.outcome in DENIALS for said in decided.rules):
            hearing += self.refusal_listeners
        for listener in hearing:
            try:
                listener(decided)
            except Exception:  # noqa: BLE001 (a stranger's: no request may be any worse for it)
                self._complain(listener)

    def _complain(self, listener: Callable[[Decided], None]) -> None:
        """Log what is being raised, now and then: it may well be raised for every request."""
        now_ns = monotonic_ns()
        if self._complained_ns is None or now_ns - self._complained_ns >= _COMPLAINS_NS:
            self._complained_ns = now_ns
            _LOG.exception("%r, which hears of decisions, has raised", listener)

    def counts(self) -> Iterator[tuple[tuple[str, Outcome, str], int]]:
        """All cells with what they say now."""
        for name, cell in list(self.cells.items()):
            yield name, cell[0]

    def samples(self) -> Iterator[Sample]:
        """How often which rule said what, for `Measures`."""
        for (rule, outcome, source), count in self.counts():
            labels = ("outcome", outcome), ("rule", rule), ("source", source)
            yield "_total", labels, count

    def request_samples(self) -> Iterator[Sample]:
        """How many requests were admitted and refused."""
        yield "_total", (("outcome", "allowed"),), self.admitted_requests()
        yield "_total", (("outcome", "denied"),), self.requests[False][0]

    def admitted_requests(self) -> int:
        """How many requests were admitted, each counted once; never less than it was told before,
        though the last of them may yet be refused elsewhere."""
        admitted = self.requests[True][0] - self.asked_again[0]
        self._told_admitted = max(self._told_admitted, admitted)
        return self._told_admitted

    def latency_samples(self) -> Iterator[Sample]:
        """How long decisions took, as a histogram."""
        total = 0
        for bound_ns, count in zip(BOUNDS_NS, self.latency, strict=False):
            total += count
            yield "_bucket", (("le", repr(bound_ns / SECOND)),), total
        total += self.latency[-1]
        yield "_bucket", (("le", "+Inf"),), total
        yield "_sum", (), self.latency_ns / SECOND
        yield "_count", (), total


def _without(
    listeners: tuple[Callable[[Decided], None], ...], gone: Callable[[Decided], None]
) -> tuple[Callable[[Decided], None], ...]:
    return tuple(one for one in listeners if one is not gone)


JOURNAL: Final = Journal()
"""That of this process."""

MEASURES.collect("decisions", "counter", "What rules said to requests.", JOURNAL.samples)
MEASURES.collect(
    "requests",
    "counter",
    "Requests that were decided by all rules together.",
    JOURNAL.request_samples,
)
MEASURES.collect(
    "decision_seconds",
    "histogram",
    "How long it took to decide, store included.",
    JOURNAL.latency_samples,
)
