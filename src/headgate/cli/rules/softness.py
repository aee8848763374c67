"""What a rule says of delays, slots, turns and pressure, of one request, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.cli.terminal import duration
from headgate.limits import Concurrency, LeakyQueue
from headgate.policy.model import BY_PRIORITY, ceiling

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from fractions import Fraction

    from headgate.decision import Decision
    from headgate.engine.plan import Queueing
    from headgate.engine.rule import Priority
    from headgate.policy.identity import Found
    from headgate.policy.model import Fair, Rule

    Lines = Iterator[tuple[str, str]]


def softly(rule: Rule, decision: Decision, found: Found, priority: Priority) -> Lines:
    """What *rule*, which has limits, says besides them: the name of each thing, and the thing."""
    yield from _delays(decision)
    written = rule.limits_for(found["tier"])
    for limit in written:
        if isinstance(limit, Concurrency):
            yield from _slots(rule, limit, found, priority)
    if rule.floor is not None:
        told = f"under pressure its limits are lowered, to no less than {percent(rule.floor)}"
        yield "floor", f"{told}; these are without"


def turns(queueing: Queueing) -> Lines:
    """How a request takes turns under a rule with `fair`."""
    fair, priority = queueing.rule.declared.fair, queueing.priority
    if fair is None:
        return
    yield "turns", f"{_budget(fair)}, in each process by itself"
    yield "weight", f"{queueing.weight}, against those of all others who wait"
    waits = f"behind at most {fair.queue} of its own, for {duration(fair.max_wait_ns)} at most"
    if priority == "sheddable":
        waits = "never, as it is sheddable: who has no turn is refused"
    elif not fair.queue or not fair.max_wait_ns:
        waits = "never: who has no turn is refused"
    yield "waits", waits
    if fair.reserve:
        slots = fair.slots if fair.adaptive is None else None
        yield "ceiling", _ceiling(slots, fair.reserve, priority)


def percent(share: Fraction) -> str:
    """*share* as people write it."""
    return f"{float(share) * 100:g}%"


def _delays(decision: Decision) -> Lines:
    for part in decision.limits:
        if isinstance(part.limit, LeakyQueue) and part.allowed:
            wait = f"it waits {duration(part.delay_ns)} for its turn" if part.delay_ns else "none"
            most = duration(part.limit.patience_ns)
            yield "delay", f"{wait}, {most} at most" if part.limit.patience_ns else wait


def _slots(rule: Rule, limit: Concurrency, found: Found, priority: Priority) -> Lines:
    if limit.shares:
        part = priority if rule.share_by == BY_PRIORITY else found.get(rule.share_by or "")
        own = dict(limit.shares).get(part or "")
        idle = "; idle ones are lent" if limit.lends else ""
        if own is None:
            free = limit.limit - sum(slots for _, slots in limit.shares)
            yield "share", f"none by {rule.share_by}: {free} slots are guaranteed to nobody{idle}"
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
        return f"it is {priority}, and of the slots are kept {kept}"
    most = max(ceiling(slots, reserve, priority), guaranteed)
    return f"{most} of {slots} slots, as it is {priority}, and kept are {kept}"


def _budget(fair: Fair) -> str:
    moving = fair.adaptive
    if moving is not None:
        return f"{moving.least} to {moving.most} at the same time, moved by {moving.algorithm}"
    if fair.rate is not None:
        each = "second" if fair.rate.denominator == 1 else f"{fair.rate.denominator} seconds"
        return f"{fair.rate.numerator} per {each}"
    return f"{fair.slots} at the same time"
