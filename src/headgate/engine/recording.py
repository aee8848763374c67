"""Record decisions in the journal of this process: figures, busiest keys, listeners."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.engine.verdict import RuleVerdict, Verdict
from headgate.observability import JOURNAL, Decided, Said
from headgate.observability.candidates import CANDIDATES
from headgate.observability.journal import BOUNDS_NS, read_timer

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from headgate.decision import PartialHit
    from headgate.engine.plan import Plan
    from headgate.observability.candidates import Spoken
    from headgate.observability.journal import Outcome


def hear(verdict: Verdict) -> None:
    """Count the decisions of shadow rules, and denials of rules that have a candidate."""
    plan = verdict.plan
    without: Collection[str] = ()
    if plan is not None:
        if plan.blocked and plan.is_refused:  # nobody was asked but those that are blocked
            return
        if len(plan.rules) != len(verdict.rules):
            spoken = {one.rule.id for one in verdict.rules}
            without = [one.rule.id for one in plan.rules if one.rule.id not in spoken]
    said: list[Spoken] = []
    for one in verdict.rules:  # this is part of the time that a decision takes
        rule, decision = one.rule, one.decision
        is_shadow = rule.mode == "shadow"
        said.append((rule.id, one.key, is_shadow, decision.allowed, decision.source))
    CANDIDATES.hear(said, admitted=verdict.allowed, revision=verdict.revision, without=without)


_OUTCOMES: Final[dict[tuple[bool, bool], Outcome]] = {
    (False, True): "allowed",
    (False, False): "denied",
    (True, True): "shadow_allowed",
    (True, False): "shadow_denied",
}

begin: Final = read_timer
"""The timer that says how long a decision took."""


def record(verdict: Verdict, began_ns: int) -> Verdict:
    """Record *verdict*, which was asked for at *began_ns*; it is returned."""
    plan = verdict.plan
    if plan is None or plan.is_recorded:
        took_ns = read_timer() - began_ns
        JOURNAL.latency[bisect_left(BOUNDS_NS, took_ns)] += 1
        JOURNAL.latency_ns += took_ns
        _record(verdict, took_ns)
    return verdict


def record_all(verdicts: Sequence[Verdict], began_ns: int) -> None:
    """Record the *verdicts* of one round trip, which count as one in the latency."""
    if not verdicts or not (verdicts[0].plan is None or verdicts[0].plan.is_recorded):
        return
    took_ns = read_timer() - began_ns
    JOURNAL.time(took_ns)
    for verdict in verdicts:
        _record(verdict, took_ns)


def record_waited(verdict: Verdict, began_ns: int) -> Verdict:
    """Record a *verdict* that was waited for, which says nothing of how long a decision takes."""
    if verdict.plan is None or verdict.plan.is_recorded:
        _record(verdict, read_timer() - began_ns)
    return verdict


def record_part(plan: Plan, part: PartialHit, began_ns: int) -> None:
    """Record a hit of up to some cost: allowed if a part of it was, with the cost of that part."""
    if plan.is_recorded:
        (one,) = plan.rules
        decision, cost = part.decision, one.cost
        if part.granted:
            decision, cost = decision._replace(allowed=True, retry_after_ns=0), part.granted
        said = (RuleVerdict(one.rule, one.key, cost, decision),)
        record(Verdict(decision.allowed, plan.revision, said, plan=plan), began_ns)


def _record(verdict: Verdict, took_ns: int) -> None:
    journal = JOURNAL
    is_admitted = verdict.allowed
    if not is_admitted or verdict.plan is None or not verdict.plan.awaits_turns:
        journal.requests[is_admitted][0] += 1
    is_tried = refuses = False
    for one in verdict.rules:
        rule, decision = one.rule, one.decision
        is_shadow = rule.mode == "shadow"
        if decision.allowed and not is_shadow:
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


def record_again() -> None:
    """Record that a request was allowed before, by another part of the app: it is one request."""
    JOURNAL.asked_again[0] += 1


def record_places(verdict: Verdict) -> None:
    """Record that a request has its places in all queues: now it is allowed."""
    JOURNAL.requests[True][0] += 1
    if verdict.plan is not None:
        for one in verdict.plan.queues:
            JOURNAL.note(one.rule.id, "allowed", "gate", one.key)


def record_denial(verdict: Verdict, source: str) -> Verdict:
    """Record a *verdict* that denies without a limit: *source* is a gate or a load shedder. It is
    returned. The time that its request waited is not recorded.
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
    """The report of a rule for listeners."""
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
