"""Record decisions in the journal of this process: counters, busiest keys, listeners."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.engine.verdict import RuleVerdict, Verdict, single_verdict
from headgate.observability import RECORDER, DecisionRecord, RuleRecord
from headgate.observability.candidates import CANDIDATES
from headgate.observability.decision_recorder import BOUNDS_NS, read_timer

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from headgate.decision import Decision, PartialHit
    from headgate.engine.plan import Plan
    from headgate.observability.candidates import RuleOutcome
    from headgate.observability.decision_recorder import Outcome


def record_shadows(verdict: Verdict) -> None:
    """Count the decisions of shadow rules, and denials of rules that have a candidate."""
    plan = verdict.plan
    without: Collection[str] = ()
    if plan is not None:
        if plan.blocked and plan.is_refused:  # the store was not asked
            return
        if len(plan.rules) != len(verdict.rules):
            spoken = {one.rule.id for one in verdict.rules}
            without = [one.rule.id for one in plan.rules if one.rule.id not in spoken]
    said: list[RuleOutcome] = []
    for one in verdict.rules:  # this is part of the time that a decision takes
        rule, decision = one.rule, one.decision
        is_shadow = rule.mode == "shadow"
        said.append((rule.id, one.key, is_shadow, decision.allowed, decision.source))
    CANDIDATES.record(said, admitted=verdict.allowed, revision=verdict.revision, without=without)


_OUTCOMES: Final[dict[tuple[bool, bool], Outcome]] = {
    (False, True): "allowed",
    (False, False): "denied",
    (True, True): "shadow_allowed",
    (True, False): "shadow_denied",
}

begin: Final = read_timer
"""The timer that says how long a decision took."""


def record(verdict: Verdict, began_ns: int, *, is_timed: bool = True) -> Verdict:
    """Record *verdict*, whose decision began at *began_ns*; it is returned.

    One that *is_timed* counts in the latency. (A caller that waited in line says nothing of it.)
    """
    plan, journal = verdict.plan, RECORDER
    if plan is not None and not plan.is_recorded:
        return verdict
    took_ns = read_timer() - began_ns
    if is_timed:
        journal.latency[bisect_left(BOUNDS_NS, took_ns)] += 1
        journal.latency_ns += took_ns
    if not verdict.allowed or plan is None or not plan.awaits_turns:
        journal.requests[verdict.allowed][0] += 1
    has_shadows = denies = False
    for one in verdict.rules:
        rule, decision = one.rule, one.decision
        is_shadow = rule.mode == "shadow"
        if decision.allowed and not is_shadow:
            name: tuple[str, Outcome, str] = (rule.id, "allowed", decision.source)
            (journal.cells.get(name) or journal.cell(*name))[0] += 1
            journal.until_sampled -= 1
            if journal.until_sampled <= 0:
                journal.sample(rule.id, one.key)
            continue
        allowed = decision.allowed
        journal.record(rule.id, _OUTCOMES[is_shadow, allowed], decision.source, one.key)
        if not allowed:
            denies = True
        has_shadows = has_shadows or is_shadow or (not allowed and rule.id in CANDIDATES.beside)
    if has_shadows:
        record_shadows(verdict)
    if journal.listeners or (denies and journal.denial_listeners):
        _notify(verdict, took_ns)
    return verdict


def record_single(plan: Plan, decision: Decision, began_ns: int) -> None:
    """Record the *decision* of the only rule of *plan*, which is plain: see `record`."""
    journal = RECORDER
    if not decision.allowed or journal.has_listeners or plan.awaits_turns:
        record(single_verdict(plan, decision), began_ns)
        return
    if not plan.is_recorded:
        return
    took_ns = read_timer() - began_ns
    journal.latency[bisect_left(BOUNDS_NS, took_ns)] += 1
    journal.latency_ns += took_ns
    journal.requests[True][0] += 1
    one = plan.rules[0]
    cell = journal.cells.get((one.rule.id, "allowed", decision.source))
    if cell is None:
        cell = journal.cell(one.rule.id, "allowed", decision.source)
    cell[0] += 1
    journal.until_sampled -= 1
    if journal.until_sampled <= 0:
        journal.sample(one.rule.id, one.key)


def record_all(verdicts: Sequence[Verdict], began_ns: int) -> None:
    """Record the *verdicts* of one round trip, which count as one in the latency."""
    for place, verdict in enumerate(verdicts):
        record(verdict, began_ns, is_timed=not place)


def record_part(plan: Plan, part: PartialHit, began_ns: int) -> None:
    """Record a hit of up to some cost: allowed if a part of it was, with the cost of that part."""
    if plan.is_recorded:
        (one,) = plan.rules
        decision, cost = part.decision, one.cost
        if part.granted:
            decision, cost = decision._replace(allowed=True, retry_after_ns=0), part.granted
        said = (RuleVerdict(one.rule, one.key, cost, decision),)
        record(Verdict(decision.allowed, plan.revision, said, plan=plan), began_ns)


def record_again() -> None:
    """Record that a request was allowed before, by another part of the app: it is one request."""
    RECORDER.asked_again[0] += 1


def record_places(verdict: Verdict) -> None:
    """Record that a request has its places in all queues: now it is allowed."""
    RECORDER.requests[True][0] += 1
    if verdict.plan is not None:
        for one in verdict.plan.queues:
            RECORDER.record(one.rule.id, "allowed", "gate", one.key)


def record_denial(verdict: Verdict, source: str) -> Verdict:
    """Record a *verdict* that denies without a limit: *source* is a gate or a load shedder. It is
    returned. The time that its request waited is not recorded.
    """
    RECORDER.requests[False][0] += 1
    for one in verdict.rules:
        RECORDER.record(one.rule.id, "denied", source, one.key)
    if RECORDER.has_listener_for(denies=True):
        said = tuple([replace(said_of(one), source=source) for one in verdict.rules])
        RECORDER.notify(DecisionRecord(verdict.allowed, source, verdict.revision, 0, said))
    return verdict


def _notify(verdict: Verdict, took_ns: int) -> None:
    said = tuple([said_of(one) for one in verdict.rules])
    RECORDER.notify(
        DecisionRecord(verdict.allowed, verdict.source, verdict.revision, took_ns, said)
    )


def said_of(one: RuleVerdict) -> RuleRecord:
    """The report of a rule for listeners."""
    decision = one.decision
    return RuleRecord(
        one.rule.id,
        _OUTCOMES[one.is_shadow, decision.allowed],
        decision.source,
        one.key,
        one.cost,
        decision.remaining,
        decision.retry_after_ns,
    )
