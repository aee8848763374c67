"""Limits that Envoy enforces itself: `local_ratelimit`, with a token bucket for each caller.

They differ from limits that the service enforces:

- Each gateway enforces its own share of the limit: see `buckets`.
- Each of several limits is a filter, the shortest period first. A request that a later filter
  denies was counted by those before it. The same holds for several rules.
- Each tier has its own buckets: a caller that changes its tier starts with a full bucket.
- Buckets are full again after a restart, a change of the rule or of the list of filters;
  connections from before a change of the list keep their old buckets.

Each limit of a rule has at most `MOST_CALLERS` buckets. Beyond that Envoy drops the bucket of the
caller that it saw least recently, and that caller starts with a full bucket when it comes back: a
caller that invents keys can cause its own bucket to be dropped. So all callers share one more
bucket, of `MOST_CALLERS` times the limit. It denies no request as long as no bucket is dropped. A
rule never allows more than `MOST_CALLERS` times its limit, whatever keys are invented.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.gateway.envoy.buckets import backstop_of, local_headers, quota_denial, share_of
from headgate.gateway.envoy.keys import Variant, groups_of, variants_of
from headgate.gateway.envoy.matching import (
    TIER,
    conditions_of,
    header_input,
    header_matcher,
    negated,
    predicate_of,
)
from headgate.gateway.envoy.values import HttpFilter, extension, service, typed
from headgate.limits.scaling import with_extra
from headgate.policy.envoy_config.attributes import ADDRESS, GATEWAY_DOMAIN, RULE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headgate.gateway.envoy.keys import Entry, Group
    from headgate.gateway.envoy.values import Json
    from headgate.limits import Limit
    from headgate.policy.model import Identity, Policy, Rule


MOST_CALLERS: Final = 2**18
"""Each takes about a kilobyte, so a limit takes a quarter of a gigabyte when all are there."""

LOCAL_STATS: Final = "local-"
"""Before the id of a rule: the prefix of what Envoy counts of it. A further limit has `/2`."""

_STATS: Final = "headgate"

_TOGETHER: Final = "headgate.together"
"""The key of the entry of the bucket that all callers of a rule share."""

_SHARED: Final = {"descriptor_key": _TOGETHER, "descriptor_value": "1"}
_LOCAL: Final = "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit"
_WITH_MATCHER: Final = "envoy.extensions.common.matching.v3.ExtensionWithMatcher"
_SKIP: Final = "envoy.extensions.filters.common.matcher.action.v3.SkipFilter"
_ALWAYS: Final = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}


def local_filters(rule: Rule, identity: Identity, gateways: int) -> tuple[HttpFilter, ...]:
    """The filters that enforce the share of *rule* of one of *gateways*."""
    cost = rule.cost.default

    def bucket(limit: Limit) -> Json:
        return share_of(limit, gateways, cost).finely()

    def together(limit: Limit) -> Json | None:
        share = share_of(limit, gateways, cost)
        return share.times(MOST_CALLERS)

    return _filters(
        f"{LOCAL_STATS}{rule.id}", rule, identity, bucket, cost, together=together, has_stats=True
    )


def backstop_filters(rule: Rule, policy: Policy, cost: int) -> tuple[HttpFilter, ...]:
    """The filters that limit callers of *rule*, decided exactly, while the service does not answer.

    They never deny a request that the limit allows; *cost* is the lowest cost of a request. Callers
    that only the service distinguishes are not limited.
    """

    def bucket(limit: Limit) -> Json:
        return backstop_bucket(rule, policy, limit)

    return _filters(f"backstop-{rule.id}", rule, policy.identity, bucket, cost, has_lumps=False)


def quota_backstop_filters(rule: Rule, identity: Identity) -> tuple[HttpFilter, ...]:
    """The filters that limit callers of *rule* to its whole limit while no share is assigned."""
    cost = rule.cost.default

    def bucket(limit: Limit) -> Json:
        return share_of(limit, 1, cost).finely(rounds_up=True)

    return _filters(f"backstop-{rule.id}", rule, identity, bucket, cost)


def backstop_bucket(rule: Rule, policy: Policy, limit: Limit) -> Json:
    """The bucket for a caller of *rule* under *limit*, with the largest override."""
    extra = max((one.extra for one in policy.overrides if one.rule == rule.id), default=0)
    return backstop_of(with_extra(limit, extra) if extra else limit).finely(rounds_up=True)


def _filters(
    name: str,
    rule: Rule,
    identity: Identity,
    bucket: Callable[[Limit], Json],
    cost: int,
    *,
    has_lumps: bool = True,
    together: Callable[[Limit], Json | None] = lambda _: None,
    has_stats: bool = False,
) -> tuple[HttpFilter, ...]:
    groups = groups_of(rule, identity)
    most = max((len(group.limits) for group in groups), default=0)
    made = []
    for place in range(most):
        rows: list[tuple[Group, Json, Json | None]] = []
        limits = {}
        for group in groups:
            if place < len(group.limits):
                limit = sorted(group.limits, key=lambda one: one.period_ns)[place]
                limits[limit] = group.limits.index(limit) + 1
                rows.append((group, bucket(limit), together(limit)))
        called = f"{name}/{place + 1}" if place else name
        config = limiter(
            *counts_of(rows, rule, identity, cost, has_lumps=has_lumps),
            headers=local_headers(rule, limits),
            has_retry_after=rule.headers != "redacted",
            stat_prefix=called if has_stats else _STATS,
        )
        made.append(HttpFilter(called, _where(rule, identity, called, config)))
    return tuple(made)


def _where(rule: Rule, identity: Identity, name: str, config: Json) -> Json:
    conditions = conditions_of(rule.match, identity)
    if not conditions:
        return config
    return skipping(name, config, negated(predicate_of(conditions)))


def skipping(name: str, config: Json, predicate: Json) -> Json:
    """The filter *name* of *config*, except for requests for which *predicate* holds."""
    action = {"action": extension("skip", _SKIP)}
    matchers = {"matchers": [{"predicate": predicate, "on_match": action}]}
    return typed(
        _WITH_MATCHER,
        extension_config={"name": name, "typed_config": config},
        xds_matcher={"matcher_list": matchers},
    )


def counts_of(
    rows: Iterable[tuple[Group, Json, Json | None]],
    rule: Rule,
    identity: Identity,
    cost: int,
    *,
    has_lumps: bool,
) -> tuple[list[Json], list[Json]]:
    """The rate limits that count *cost* for each caller of *rule*, and the descriptors of their
    buckets. *rows* are the groups of *rule*, each with its bucket, and the one that all of its
    callers share.

    Without *has_lumps* callers that only the service distinguishes do not count.
    """
    variants = [
        one
        for one in variants_of(rule, identity, joins_lines=False)
        if has_lumps or not one.is_lump
    ]
    rate_limits, descriptors = [], {}
    for group, bucket, together in rows:
        for variant in variants:
            actions = list(_actions(group, variant, identity))
            rate_limits.append({"actions": actions, "hits_addend": {"number": cost}})
            keys = tuple(one.key for one in variant.entries)
            descriptors[group.name, keys] = _descriptor(group, keys, bucket)
            if together is not None and any(one.value is None for one in variant.entries):
                shared = [actions[0], {"generic_key": _SHARED}]
                rate_limits.append({"actions": shared, "hits_addend": {"number": cost}})
                entries = [{"key": RULE, "value": group.name}, {"key": _TOGETHER, "value": "1"}]
                descriptors[group.name, (_TOGETHER,)] = {
                    "entries": entries,
                    "token_bucket": together,
                }
    return rate_limits, [*descriptors.values()]


def limiter(
    rate_limits: list[Json],
    descriptors: list[Json],
    *,
    headers: list[Json],
    has_retry_after: bool,
    stat_prefix: str = _STATS,
) -> Json:
    """The filter with *rate_limits* and the buckets of *descriptors*."""
    return typed(
        _LOCAL,
        stat_prefix=stat_prefix,
        status={"code": "TooManyRequests"},
        filter_enabled=_ALWAYS,
        filter_enforced=_ALWAYS,
        max_dynamic_descriptors=MOST_CALLERS,
        enable_x_ratelimit_headers="OFF",
        enable_retry_after_header=has_retry_after,
        rate_limited_as_resource_exhausted=True,
        response_headers_to_add=headers,
        rate_limits=rate_limits,
        descriptors=descriptors,
    )


def _actions(group: Group, variant: Variant, identity: Identity) -> Iterator[Json]:
    """The actions that make the descriptor of callers of *group* and *variant*."""
    conditions = group.conditions + variant.conditions
    if conditions:
        headers = list(map(header_matcher, conditions))
        match = {"descriptor_key": RULE, "descriptor_value": group.name, "headers": headers}
        yield {"header_value_match": match}
    else:
        yield {"generic_key": {"descriptor_key": RULE, "descriptor_value": group.name}}
    for entry in variant.entries:
        yield _action(entry, identity)


def _action(entry: Entry, identity: Identity) -> Json:
    if entry.value is not None:
        return {"generic_key": {"descriptor_key": entry.key, "descriptor_value": entry.value}}
    if entry.header is not None:
        return {"request_headers": {"header_name": entry.header, "descriptor_key": entry.key}}
    source = identity.address
    masks = {"v4_prefix_mask_len": source.ipv4_prefix, "v6_prefix_mask_len": source.ipv6_prefix}
    return {"masked_remote_address": masks}


def _descriptor(group: Group, keys: tuple[str, ...], bucket: Json) -> Json:
    """The *bucket* for each caller of *group*, distinguished by *keys*."""
    names = ["masked_remote_address" if key == ADDRESS else key for key in keys]
    entries = [{"key": RULE, "value": group.name}, *({"key": name} for name in names)]
    return {"entries": entries, "token_bucket": bucket}


# Quotas: the service assigns Envoy a share of the limit, by `rate_limit_quota`.
#
# A bucket is identified by the rule's id and the parts of its key. Before the first assignment only
# the rule's backstop limits. When an assignment has expired because the service is unavailable, the
# rule's `on_store_failure` decides: `fail_closed` denies, `local` allows the share of one gateway,
# first the rest of the assignment, `fail_open` leaves it to the backstop. A caller that is new then
# is treated as before a first assignment: Envoy does not distinguish the two.


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
        "deny_response_settings": quota_denial(rule, limit, group.limits.index(limit) + 1),
    }
    if rule.on_failure.mode != "fail_open":
        share = share_of(limit, gateways * max(1, rule.cost.default), 1)
        fallback: Json = {"blanket_rule": "DENY_ALL"}
        if rule.on_failure.mode == "local":
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
