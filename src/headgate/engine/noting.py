"""What came of a request, noted in the journal of this process."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from headgate.observability import JOURNAL, Decided, Said

if TYPE_CHECKING:
    from headgate.engine.verdict import RuleVerdict, Verdict
    from headgate.observability.journal import Outcome

_OUTCOMES: Final[dict[tuple[bool, bool], Outcome]] = {
    (False, True): "allowed",
    (False, False): "denied",
    (True, True): "shadow_allowed",
    (True, False): "shadow_denied",
}

begin: Final = perf_counter_ns
"""What the time that a decision took is counted from."""


def note(verdict: Verdict, began_ns: int) -> Verdict:
    """Note *verdict*, which was asked for at *began_ns*; it is returned."""
    journal = JOURNAL
    took_ns = perf_counter_ns() - began_ns
    journal.time(took_ns)
    journal.requests[verdict.allowed][0] += 1
    cells = journal.cells
    for one in verdict.rules:
        decision = one.decision
        allowed = decision.allowed
        outcome = _OUTCOMES[one.rule.mode == "shadow", allowed]
        cell = cells.get((one.rule.id, outcome, decision.source))
        if cell is None:
            cell = journal.cell(one.rule.id, outcome, decision.source)
        cell[0] += 1
        if allowed:
            journal.admitted(one.rule.id, one.key)
        else:
            journal.turned_away(one.rule.id, one.key)
    if journal.listeners:
        _tell(verdict, took_ns)
    return verdict


def _tell(verdict: Verdict, took_ns: int) -> None:
    told = Decided(
        verdict.allowed,
        verdict.source,
        verdict.revision,
        took_ns,
        tuple([said_of(one) for one in verdict.rules]),
    )
    for listener in JOURNAL.listeners:
        listener(told)


def said_of(one: RuleVerdict) -> Said:
    """What listeners are told of a rule."""
    decision = one.decision
    return Said(
        one.rule.id,
        _OUTCOMES[one.is_shadow, decision.allowed],
        decision.source,
        one.key,
        one.cost,
        decision.remaining,
        decision.retry_after_ns,
    )
