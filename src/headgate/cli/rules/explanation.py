"""The explanation of a request: matching rules, counters and response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.algorithms import algorithm_for
from headgate.decision import Decision, combine
from headgate.engine.verdict import answer_of
from headgate.limits import Concurrency, LeakyQueue, PacedLimit
from headgate.policy.explain import Explanation
from headgate.policy.model import BY_PRIORITY, AdaptiveSlots, ceiling
from headgate.policy.path import normalised_path, readings
from headgate.responses import headers_for, response_for
from headgate.terminal import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from fractions import Fraction

    from headgate.engine.plan import Priority, Queueing
    from headgate.engine.request import Request
    from headgate.engine.verdict import Verdict
    from headgate.policy.explain import Member
    from headgate.policy.identity import Found
    from headgate.policy.model import Fair, Rule

    Notes = Iterator[tuple[str, str]]

Lines = tuple[tuple[str, str], ...]
"""Labels and texts."""


@dataclass(frozen=True, slots=True)
class Response:
    """The response to a denied request, or the headers added to another (*status* is None)."""

    status: int | None
    headers: Lines
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class ExplainedRequest:
    """The explanation of *request*, once it is charged.

    *path* is the normalised one, *others* are readings of other servers, *tier* is the caller's.
    *priority* is the class of the request, None if the policy has none. *soft* are notes about
    delays, slots, queues and pressure by the id of the rule.
    """

    request: Request
    path: str
    others: tuple[str, ...]
    tier: str | None
    members: tuple[Member, ...]
    verdict: Verdict
    response: Response
    priority: Priority | None
    soft: Mapping[str, Lines]


def explained(peeked: Explanation, now_ns: int) -> ExplainedRequest:
    """Explain the decision of a request at the time *now_ns*, from the explanation of a peek."""
    compiled, request = peeked.compiled, peeked.request
    verdict = as_if_charged(peeked.verdict, now_ns)
    explanation = Explanation(compiled, request, verdict)
    members = explanation.all()
    ways = ["/" + "/".join(way) for way in readings(request.path)]
    path, *others = dict.fromkeys([normalised_path(request.path), *ways])
    found, priority = compiled.identifier.find(request), compiled.priority_of(request)
    notes: dict[str, Lines] = {}
    for member in members:
        rule, own = member.rule, member.verdict
        if member.queueing is not None:
            notes[rule.id] = tuple(queue_notes(member.queueing))
        elif own is not None:
            notes[rule.id] = tuple(rule_notes(rule, own.decision, found, priority))
    return ExplainedRequest(
        request,
        path,
        tuple(others),
        explanation.reasons.tier,
        members,
        verdict,
        response_to(request, verdict, now_ns),
        explanation.priority,
        notes,
    )


def response_to(request: Request, verdict: Verdict, now_ns: int) -> Response:
    """The response to *request*."""
    answer = answer_of(verdict)
    if verdict.allowed:
        return Response(None, tuple(headers_for(answer, now_ns=now_ns)))
    full = response_for(answer, now_ns=now_ns, accept=request.header("accept"))
    return Response(full.status, full.headers, full.body)


def as_if_charged(verdict: Verdict, now_ns: int) -> Verdict:
    """*verdict* of a peek with the figures after a charge."""
    is_charged = verdict.allowed and not verdict.is_replay
    decisions = [
        _charged(decision, one.cost, now_ns)
        if decision is not None and (decision.allowed if one.rule.mode == "shadow" else is_charged)
        else decision
        for one, decision in zip(verdict.plan.rules, verdict.decisions, strict=True)
    ]
    return verdict.with_decisions(decisions, allowed=verdict.allowed)


def _charged(decision: Decision, cost: int, now_ns: int) -> Decision:
    return combine([_charged_part(part, cost, now_ns) for part in decision.limits])


def _charged_part(part: Decision, cost: int, now_ns: int) -> Decision:
    limit = part.limit
    amount = 1 if isinstance(limit, Concurrency) else cost
    if not amount:
        return part
    delay_ns = _delay(part)
    return Decision(
        part.key,
        limit,
        allowed=part.allowed,
        remaining=max(part.remaining - amount, 0),  # a queue accepts more than it has places
        retry_after_ns=part.retry_after_ns,
        reset_after_ns=_reset_after(part, amount, now_ns),
        source=part.source,
        delay_ns=delay_ns,
        place_ns=now_ns + delay_ns if delay_ns else 0,
    )


def _delay(part: Decision) -> int:
    """The wait in the queue: until all that is queued now is served."""
    is_queue = isinstance(part.limit, LeakyQueue) and part.allowed
    return part.delay_ns or part.reset_after_ns if is_queue else 0


def _reset_after(part: Decision, amount: int, now_ns: int) -> int:
    """The reset time of the counter of *part* after a charge of *amount*.

    A token bucket or queue takes that much longer; a window lasts as long as its latest charge, and
    slots as long as their latest lease.
    """
    limit, before_ns = part.limit, part.reset_after_ns
    if isinstance(limit, Concurrency):
        return max(before_ns, limit.ttl_ns)
    algorithm = algorithm_for(limit)
    own_ns = algorithm.fresh_in(algorithm.charge(None, amount, now_ns), now_ns)
    adds_up = isinstance(limit, PacedLimit | LeakyQueue)
    return before_ns + own_ns if adds_up else max(before_ns, own_ns)


# Notes about a rule in words.


def rule_notes(rule: Rule, decision: Decision, found: Found, priority: Priority) -> Notes:
    """Notes about *rule* besides its limits: a label and a text each."""
    yield from _delays(decision)
    written = rule.limits_for(found["tier"])
    for limit in written:
        if isinstance(limit, Concurrency):
            yield from _slots(rule, limit, found, priority)
    if rule.floor is not None:
        yield "floor", f"pressure may lower these limits to {percent(rule.floor)}"


def queue_notes(queueing: Queueing) -> Notes:
    """Notes about the queue of a rule with `fair`."""
    fair, priority = queueing.rule.declared.fair, queueing.priority
    if fair is None:
        return
    yield "turns", f"{_budget(fair)}, in each process"
    yield "weight", f"{queueing.weight}, relative to the other waiting requests"
    waits = f"behind at most {fair.queue} of the same key, at most {duration(fair.max_wait_ns)}"
    if priority == "sheddable":
        waits = "never, because it is sheddable: denied without a free slot"
    elif not fair.queue or not fair.max_wait_ns:
        waits = "never: denied without a free slot"
    yield "waits", waits
    if fair.reserve:
        slots = fair.slots if isinstance(fair.slots, int) else None
        yield "ceiling", _ceiling(slots, fair.reserve, priority)


def percent(share: Fraction | int) -> str:
    """*share* as a percentage."""
    return f"{float(share) * 100:g}%"


def _delays(decision: Decision) -> Notes:
    for part in decision.limits:
        if isinstance(part.limit, LeakyQueue) and part.allowed:
            wait = f"it waits {duration(part.delay_ns)} in the queue" if part.delay_ns else "none"
            most = duration(part.limit.patience_ns)
            yield "delay", f"{wait}, at most {most}" if part.limit.patience_ns else wait


def _slots(rule: Rule, limit: Concurrency, found: Found, priority: Priority) -> Notes:
    if limit.shares:
        part = priority if rule.share_by == BY_PRIORITY else found.get(rule.share_by or "")
        own = dict(limit.shares).get(part or "")
        idle = "; idle ones may be borrowed" if limit.lends else ""
        if own is None:
            free = limit.limit - sum(slots for _, slots in limit.shares)
            yield "share", f"none by {rule.share_by}: {free} slots are shared by all{idle}"
        else:
            yield "share", f"{own} of {limit.limit} slots are guaranteed to {part}{idle}"
    if rule.reserve:
        guaranteed = sum(slots for _, slots in limit.shares)
        yield "ceiling", _ceiling(limit.limit, rule.reserve, priority, guaranteed)


def _ceiling(
    slots: int | None,
    reserve: Mapping[Priority, Fraction],
    priority: Priority,
    guaranteed: int = 0,
) -> str:
    kept = " and ".join(f"{percent(share)} for {name} requests" for name, share in reserve.items())
    if slots is None:
        return f"its class is {priority}; {kept} are reserved"
    most = max(ceiling(slots, reserve, priority), guaranteed)
    return f"{most} of {slots} slots for class {priority}; {kept} are reserved"


def _budget(fair: Fair) -> str:
    moving = fair.slots
    if isinstance(moving, AdaptiveSlots):
        return f"{moving.least} to {moving.most} at the same time, adjusted by {moving.algorithm}"
    if fair.rate is not None:
        each = "second" if fair.rate.denominator == 1 else f"{fair.rate.denominator} seconds"
        return f"{fair.rate.numerator} per {each}"
    return f"{fair.slots} at the same time"
