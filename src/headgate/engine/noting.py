"""What came of a request, noted in the journal of this process."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from headgate.engine.trying import hear
from headgate.observability import JOURNAL, Decided, Said
from headgate.observability.candidates import CANDIDATES
from headgate.observability.journal import BOUNDS_NS

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
    journal.latency[bisect_left(BOUNDS_NS, took_ns)] += 1
    journal.latency_ns += took_ns
    is_admitted = verdict.allowed
    if not is_admitted or verdict.plan is None or not verdict.plan.awaits_turns:
        journal.requests[is_admitted][0] += 1
    is_tried = refuses = False
    for one in verdict.rules:
        rule, decision = one.rule, one.decision
        is_shadow = rule.mode == "shadow"
        if is_admitted and not is_shadow:  # then it has allowed, and need not be asked
            source = decision.source
            cell = journal.cells.get((rule.id, "allowed", source))
            if cell is None:
                cell = journal.cell(rule.id, "allowed", source)
            cell[0] += 1
            journal.until_sampled -= 1
            if journal.until_sampled <= 0:
                journal.sample(rule.id, one.key)
            continue
        allowed = decision.allowed
        journal.note(rule.id, _OUTCOMES[is_shadow, allowed], decision.source, one.key)
        if not allowed:
            refuses = True
        is_tried = is_tried or is_shadow or (not allowed and rule.id in CANDIDATES.beside)
    if is_tried:
        hear(verdict)
    if journal.listeners or (refuses and journal.refusal_listeners):
        _tell(verdict, took_ns)
    return verdict


def note_further() -> None:
    """Note that a request which was noted now had been admitted before, at another place: it is one
    request."""
    JOURNAL.asked_again[0] += 1


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
    if JOURNAL.is_heard(refuses=True):
        said = tuple([replace(said_of(one), source=source) for one in verdict.rules])
        JOURNAL.tell(Decided(verdict.allowed, source, verdict.revision, 0, said))
    return verdict


def _tell(verdict: Verdict, took_ns: int) -> None:
    said = tuple([said_of(one) for one in verdict.rules])
    JOURNAL.tell(Decided(verdict.allowed, verdict.source, verdict.revision, took_ns, said))


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
