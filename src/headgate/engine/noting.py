"""What came of a request, noted in the journal of this process."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from headgate.engine.trying import hear
from headgate.observability import JOURNAL, Decided, Said
from headgate.observability.candidates import CANDIDATES

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
    if not (verdict.allowed and verdict.plan is not None and verdict.plan.awaits_turns):
        journal.requests[verdict.allowed][0] += 1
    cells = journal.cells
    is_tried = False
    for one in verdict.rules:
        decision = one.decision
        allowed = decision.allowed
        is_shadow = one.rule.mode == "shadow"
        outcome = _OUTCOMES[is_shadow, allowed]
        cell = cells.get((one.rule.id, outcome, decision.source))
        if cell is None:
            cell = journal.cell(one.rule.id, outcome, decision.source)
        cell[0] += 1
        if allowed:
            journal.admitted(one.rule.id, one.key)
        else:
            journal.turned_away(one.rule.id, one.key)
            is_tried = is_tried or one.rule.id in CANDIDATES.beside
        if is_shadow:
            is_tried = True
    if is_tried:
        hear(verdict)
    if journal.listeners:
        _tell(verdict, took_ns)
    return verdict


def note_turns(verdict: Verdict) -> None:
    """Note that a request with *verdict* has had its turns everywhere: now it is admitted."""
    JOURNAL.requests[True][0] += 1
    if verdict.plan is not None:
        for one in verdict.plan.queues:
            JOURNAL.note(one.rule.id, "allowed", "gate", one.key)


def note_refusal(verdict: Verdict, source: str) -> Verdict:
    """Note a *verdict* that refuses without any limit having been asked: by a gate, or a shedder,
    as *source* says. It is returned.

    How long its request waited says nothing of how quickly is decided: that is not noted.
    """
    JOURNAL.requests[False][0] += 1
    for one in verdict.rules:
        JOURNAL.note(one.rule.id, "denied", source, one.key)
    if JOURNAL.listeners:
        said = tuple([replace(said_of(one), source=source) for one in verdict.rules])
        told = Decided(verdict.allowed, source, verdict.revision, 0, said)
        for listener in JOURNAL.listeners:
            listener(told)
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
