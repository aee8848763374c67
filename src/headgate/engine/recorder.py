"""Record decisions and costs of models in this process: counters, busiest keys, listeners."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.engine.plan import Plan
from headgate.engine.verdict import Verdict
from headgate.observability import METRICS, RECORDER, DecisionRecord, RuleRecord
from headgate.observability.candidates import CANDIDATES
from headgate.observability.decision_recorder import read_timer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headgate.decision import PartialHit
    from headgate.engine.plan import RulePlan
    from headgate.engine.verdict import RuleVerdict
    from headgate.observability.candidates import RuleOutcome
    from headgate.observability.decision_recorder import Outcome


def record_shadows(verdict: Verdict) -> None:
    """Count the decisions of shadow rules, and denials of rules that have a candidate."""
    plan = verdict.plan
    if plan.blocked and plan.is_denied:  # the store was not called
        return
    outcomes: list[RuleOutcome] = [
        (one.rule.id, one.key, one.rule.mode == "shadow", decision.allowed, decision.source)
        for one, decision in verdict.pairs
    ]
    pairs = zip(plan.rules, verdict.decisions, strict=True)
    without = [one.rule.id for one, decision in pairs if decision is None]
    CANDIDATES.record(outcomes, is_allowed=verdict.allowed, revision=plan.revision, without=without)


_OUTCOMES: Final[dict[tuple[bool, bool], Outcome]] = {
    (False, True): "allowed",
    (False, False): "denied",
    (True, True): "shadow_allowed",
    (True, False): "shadow_denied",
}


def count_allowed(verdict: Verdict) -> Verdict:
    """Record *verdict*, by which the only rule of its plan allows; it is returned.

    It is not timed: it counts in the latency like the next one that is.
    """
    recorder = RECORDER
    recorder.untimed += 1
    recorder.until_sampled -= 1
    recorder.requests[True][0] += 1
    verdict.plan.allowed_cell[0] += 1
    return verdict


def record(verdict: Verdict, began_ns: int, *, is_timed: bool = True) -> Verdict:
    """Record *verdict*, whose decision began at *began_ns*; it is returned.

    One that *is_timed* counts in the latency. (A caller that waited in line says nothing of it.)
    """
    plan, recorder = verdict.plan, RECORDER
    if not plan.is_recorded:
        return verdict
    took_ns = read_timer() - began_ns
    if is_timed:
        recorder.time(took_ns)
    if not (verdict.allowed and plan.awaits_places):
        recorder.requests[verdict.allowed][0] += 1
    has_shadows = denies = False
    for one, decision in zip(plan.rules, verdict.decisions):  # noqa: B905 (a part of each hit)
        if decision is None:
            continue
        rule, allowed = one.rule, decision.allowed
        is_shadow = rule.mode == "shadow"
        if allowed and not is_shadow:
            name: tuple[str, Outcome, str] = (rule.id, "allowed", decision.source)
            (recorder.cells.get(name) or recorder.cell(*name))[0] += 1
            recorder.until_sampled -= 1
            if recorder.until_sampled <= 0:
                recorder.sample(rule.id, one.key)
            continue
        recorder.record(rule.id, _OUTCOMES[is_shadow, allowed], decision.source, one.key)
        denies = denies or not allowed
        has_shadows = has_shadows or is_shadow or (not allowed and rule.id in CANDIDATES.beside)
    if has_shadows:
        record_shadows(verdict)
    if recorder.listeners or (denies and recorder.denial_listeners):
        rules = tuple([record_of(one) for one in verdict.rules])
        source, revision = verdict.source, verdict.revision
        recorder.notify(DecisionRecord(verdict.allowed, source, revision, took_ns, rules))
    return verdict


def record_part(plan: Plan, part: PartialHit, began_ns: int) -> None:
    """Record a hit of up to some cost: allowed if a part of it was, with the cost of that part."""
    if plan.is_recorded:
        (one,) = plan.rules
        decision, cost = part.decision, one.cost
        if part.granted:
            decision, cost = decision._replace(allowed=True, retry_after_ns=0), part.granted
        charged = Plan(plan.revision, (replace(one, cost=cost),))
        record(Verdict(charged, (decision,), allowed=decision.allowed), began_ns)


def record_again() -> None:
    """Record that a request was allowed before, by another part of the app: it is one request."""
    RECORDER.repeated[0] += 1


def record_places(verdict: Verdict) -> None:
    """Record that a request has its places in all queues: now it is allowed."""
    RECORDER.requests[True][0] += 1
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
        rules = tuple([replace(record_of(one), source=source) for one in verdict.rules])
        RECORDER.notify(DecisionRecord(verdict.allowed, source, verdict.revision, 0, rules))
    return verdict


def record_of(one: RuleVerdict) -> RuleRecord:
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


def record_reserved(rules: Iterable[RulePlan]) -> None:
    """Count what a call of a language model has reserved under *rules*."""
    for one in rules:
        rule = one.rule
        if rule.final_cost is not None:
            METRICS.counter(
                "model_cost_reserved", "Reserved by calls.", rule=rule.id, kind=rule.counts
            ).add(one.cost)


def record_settled(rules: Iterable[RulePlan], amounts: Mapping[str, int]) -> None:
    """Count the *amounts*, by rule, that a call of a language model was charged under *rules*."""
    for one in rules:
        rule = one.rule
        if rule.final_cost is not None:
            METRICS.counter(
                "model_cost_settled", "Charged to calls.", rule=rule.id, kind=rule.counts
            ).add(amounts[rule.id])
