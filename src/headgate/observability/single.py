"""Notes of what is decided about one limit with a name, where no policy is asked."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Protocol

from headgate.observability.journal import JOURNAL, Decided, Said

if TYPE_CHECKING:
    from collections.abc import Callable


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


def decision_notes(rule: str, *, cost: int = 1) -> Callable[[Answered, int], None]:
    """What notes the decisions of *rule* about requests that cost *cost*: it is given one, and when
    it was asked for by `perf_counter_ns`."""
    journal = JOURNAL
    admitted, (refusals, admissions) = journal.cell(rule, "allowed", "store"), journal.requests

    def note(decision: Answered, began_ns: int) -> None:
        took_ns = perf_counter_ns() - began_ns
        journal.time(took_ns)
        if decision.allowed:
            admissions[0] += 1
            source = decision.source
            if source == "store":
                admitted[0] += 1
            else:
                journal.cell(rule, "allowed", source)[0] += 1
            journal.admitted(rule, decision.key)
        else:
            refusals[0] += 1
            journal.cell(rule, "denied", decision.source)[0] += 1
            journal.turned_away(rule, decision.key)
        if journal.listeners:
            _tell(rule, cost, decision, took_ns)

    return note


def _tell(rule: str, cost: int, decision: Answered, took_ns: int) -> None:
    said = Said(
        rule,
        "allowed" if decision.allowed else "denied",
        decision.source,
        decision.key,
        cost,
        decision.remaining,
        decision.retry_after_ns,
    )
    told = Decided(decision.allowed, decision.source, 0, took_ns, (said,))
    for listener in JOURNAL.listeners:
        listener(told)
