"""The filters of the chain, in their order, for the rules of a policy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.gateway.envoy.buckets import plain_headers
from headgate.gateway.envoy.envoy_limits import (
    backstop_bucket,
    backstop_filters,
    counts_of,
    limiter,
    local_filters,
    quota_backstop_filters,
    quota_filter,
)
from headgate.gateway.envoy.exact import exact_filters
from headgate.gateway.envoy.keys import groups_of, uncountable_in
from headgate.gateway.envoy.llm import read_filters, usage_filters
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


# The way each rule is decided: as the rule says if Envoy can do that, otherwise by the service.


def decided(policy: Policy, settings: GatewaySettings) -> tuple[Decided, ...]:
    """The way each rule of *policy* is decided, in their order.

    Rules that are off and fair queues, which only apps have, are left out.
    """
    counted = [rule for rule in policy.rules if rule.mode != "off" and rule.fair is None]
    return tuple(_decided(rule, policy, settings) for rule in counted)


def ignored_parts(policy: Policy) -> tuple[str, ...]:
    """The parts of *policy* that no gateway enforces, in sentences."""
    found = []
    for rule in policy.rules:
        if rule.mode == "off":
            continue
        if rule.fair is not None:
            found.append(f"rule {rule.id}: fair queues work only in apps; the gateway ignores it")
        elif _has(rule, LeakyQueue):
            found.append(f"rule {rule.id}: the gateway delays nothing; the queue only counts")
    return tuple(found)


def has_backstop(rule: Rule, policy: Policy, settings: GatewaySettings) -> bool:
    """True if Envoy limits callers of *rule* while the service does not answer.

    *rule* is decided exactly. It must fail open, and Envoy must see what it matches and counts by.
    """
    is_closed = rule.on_failure.mode == "fail_closed"
    if rule.mode != "enforce" or is_closed or not least_cost(rule):
        return False
    if rule.cost.llm is not None:  # a call may cost nothing in the end
        return False
    if _has(rule, Concurrency) or _has_constant(rule):
        return False
    return not _unknowable(rule, policy, settings)


def least_cost(rule: Rule) -> int:
    """The lowest cost of a request under *rule*."""
    by_header = [] if rule.cost.header is None else [rule.cost.least]
    return min([rule.cost.default, *by_header, *(one.cost for one in rule.cost.endpoints)])


def _decided(rule: Rule, policy: Policy, settings: GatewaySettings) -> Decided:
    wanted = rule.decide or settings.decide
    if wanted == "exact":
        return Decided(rule.id, wanted, wanted)
    why = next(_obstacles(rule, policy), "") or _unknowable(rule, policy, settings)
    return Decided(rule.id, "exact" if why else wanted, wanted, why)


def _obstacles(rule: Rule, policy: Policy) -> Iterator[str]:
    cost = rule.cost
    if rule.mode == "shadow":
        yield "it is in shadow mode, which only the service reports"
    yield from _kinds(rule)
    if rule.floor is not None:
        yield "its limits are lowered under pressure, which Envoy does not know"
    if _has(rule, Concurrency):
        yield "it limits concurrency, which Envoy does not count"
    if rule.idempotency is not None:
        yield "Envoy cannot recognise repeated requests"
    if cost.llm is not None:
        yield "its cost depends on the bodies of requests and responses"
    if cost.after is not None:
        yield "its cost is known only afterwards"
    if cost.header is not None or cost.endpoints:
        yield "its cost varies"
    if cost.default == 0:
        yield "its cost is 0, so there is nothing to count"
    if any(one.rule == rule.id for one in policy.overrides):
        yield "some of its counters have overrides, which Envoy does not know"


def _kinds(rule: Rule) -> Iterator[str]:
    if _has(rule, LeakyQueue):
        yield "it is a queue, which only the service keeps"
    if _has_constant(rule):
        yield "it has a limit without a counter, which only the service knows"


def _has_constant(rule: Rule) -> bool:
    """Return True if one of the limits of *rule* has no counter."""
    return _has(rule, DenyAll) or _has(rule, Unlimited)


def _has(rule: Rule, kind: type[Limit]) -> bool:
    """True if one of the limits of *rule* is of that *kind*."""
    return any(isinstance(limit, kind) for row in rule.limits.values() for limit in row)


def _unknowable(rule: Rule, policy: Policy, settings: GatewaySettings) -> str:
    has_addresses = not any(one.is_unix for one in settings.listen)
    return unseen_in(rule.match, policy.identity) or uncountable_in(
        rule, policy.identity, has_addresses=has_addresses
    )


# The backstop: limits while the service does not answer, in one filter for rules that fail open.
#
# A flood may slow the service down until its decisions come too late; rules that fail open would
# then allow the flood. So each gateway also limits each caller to the whole limit, in a filter
# behind those that call the service. While the service answers, the backstop denies almost nothing.
#
# It is one filter for all rules, because a change of the list of filters replaces the listener. So
# its denials do not name a rule.


NAME: Final = "backstop"


def open_backstop(rules: Sequence[Rule], policy: Policy) -> tuple[HttpFilter, ...]:
    """The filter that limits callers of *rules*, which fail open; none without rules."""
    rate_limits: list[Json] = []
    descriptors: list[Json] = []
    for rule in rules:
        rows, cost = _buckets(rule, policy), least_cost(rule)
        found = counts_of(rows, rule, policy.identity, cost, has_lumps=False)
        rate_limits += found[0]
        descriptors += found[1]
    if not rate_limits:
        return ()
    config = limiter(rate_limits, descriptors, headers=plain_headers(), has_retry_after=True)
    return (HttpFilter(NAME, config),)


def _buckets(rule: Rule, policy: Policy) -> Iterator[tuple[Group, Json, None]]:
    """The bucket of each limit of *rule*, with its group under a name of its own."""
    conditions = conditions_of(rule.match, policy.identity)
    for group in groups_of(rule, policy.identity):
        for place, limit in enumerate(group.limits):
            name = f"{rule.id}/{place + 1}/{group.name}"
            own = replace(group, name=name, conditions=(*conditions, *group.conditions))
            yield own, backstop_bucket(rule, policy, limit), None


def http_filters(policy: Policy, settings: GatewaySettings) -> tuple[HttpFilter, ...]:
    """All filters that limit requests: local limits, quotas, then those that call the service.

    The filters that read bodies are around those that call the service. Quotas and the service are
    followed by the backstops of their rules. A request that a filter
    denies does not reach the next one.
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
        elif rule.on_failure.mode == "local":
            backstops += backstop_filters(rule, policy, least_cost(rule))
        else:
            opening.append(rule)
    backstops += open_backstop(opening, policy)
    exact = [rules[one.rule] for one in how if one.decide == "exact"]
    return (
        *local,
        *quota,
        *read_filters(exact, identity),
        *exact_filters(policy, how, settings),
        *usage_filters(exact, identity),
        *backstops,
    )
