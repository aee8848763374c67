"""Notes of what is decided about one limit with a name, where no policy is asked."""

from __future__ import annotations

from bisect import bisect_left
from time import perf_counter_ns
from typing import TYPE_CHECKING, Protocol

from headgate.observability.journal import BOUNDS_NS, JOURNAL, Decided, Said

if TYPE_CHECKING:
    from headgate.observability.journal import Outcome


class Answered(Protocol):
    """What a `Decision` has of what is noted."""

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


class DecisionNotes:
    """Notes what is decided about the limit called *rule*."""

    __slots__ = ("_admitted", "_rule")

    def __init__(self, rule: str) -> None:
        self._rule = rule
        self._admitted = JOURNAL.cell(rule, "allowed", "store")

    def note(self, decision: Answered, key: str, cost: int, began_ns: int) -> bool:
        """Note a *decision* about *key* that was asked for at *began_ns*, by `perf_counter_ns`;
        whether it allows."""
        journal = JOURNAL
        took_ns = perf_counter_ns() - began_ns
        journal.latency[bisect_left(BOUNDS_NS, took_ns)] += 1
        journal.latency_ns += took_ns
        allowed = decision.allowed
        if not allowed or journal.listeners or decision.source != "store":
            self.count(decision, key, cost, took_ns)
            return allowed
        journal.requests[True][0] += 1
        self._admitted[0] += 1
        journal.until_sampled -= 1
        if journal.until_sampled <= 0:
            journal.sample(self._rule, key)
        return True

    def count(self, decision: Answered, key: str, cost: int, took_ns: int) -> None:
        """The same of one that was waited for, which says nothing of how quickly it is decided."""
        journal, rule = JOURNAL, self._rule
        allowed, source = decision.allowed, decision.source
        outcome: Outcome = "allowed" if allowed else "denied"
        journal.requests[allowed][0] += 1
        journal.note(rule, outcome, source, key)
        if journal.is_heard(refuses=not allowed):
            said = Said(
                rule, outcome, source, key, cost, decision.remaining, decision.retry_after_ns
            )
            journal.tell(Decided(allowed, source, 0, took_ns, (said,)))
