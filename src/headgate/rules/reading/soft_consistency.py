"""Checks beyond shape of rules that delay, have slots or take turns, and of a policy's pressure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.limits import Concurrency, LeakyQueue, scaled
from headgate.rules.reading.tree import shown
from headgate.rules.reading.turns import OTHERS
from headgate.rules.soft import BY_PRIORITY, PRIORITIES, ceiling

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence
    from fractions import Fraction

    from headgate.limits import Limit
    from headgate.rules.model import Identity, Rule
    from headgate.rules.reading.fields import Fields
    from headgate.rules.reading.findings import Spot
    from headgate.rules.reading.rules import Read
    from headgate.rules.soft import Fair, Pressure, Priority, PriorityClass

_POINTLESS_WITH_TURNS: Final = {
    "accuracy": "requests take turns in each process by themselves",
    "across_regions": "requests take turns in each process by themselves",
    "on_store_failure": "requests take turns in each process, and no store is asked",
    "idempotency": "a retry takes its turn as every request does",
    "decide": "requests take turns in apps, and gateways pass them by",
    "adaptive": "it has no limits; slots that move follow what the backend can take",
}


_NOTHING_TO_KEEP: Final = "it has no effect: of one slot none can be kept back"


def check_soft(rule: Rule, fields: Fields, identity: Identity) -> None:
    """Note what is impossible or pointless in a rule that was read."""
    if rule.fair is not None:
        _check_turns(rule, rule.fair, fields)
        _check_weights(rule, rule.fair, fields, identity)
        return
    slots = [limit for limit in _limits(rule) if isinstance(limit, Concurrency)]
    if rule.reserve and not slots:
        told = "is about slots, and the rule has none: a limit with a rate cannot keep any back"
        fields["reserve"].wrong(told, hint="expected concurrency, or no reserve")
    for limit in slots:
        _check_reserve(rule, limit, fields)
    _check_shares(rule, slots, fields, identity)
    _check_delays(rule, fields)
    if rule.floor:
        _check_floor(rule, rule.floor, fields)


def _limits(rule: Rule) -> list[Limit]:
    return [limit for many in rule.limits.values() for limit in many]


def _check_turns(rule: Rule, fair: Fair, fields: Fields) -> None:
    for name in fields.present(tuple(_POINTLESS_WITH_TURNS)):
        fields[name].warn(f"it has no effect: {_POINTLESS_WITH_TURNS[name]}")
    if rule.mode == "shadow":
        fields["mode"].warn("it has no effect but to switch it off: in shadow nobody takes turns")
    if rule.cost.after is not None:
        told = "nothing can be charged afterwards: a request has had its turn when it is over"
        fields["cost"].wrong(told, hint="expected a rule of its own, with a limit")
    if fair.queue == 0 and fair.max_wait_ns and "max_wait" in _inside(fields, "fair"):
        told = "it has no effect: with a queue of 0 nobody waits"
        fields["fair"].child("max_wait").warn(told)
    most = fair.slots if fair.adaptive is None else fair.adaptive.most
    if fair.reserve and most == 1:
        fields["fair"].child("reserve").warn(_NOTHING_TO_KEEP)


def _check_weights(rule: Rule, fair: Fair, fields: Fields, identity: Identity) -> None:
    """Whether there can be callers of the tiers that have a weight."""
    source = identity.sources["tier"]
    possible = {*source.values.values(), source.default}
    for tier in fair.weights:
        if tier is None:
            continue
        if rule.match.tiers and tier not in rule.match.tiers:
            told = f"the rule is not for the tier {shown(tier)} in its weights"
            fields["fair"].child("weights").warn(told)
        elif source.lookup is not None and tier not in possible:
            told = f"no caller is ever looked up to be {shown(tier)}, which has a weight"
            fields["fair"].child("weights").warn(told)


def _inside(fields: Fields, name: str) -> Iterable[str]:
    return [child.name for child in fields[name].children()]


def _check_reserve(rule: Rule, limit: Concurrency, fields: Fields) -> None:
    """Whether what is kept and what is guaranteed fit into the slots together."""
    guaranteed = sum(slots for _, slots in limit.shares)
    left = ceiling(limit.limit, rule.reserve, PRIORITIES[-1])
    if rule.reserve and limit.limit == 1:
        _spot_of(fields, "reserve").warn(_NOTHING_TO_KEEP)
    if rule.reserve and guaranteed > left:
        told = f"the reserve leaves {left} of {limit.limit} slots, and {guaranteed} are guaranteed"
        hint = "shares come first: expected smaller ones, or a smaller reserve"
        _spot_of(fields, "reserve").warn(told, hint=hint)


def _check_shares(
    rule: Rule, slots: Sequence[Concurrency], fields: Fields, identity: Identity
) -> None:
    named = dict.fromkeys(name for limit in slots for name, _ in limit.shares)
    share_by = rule.share_by
    if share_by is None:
        if named:
            told = "missing; expected what shares go by: priority, tier or a name in identity"
            _holder(fields).missing("share_by", told)
        return
    spot = _spot_of(fields, "share_by")
    if not named:
        spot.warn("it has no effect: there are no shares")
        return
    if share_by == BY_PRIORITY:
        for name in named:
            if name not in PRIORITIES:
                spot.not_among(name, PRIORITIES, f"there is no class {shown(name)} for a share")
        return
    if OTHERS in named:
        told = f"{shown(OTHERS)} has a share: callers without one have none, they use what is free"
        spot.wrong(told, hint="leave it out, or call it otherwise if it is a value of theirs")
    source = identity.sources[share_by]
    possible = {*source.values.values(), source.default}
    for name in named if source.lookup is not None else ():
        if name not in possible:
            spot.warn(f"no caller is ever looked up to be {shown(name)}, which has a share")


def _holder(fields: Fields) -> Spot:
    """What the fields about slots stand in."""
    return fields.spot_of("concurrency")


def _spot_of(fields: Fields, name: str) -> Spot:
    return fields[name] if name in fields else fields["concurrency"].child(name)


def _check_delays(rule: Rule, fields: Fields) -> None:
    queues = [limit for limit in _limits(rule) if isinstance(limit, LeakyQueue)]
    if queues and rule.idempotency is not None:
        told = "a retry waits for its turn as every request does"
        fields["idempotency"].warn(f"it has no effect where there is a queue: {told}")
    if queues and rule.decide in ("quota", "local"):
        told = "gateways cannot delay: there the rule is decided by the service, as a meter"
        fields["decide"].warn(f"it has no effect: {told}", hint="expected exact, or nothing")
    for queue in queues:
        if queue.quota == 1 and queue.queue:
            told = f"nobody ever waits: at {queue.rate} a second a turn takes longer than max_wait"
            fields.spot_of("shape").warn(told, hint="expected a longer max_wait, or a queue of 0")


def _check_floor(rule: Rule, floor: Fraction, fields: Fields) -> None:
    """Whether all that can pass otherwise can also where limits are lowered most."""
    dearest = max(rule.cost.default, *(one.cost for one in rule.cost.endpoints), 0)
    for limit in _limits(rule):
        if isinstance(limit, Concurrency | LeakyQueue):
            continue
        left = scaled(limit, floor).quota
        if left < dearest <= limit.quota:
            told = f"at the floor {left} of {limit.quota} are left: a request that costs {dearest}"
            hint = "expected a higher floor, or a limit with a larger burst"
            fields["adaptive"].child("floor").warn(f"{told} cannot pass then", hint=hint)
            return


def check_policy(
    read: Sequence[Read],
    priorities: Sequence[PriorityClass],
    pressure: Pressure | None,
    spots: tuple[Spot | None, Spot | None],
) -> None:
    """Note what of rules, priorities and pressure has no effect without the others.

    *spots* are where `priority` and `pressure` stand, if they do.
    """
    rules = [one.rule for one in read if one.rule is not None]
    priority_at, pressure_at = spots
    is_whole = len(rules) == len(read)
    if pressure_at is not None and is_whole and not any(_yields(rule) for rule in rules):
        told = "it has no effect: no rule has a floor"
        pressure_at.warn(told, hint="expected such as adaptive: {floor: 20%} in a rule")
    if pressure_at is not None and is_whole and _looks_in_vain(pressure, rules):
        told = "it has no effect: it is about requests that wait at gates, and no rule has fair"
        pressure_at.child("queue").warn(told, hint="expected a rule with fair, or no queue")
    if priority_at is not None and priorities and is_whole and not any(map(_asks, rules)):
        told = "no rule goes by it: none has a reserve, turns, or shares by priority"
        hint = "expected such as reserve: {critical: 20%} in a rule, unless it is for a LoadShedder"
        priority_at.warn(told, hint=hint)
    # What is there and could not be read is told of already.
    is_pressed = pressure is not None or pressure_at is not None
    known = {"default", *(one.priority for one in priorities)}
    if priority_at is not None and not priorities:
        known.update(PRIORITIES)
    for one in read:
        if one.rule is not None:
            for told in _unmet(one.rule, known, is_pressed=is_pressed):
                one.spot.warn(told)


def _unmet(rule: Rule, known: Container[str], *, is_pressed: bool) -> Iterator[str]:
    """What *rule* relies on in vain; *known* are the classes of requests that there are."""
    if rule.floor is not None and rule.fair is None and not is_pressed:
        yield "nothing drives its floor: the policy has no pressure at the top level"
    for kind in _reserved(rule):
        if kind not in known:
            yield f"it reserves something for {kind} requests, and priority names none"


def _reserved(rule: Rule) -> Iterable[Priority]:
    return rule.reserve if rule.fair is None else rule.fair.reserve


def _yields(rule: Rule) -> bool:
    return rule.floor is not None and rule.fair is None


def _looks_in_vain(pressure: Pressure | None, rules: Iterable[Rule]) -> bool:
    """Whether *pressure* goes by a queue that nobody waits in."""
    if pressure is None or pressure.queue is None:
        return False
    return all(rule.fair is None for rule in rules)


def _asks(rule: Rule) -> bool:
    return bool(rule.reserve) or rule.fair is not None or rule.share_by == BY_PRIORITY
