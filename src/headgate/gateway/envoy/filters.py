"""The filters of the chain, in their order, for the rules of a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.gateway.envoy.backstops import open_backstop
from headgate.gateway.envoy.deciding import decided, has_backstop, least_cost
from headgate.gateway.envoy.exact import exact_filters
from headgate.gateway.envoy.local import backstop_filters, local_filters, quota_backstop_filters
from headgate.gateway.envoy.quota import quota_filter

if TYPE_CHECKING:
    from headgate.gateway.envoy.values import HttpFilter
    from headgate.gateway.settings import GatewaySettings
    from headgate.rules.model import Policy, Rule


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
