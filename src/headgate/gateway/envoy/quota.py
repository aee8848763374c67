"""Limits of which the service assigns Envoy its share: `rate_limit_quota`.

A bucket has the rule's id and what its key needs: whether the rule is for a request, Envoy sees.
Before the first assignment everything passes, as far as the rule's backstop lets it. When an
assignment has run out because the service is gone, the rule's `on_store_failure` decides:
`fail_closed` lets nothing pass, `local` the part of one gateway, beginning with what was left of
the share, `fail_open` what the backstop lets pass. Callers who are new then are as before a first
assignment, whatever the rule says: Envoy has the same behaviour for both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.gateway.envoy.buckets import share_of
from headgate.gateway.envoy.keys import groups_of, variants_of
from headgate.gateway.envoy.matching import TIER, conditions_of, header_input, predicate_of
from headgate.gateway.envoy.refusals import quota_refusal
from headgate.gateway.envoy.service import service
from headgate.gateway.envoy.values import HttpFilter, extension, typed
from headgate.rules.envoy.gateway import GATEWAY_DOMAIN, RULE

if TYPE_CHECKING:
    from headgate.gateway.envoy.keys import Entry, Group, Variant
    from headgate.gateway.envoy.values import Json
    from headgate.rules.model import Identity, Rule

_QUOTA: Final = "envoy.extensions.filters.http.rate_limit_quota.v3"
_SOURCE_IP: Final = "envoy.extensions.matching.common_inputs.network.v3.SourceIPInput"
_UNTIL_IT_IS_BACK: Final = "86400s"


def quota_filter(rule: Rule, identity: Identity, gateways: int) -> HttpFilter:
    """The filter that enforces the shares of *rule*."""
    matchers: list[Json] = []
    otherwise: Json | None = None
    for group in groups_of(rule, identity):
        for variant in variants_of(rule, identity, joins_lines=True):
            conditions = conditions_of(rule.match, identity)
            conditions += group.conditions + variant.conditions
            bucket = {"action": _bucket(rule, identity, gateways, group, variant)}
            if conditions:
                matchers.append({"predicate": predicate_of(conditions), "on_match": bucket})
            else:
                otherwise = bucket
    tree: Json = {"matcher_list": {"matchers": matchers}} if matchers else {}
    if otherwise is not None:
        tree["on_no_match"] = otherwise
    return HttpFilter(
        f"quota-{rule.id}",
        typed(
            f"{_QUOTA}.RateLimitQuotaFilterConfig",
            domain=GATEWAY_DOMAIN,
            rlqs_server=service(),
            bucket_matchers=tree,
        ),
    )


def _bucket(rule: Rule, identity: Identity, gateways: int, group: Group, variant: Variant) -> Json:
    ids: Json = {RULE: {"string_value": rule.id}}
    ids |= {entry.key: _value(entry) for entry in variant.entries}
    if group.conditions:
        ids[identity.sources[TIER].header or TIER] = {"string_value": group.name}
    limit = min(group.limits, key=lambda one: share_of(one, 1, 1).rate)
    settings: Json = {
        "bucket_id_builder": {"bucket_id_builder": ids},
        "reporting_interval": "5s",
        "no_assignment_behavior": {"fallback_rate_limit": {"blanket_rule": "ALLOW_ALL"}},
        "deny_response_settings": quota_refusal(rule, limit, group.limits.index(limit) + 1),
    }
    if rule.on_store_failure != "fail_open":
        share = share_of(limit, gateways * max(1, rule.cost.default), 1)
        fallback: Json = {"blanket_rule": "DENY_ALL"}
        if rule.on_store_failure == "local":
            fallback = {"token_bucket": share.in_whole_seconds()}
        settings["expired_assignment_behavior"] = {
            "fallback_rate_limit": fallback,
            "expired_assignment_behavior_timeout": _UNTIL_IT_IS_BACK,
        }
    return extension(rule.id, f"{_QUOTA}.RateLimitQuotaBucketSettings", **settings)


def _value(entry: Entry) -> Json:
    if entry.value is not None:
        return {"string_value": entry.value}
    if entry.header is not None:
        return {"custom_value": header_input(entry.header)}
    return {"custom_value": extension(entry.key, _SOURCE_IP)}
