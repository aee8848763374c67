"""Checks beyond shape: a rule that is well formed, and still not what its author can have meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.limits import Concurrency, ConstantLimit, LeakyQueue, scaled
from headgate.limits.accuracy import LEAST_CAP
from headgate.policy.loader.diagnostics import Table, shown
from headgate.policy.loader.matches import requests_for
from headgate.policy.loader.overload import OTHERS
from headgate.policy.model import BY_PRIORITY, PRIORITIES, ceiling

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
    from fractions import Fraction

    from headgate.engine.rule import Priority
    from headgate.limits import Limit
    from headgate.policy.loader.diagnostics import Spot
    from headgate.policy.loader.rules import Read
    from headgate.policy.loader.scalars import Fields
    from headgate.policy.model import (
        After,
        Fair,
        Identity,
        Pressure,
        PriorityClass,
        Rule,
        Source,
        Values,
    )


# Checks beyond shape of rules that delay, have slots or take turns, and of a policy's pressure.


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


# Checks of candidates: rules in shadow that are tried beside the rule that they may replace.


_FIELD: Final = "candidate_of"


def check_candidate(rule: Rule, fields: Fields) -> None:
    """Note what keeps *rule* from being tried, whatever the other rules are."""
    if rule.candidate_of is None:
        return
    if rule.mode == "enforce":
        told = "a candidate decides nothing, and this rule is in mode enforce"
        hint = f"expected mode: shadow with {_FIELD}; adopt it to have it decide"
        fields.spot_of("mode").wrong(told, hint=hint)
    if rule.candidate_of == rule.id:
        told = "the rule names itself"
        fields[_FIELD].wrong(told, hint="expected the id of the rule that it may replace")
    if rule.fair is not None:
        told = "turns cannot be tried: in shadow nobody takes any, so there is nothing to compare"
        fields["fair"].wrong(told, hint="expected limits, or a rule that is no candidate")


def check_candidates(read: Sequence[Read]) -> None:
    """Note which candidates do not stand beside one rule that decides, each beside its own."""
    rules = {one.rule.id: one.rule for one in read if one.rule is not None}
    unread = {one.id for one in read if one.rule is None}
    first: dict[str, str] = {}
    for one in read:
        rule = one.rule
        if rule is None or rule.candidate_of in (None, rule.id):
            continue
        live = rules.get(rule.candidate_of or "")
        if live is None:
            if rule.candidate_of not in unread:  # what is wrong with it is told of already
                _refuse_unknown(_spot(one), rule, rules.values())
        else:
            _check_pair(one, rule, live, first)


def _refuse_unknown(spot: Spot, rule: Rule, rules: Iterable[Rule]) -> None:
    known = [each.id for each in rules if each.candidate_of is None and each is not rule]
    told = f"there is no rule {shown(rule.candidate_of or '')} that it could be a candidate of"
    if known:
        spot.not_among(rule.candidate_of or "", known, told)
    else:
        spot.wrong(told, hint="expected the id of a rule of this policy")


def _check_pair(one: Read, rule: Rule, live: Rule, first: dict[str, str]) -> None:
    spot = _spot(one)
    if live.candidate_of is not None:
        told = f"the rule {shown(live.id)} is a candidate itself, of {shown(live.candidate_of)}"
        spot.wrong(told, hint="expected a rule that is none")
        return
    other = first.setdefault(live.id, rule.id)
    if other != rule.id:
        told = f"the rule {shown(live.id)} has a candidate already, {shown(other)}"
        spot.wrong(told, hint="expected one for each rule; compare others one after the other")
    elif live.fair is not None:
        told = f"requests under {shown(live.id)} take turns: there is nothing to compare with"
        spot.warn(told)
    elif live.mode == "off" and rule.mode != "off":
        spot.warn(f"the rule {shown(live.id)} is off: there is nothing to compare with")
    elif _content(live) == _content(rule):
        spot.warn(f"it is as the rule {shown(live.id)} is: there is nothing to find out")


def _content(rule: Rule) -> Mapping[str, object]:
    aside = ("id", "mode", "description", _FIELD)
    return {name: getattr(rule, name) for name in rule.__slots__ if name not in aside}


def _spot(one: Read) -> Spot:
    """Where it says what it is a candidate of; of a rule that was known before there is the whole
    rule only."""
    node = one.spot.node
    return (
        one.spot.child(_FIELD) if isinstance(node, Table) and _FIELD in node.entries else one.spot
    )


def check_rule(rule: Rule, fields: Fields, identity: Identity) -> None:
    """Note what is impossible (an error) or pointless (a warning) in a rule that was read."""
    _check_cost(rule, fields)
    _check_tiers(rule, fields, identity)
    _check_accuracy(rule, fields)
    _check_regions(rule, fields)
    check_soft(rule, fields, identity)
    check_candidate(rule, fields)
    for contradiction in _contradictions(rule, identity):
        fields["match"].warn(f"no request can match: {contradiction}")
    if rule.mode == "off":
        fields["mode"].warn("the rule is switched off")


def _check_cost(rule: Rule, fields: Fields) -> None:
    spot = fields.spot_of("cost")
    cost = rule.cost
    fixed = [("a request", cost.default)]
    fixed += [(f"a request to {shown(one.endpoint)}", one.cost) for one in cost.endpoints]
    dearest = max(amount for _, amount in fixed)
    for tier, limits in rule.limits.items():
        uncounted = Concurrency | ConstantLimit  # the cost of a request does not matter to them
        rates = [_largest(limit) for limit in limits if not isinstance(limit, uncounted)]
        if not rates:
            continue
        quota = min(rates)
        who = "" if tier is None else f" in the tier {shown(tier)}"
        if dearest > quota:
            _refuse_dear(spot, fixed, quota, who)
        if cost.most is not None and cost.most > quota:
            spot.warn(f"costs up to {cost.most} are possible, above the limit of {quota}{who}")
    if not dearest and cost.header is None:
        spot.warn(_told_of_nothing(rule))
    _check_cost_methods(rule, spot)
    if cost.after is not None:
        _check_after(rule, spot, cost.after, min(amount for _, amount in fixed))


def _told_of_nothing(rule: Rule) -> str:
    """What it means that no request costs anything."""
    if rule.fair is not None:
        return "it has no effect: a request takes a turn of 1 at the least"
    if all(isinstance(limit, Concurrency) for many in rule.limits.values() for limit in many):
        return "it has no effect: a request takes one slot, whatever it costs"
    return "nothing costs anything: the rule never refuses"


def _largest(limit: Limit) -> int:
    """The most that one request may cost; a queue takes more than it lets wait."""
    return limit.largest_cost if isinstance(limit, LeakyQueue) else limit.quota


def _check_after(rule: Rule, spot: Spot, after: After, least: int) -> None:
    """Whether anything can be charged afterwards; *least* is what it takes to enter."""
    limits = [limit for many in rule.limits.values() for limit in many]
    if limits and all(isinstance(limit, Concurrency) for limit in limits):
        told = "nothing can be charged afterwards: the rule has slots only, which are given back"
        spot.wrong(told, hint="expected a limit with a rate, such as 1000/minute, beside them")
    if after.most is not None and after.most <= least:
        told = f"nothing is ever charged afterwards: at most {after.most}, and {least} to enter"
        spot.warn(told, hint="what is charged is what it has cost beyond what it took to enter")


def _refuse_dear(spot: Spot, fixed: Sequence[tuple[str, int]], quota: int, who: str) -> None:
    for what, amount in fixed:
        if amount > quota:
            told = f"{what} costs {amount}, above the limit of {quota}{who}: it can never pass"
            spot.wrong(told, hint=f"expected at most {quota}, or a larger limit")


def _check_cost_methods(rule: Rule, spot: Spot) -> None:
    methods = requests_for(*rule.match.methods)
    for one in rule.cost.endpoints:
        if one.method and methods and methods.isdisjoint(requests_for(one.method)):
            spot.warn(f"the rule is not for {one.method}: {shown(one.endpoint)} is never looked at")


def _check_accuracy(rule: Rule, fields: Fields) -> None:
    """Warn if there is nothing to lease, or if a split makes a limit coarse."""
    limits = [limit for many in rule.limits.values() for limit in many]
    rates = [limit for limit in limits if limit.is_divisible]
    if limits and not rates and "accuracy" in fields:
        fields["accuracy"].warn(f"it has no effect: {_indivisible(limits)} exactly")
    if not rates:
        return
    largest = max(limit.quota for limit in rates)
    cap = rule.accuracy.cap(largest)
    if cap is not None and cap < LEAST_CAP:
        told = f"of the limit of {largest} that is {cap}: too little to take in advance"
        fields["accuracy"].warn(told, hint="it is kept exactly; allow more, or leave it out")
    if rule.accuracy.split > 1:
        _check_split(rule.accuracy.split, min(limit.quota for limit in rates), fields)


def _check_split(parts: int, smallest: int, fields: Fields) -> None:
    """Say what a split means for the *smallest* limit of a rule."""
    hint = "use max_overshoot or batch instead unless one key is too hot for one shard"
    if smallest < parts:
        told = f"a limit of {smallest} is not split: it has fewer units than the {parts} parts"
        fields["accuracy"].warn(told, hint=hint)
        return
    told = (
        f"each request sees one of {parts} counters with {smallest // parts} of {smallest} units: "
        "it may be denied while the others have units, a larger cost never fits, and remaining "
        "is that of the one counter"
    )
    fields["accuracy"].warn(told, hint=hint)


def _indivisible(limits: Sequence[Limit]) -> str:
    """What is said of *limits* that the store alone keeps."""
    has_slots = any(isinstance(limit, Concurrency) for limit in limits)
    has_turns = any(isinstance(limit, LeakyQueue) for limit in limits)
    kinds = " and ".join([*(["slots"] if has_slots else []), *(["turns"] if has_turns else [])])
    if not kinds:
        return "limits without a counter are always kept"
    return f"{kinds} are always given"


def _check_regions(rule: Rule, fields: Fields) -> None:
    """Whether there is anything that other regions could be told."""
    if not rule.across_regions:
        return
    limits = [limit for many in rule.limits.values() for limit in many]
    if not any(limit.is_divisible for limit in limits):
        if limits:
            told = f"{_indivisible(limits)} in each region alone"
            fields["across_regions"].warn(f"it has no effect: {told}")
    elif rule.decide == "local":
        told = "gateways that decide by themselves tell nobody what they let through"
        fields["across_regions"].warn(told, hint="expected decide: exact or quota with it")


def _check_tiers(rule: Rule, fields: Fields, identity: Identity) -> None:
    """Every tier that the rule is for should have a limit, and the other way round."""
    if rule.fair is not None or (None in rule.limits and len(rule.limits) == 1):
        return
    tiers = dict.fromkeys(rule.match.tiers)
    unlimited = [tier for tier in tiers if tier not in rule.limits and None not in rule.limits]
    if tiers and len(unlimited) == len(tiers):
        fields["limits"].wrong("there is no limit for any tier that the rule is for")
        return
    if not tiers and None not in rule.limits and not _tiers_of(identity) <= set(rule.limits):
        told = "callers of any other tier, or of none, are not limited"
        fields["limits"].warn(told, hint="add a default")
    for tier in unlimited:
        told = f"the tier {shown(tier)} is in match, and has no limit"
        fields["limits"].warn(told, hint="add it, or a default")
    for named in rule.limits:
        if tiers and named is not None and named not in tiers:
            fields["limits"].warn(f"the rule is not for the tier {shown(named)} in its limits")


def _tiers_of(identity: Identity) -> set[str | None]:
    """All tiers that callers can be of; "" stands for what they make up themselves."""
    tier = identity.sources["tier"]
    made_up = set() if tier.lookup is not None else {""}
    return {tier.default, *tier.values.values(), *made_up}


def _contradictions(rule: Rule, identity: Identity) -> Iterator[str]:
    """Why nothing can match."""
    match = rule.match
    tier = identity.sources["tier"]
    if match.tiers and tier.lookup is not None:
        possible = {*tier.values.values(), tier.default}
        if not possible.intersection(match.tiers):
            yield f"no caller is ever looked up to be {_listed(match.tiers)}"
    wanted = _wanted_of(rule, tier)
    if match.tiers and wanted is not None and not set(wanted) & set(match.tiers):
        yield f"the tier is both {_listed(match.tiers)} and {_listed(wanted)}"
    hosts = dict(match.headers).get("host")
    if hosts and _is_apart(hosts, match.hosts):
        yield f"the host is both {_listed(match.hosts)} and {_listed(hosts)}"


def _wanted_of(rule: Rule, tier: Source) -> Values:
    """What `match` wants of the very thing that the tier is taken from."""
    match = rule.match
    places = (
        (tier.header, match.headers),
        (tier.cookie, match.cookies),
        (tier.attribute, match.attributes),
    )
    for name, conditions in places:
        for wanted, values in conditions:
            if name == wanted:
                return values
    return None


def _is_apart(hosts: Values, wanted: Sequence[str]) -> bool:
    """Whether none of *hosts*, values of a header, is among the *wanted* hosts."""
    if not hosts or not wanted or any(host.startswith("*.") for host in wanted):
        return False
    return not {host.lower().partition(":")[0] for host in hosts} & set(wanted)


def _listed(words: Sequence[str]) -> str:
    return " or ".join(shown(word) for word in words[:5])
