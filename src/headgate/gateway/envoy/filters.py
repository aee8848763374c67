"""The filters of the chain, in their order, for the rules of a policy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.gateway.envoy.buckets import untold_headers
from headgate.gateway.envoy.envoy_limits import (
    actions_of,
    backstop_bucket,
    backstop_filters,
    descriptor_of,
    limiter,
    local_filters,
    quota_backstop_filters,
    quota_filter,
)
from headgate.gateway.envoy.exact import exact_filters
from headgate.gateway.envoy.keys import groups_of, uncountable_in, variants_of
from headgate.gateway.envoy.matching import conditions_of, unseen_in
from headgate.gateway.envoy.values import Decided, HttpFilter
from headgate.limits import Concurrency, DenyAll, LeakyQueue, Unlimited

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.config.gateway import GatewaySettings
    from headgate.gateway.envoy.keys import Group
    from headgate.gateway.envoy.values import Json
    from headgate.limits import Limit
    from headgate.policy.model import Policy, Rule


# Which rule is decided how: as it asks for where Envoy can, else by the service, exactly.


def decided(policy: Policy, settings: GatewaySettings) -> tuple[Decided, ...]:
    """How each rule of *policy* that is not off is decided, in their order; but for those by which
    requests take turns, which apps see to."""
    counted = [rule for rule in policy.rules if rule.mode != "off" and rule.fair is None]
    return tuple(_decided(rule, policy, settings) for rule in counted)


def softened(policy: Policy) -> tuple[str, ...]:
    """What rules of *policy* ask for that no gateway does, in sentences."""
    told = []
    for rule in policy.rules:
        if rule.mode == "off":
            continue
        if rule.fair is not None:
            told.append(f"rule {rule.id}: requests take turns in apps only; here it does nothing")
        elif _has(rule, LeakyQueue):
            told.append(f"rule {rule.id}: here nothing is delayed; its queue only counts")
    return tuple(told)


def has_backstop(rule: Rule, policy: Policy, settings: GatewaySettings) -> bool:
    """Whether Envoy keeps callers of *rule*, decided exactly, to its limit without the service: if
    it does not refuse them then, and sees which requests the rule is for, and whose they are."""
    is_closed = rule.on_store_failure == "fail_closed"
    if rule.mode != "enforce" or is_closed or not least_cost(rule):
        return False
    if _has(rule, Concurrency) or _has_constant(rule):
        return False
    return not _unknowable(rule, policy, settings)


def least_cost(rule: Rule) -> int:
    """The least that a request may cost under *rule*."""
    if rule.cost.header is not None:
        return 0
    return min([rule.cost.default, *(one.cost for one in rule.cost.endpoints)])


def _decided(rule: Rule, policy: Policy, settings: GatewaySettings) -> Decided:
    asked = rule.decide or settings.decide
    if asked == "exact":
        return Decided(rule.id, asked, asked)
    why = next(_obstacles(rule, policy), "") or _unknowable(rule, policy, settings)
    return Decided(rule.id, "exact" if why else asked, asked, why)


def _obstacles(rule: Rule, policy: Policy) -> Iterator[str]:
    cost = rule.cost
    if rule.mode == "shadow":
        yield "it is in shadow, and only the service tells what it would have decided"
    yield from _kinds(rule)
    if rule.floor is not None:
        yield "its limits are lowered under pressure, of which Envoy does not know"
    if _has(rule, Concurrency):
        yield "it limits what goes on at the same time, which Envoy does not count"
    if rule.idempotency is not None:
        yield "Envoy cannot tell requests that are repeated"
    if cost.after is not None:
        yield "what a request costs is known only afterwards"
    if cost.header is not None or cost.endpoints:
        yield "what a request costs varies"
    if cost.default == 0:
        yield "a request costs nothing, so there is nothing to count"
    if any(one.rule == rule.id for one in policy.overrides):
        yield "some of its counters are overridden, of which Envoy does not know"


def _kinds(rule: Rule) -> Iterator[str]:
    if _has(rule, LeakyQueue):
        yield "it is a queue, which only the service keeps"
    if _has_constant(rule):
        yield "it has a limit without a counter, which only the service knows"


def _has_constant(rule: Rule) -> bool:
    """Return True if one of the limits of *rule* has no counter."""
    return _has(rule, DenyAll) or _has(rule, Unlimited)


def _has(rule: Rule, kind: type[Limit]) -> bool:
    """Whether one of the limits of *rule* is of that *kind*."""
    return any(isinstance(limit, kind) for row in rule.limits.values() for limit in row)


def _unknowable(rule: Rule, policy: Policy, settings: GatewaySettings) -> str:
    has_addresses = not any(one.is_unix for one in settings.listen)
    return unseen_in(rule.match, policy.identity) or uncountable_in(
        rule, policy.identity, has_addresses=has_addresses
    )


# What still limits when the service does not answer: one filter for all rules that fail open.
#
# A flood may slow the service down until decisions come too late, and then it would open the rules
# that fail open, as it does when the service is gone. So each caller is kept to the whole limit in
# each gateway, behind the filters that ask: those see to it that hardly anything is refused here
# while they are answered.
#
# It is one filter, since which filters there are cannot be changed without replacing the listener.
# So a refusal does not tell by which rule. Rules under `local` have a filter each, see `local`.


NAME: Final = "backstop"


def open_backstop(rules: Sequence[Rule], policy: Policy) -> tuple[HttpFilter, ...]:
    """The filter that keeps callers of *rules*, which fail open, to their limits; none without
    rules."""
    asked: list[Json] = []
    kept: list[Json] = []
    for rule in rules:
        for group, limit in _limits(rule, policy):
            _add(rule, policy, group, limit, asked, kept)
    if not asked:
        return ()
    config = limiter(asked, kept, headers=untold_headers(), tells_wait=True)
    return (HttpFilter(NAME, config),)


def _limits(rule: Rule, policy: Policy) -> Iterator[tuple[Group, Limit]]:
    """The limits of *rule*, each with whom it is for, under a name of its own."""
    conditions = conditions_of(rule.match, policy.identity)
    for group in groups_of(rule, policy.identity):
        for place, limit in enumerate(group.limits):
            name = f"{rule.id}/{place + 1}/{group.name}"
            yield replace(group, name=name, conditions=(*conditions, *group.conditions)), limit


def _add(
    rule: Rule, policy: Policy, group: Group, limit: Limit, asked: list[Json], kept: list[Json]
) -> None:
    bucket = backstop_bucket(rule, policy, limit)
    shapes = set()
    for variant in variants_of(rule, policy.identity, joins_lines=False):
        if variant.is_lump:  # the service tells them apart
            continue
        actions = list(actions_of(group, variant, policy.identity))
        asked.append({"actions": actions, "hits_addend": {"number": least_cost(rule)}})
        keys = tuple(one.key for one in variant.entries)
        if keys not in shapes:
            shapes.add(keys)
            kept.append(descriptor_of(group, keys, bucket))


def http_filters(policy: Policy, settings: GatewaySettings) -> tuple[HttpFilter, ...]:
    """All filters that limit requests: local ones, quotas, then those that ask the service; behind
    the latter two the backstops of their rules.

    What a filter refuses no later one hears of.
    """
    rules = {rule.id: rule for rule in policy.rules}
    how = decided(policy, settings)
    identity, gateways = policy.identity, settings.gateway_count
    local: list[HttpFilter] = []
    quota: list[HttpFilter] = []
    backstops: list[HttpFilter] = []
    opening: list[Rule] = []
    for one in how:
        rule = rules[one.rule]
        if one.decide == "local":
            local += local_filters(rule, identity, gateways)
        elif one.decide == "quota":
            quota.append(quota_filter(rule, identity, gateways))
            quota += quota_backstop_filters(rule, identity)
        elif not has_backstop(rule, policy, settings):
            continue
        elif rule.on_store_failure == "local":
            backstops += backstop_filters(rule, policy, least_cost(rule))
        else:
            opening.append(rule)
    backstops += open_backstop(opening, policy)
    return (*local, *quota, *exact_filters(policy, how, settings), *backstops)
