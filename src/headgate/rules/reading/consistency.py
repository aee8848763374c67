"""Checks beyond shape: a rule that is well formed, and still not what its author can have meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.limits import Concurrency, LeakyQueue
from headgate.limits.accuracy import LEAST_CAP
from headgate.rules.reading.candidates import check_candidate
from headgate.rules.reading.costs import requests_for
from headgate.rules.reading.soft_consistency import check_soft
from headgate.rules.reading.tree import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.limits import Limit
    from headgate.rules.model import After, Identity, Rule, Source, Values
    from headgate.rules.reading.fields import Fields
    from headgate.rules.reading.findings import Spot


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
        rates = [_largest(limit) for limit in limits if not isinstance(limit, Concurrency)]
        if not rates:
            continue  # a request takes one slot, whatever it costs
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
    """Whether there is anything to take in advance."""
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


def _indivisible(limits: Sequence[Limit]) -> str:
    """What is said of *limits* that the store alone keeps."""
    has_slots = any(isinstance(limit, Concurrency) for limit in limits)
    has_turns = any(isinstance(limit, LeakyQueue) for limit in limits)
    kinds = " and ".join([*(["slots"] if has_slots else []), *(["turns"] if has_turns else [])])
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
