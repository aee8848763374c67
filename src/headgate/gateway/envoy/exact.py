"""The filters that have the service decide a request, over Envoy's rate limit service protocol.

While the service does not answer, a filter either allows or denies everything. So rules of both
kinds need two filters: `exact-closed` for requests that a rule with `fail_closed` may match, and
`exact-open` for the others. A request that no rule can match is not sent. Where `matching` cannot
express a condition it sends the request, and the service applies the rules exactly.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.gateway.envoy.envoy_limits import skipping
from headgate.gateway.envoy.llm import request_entries, settlement
from headgate.gateway.envoy.matching import (
    conditions_of,
    either,
    header_matcher,
    negated,
    requests_of,
)
from headgate.gateway.envoy.values import HttpFilter, Json, expression, seconds, service, typed
from headgate.policy.envoy_config.attributes import (
    ADDRESS,
    DEBUG,
    DECIDED,
    GATEWAY_DOMAIN,
    HOST,
    METHOD,
    PATH,
    REPORT,
)
from headgate.policy.plan_cache import headers_of_interest
from headgate.responses import debug

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.config.gateway import GatewaySettings
    from headgate.gateway.envoy.values import Decided
    from headgate.policy.model import Identity, Policy, Rule

_RATELIMIT: Final = "envoy.extensions.filters.http.ratelimit.v3.RateLimit"
_FAILING_EXPRESSION: Final = "request.headers['no such header']"
"""An expression that fails: no header has this name."""

_MAX_REPORTED: Final = 10**9
"""The largest report. Envoy drops larger ones."""

_IS_FROM_UPSTREAM: Final = (
    "has(upstream.address)"
    " && !response.code_details.startsWith('upstream_reset_before_response_started')"
)
"""True if the upstream has responded, even if a side disconnects later: sent bytes count."""

_BODY_BYTES: Final = (
    f"%CEL({_IS_FROM_UPSTREAM} ?"
    f" (response.size < {_MAX_REPORTED} ? response.size : {_MAX_REPORTED}) : 0)%"
)


def exact_filters(
    policy: Policy, decided: Iterable[Decided], settings: GatewaySettings
) -> tuple[HttpFilter, ...]:
    """The filters for the rules that the service decides."""
    decide = {one.rule: one.decide for one in decided}
    rules = [rule for rule in policy.rules if decide.get(rule.id) == "exact"]
    closed_rules = [rule for rule in rules if _fails_closed(rule)]
    open_rules = [rule for rule in rules if not _fails_closed(rule)]
    by_envoy = [rule_id for rule_id, how in decide.items() if how != "exact"]
    filters = []
    config = _config(policy, rules, by_envoy, settings)
    for_closed = requests_of(closed_rules, policy.identity)
    for_open = requests_of(open_rules, policy.identity)
    if closed_rules:
        skipped = [] if for_closed is None else [negated(for_closed)]
        filters.append(_filter("exact-closed", {**config, "failure_mode_deny": True}, skipped))
    if open_rules and not (closed_rules and for_closed is None):
        skipped = [for_closed] if closed_rules and for_closed is not None else []
        skipped += [] if for_open is None else [negated(for_open)]
        filters.append(_filter("exact-open", {**config, "failure_mode_deny": False}, skipped))
    return tuple(filters)


def _fails_closed(rule: Rule) -> bool:
    """True if *rule* denies while the service is unavailable. A shadow rule never denies."""
    return rule.on_failure.mode == "fail_closed" and rule.mode == "enforce"


def _filter(name: str, config: Json, skipped: Sequence[Json]) -> HttpFilter:
    return HttpFilter(name, skipping(name, config, either(skipped)) if skipped else config)


def _config(
    policy: Policy, rules: Sequence[Rule], by_envoy: Sequence[str], settings: GatewaySettings
) -> Json:
    entries = _entries(policy, rules, settings)
    first = [*_constant(DECIDED, ",".join(by_envoy)), DEBUG_ACTION]
    rate_limits = [{"actions": [*first, *entries, *request_entries(rules)]}]
    after = [rule for rule in rules if rule.cost.after is not None]
    rate_limits += [_report(rule, policy.identity, entries) for rule in after]
    rate_limits += settlement(rules, entries)
    return typed(
        _RATELIMIT,
        domain=GATEWAY_DOMAIN,
        timeout=seconds(settings.decision_timeout),
        status_on_error={"code": "ServiceUnavailable"},
        rate_limited_status={"code": "TooManyRequests"},
        rate_limited_as_resource_exhausted=True,
        enable_x_ratelimit_headers="OFF",
        disable_x_envoy_ratelimited_header=True,
        rate_limit_service={"transport_api_version": "V3", "grpc_service": service()},
        rate_limits=rate_limits,
    )


def _report(rule: Rule, identity: Identity, entries: Sequence[Json]) -> Json:
    """The action that reports the cost of a request at its end, unless the request was denied."""
    header = None if rule.cost.after is None else rule.cost.after.header
    amount = _BODY_BYTES if header is None else f"%RESPONSE_HEADER({header})%"
    headers = list(map(header_matcher, conditions_of(rule.match, identity)))
    named: Json = {"descriptor_key": REPORT, "descriptor_value": rule.id}
    first = {"header_value_match": {**named, "headers": headers}} if headers else None
    return {
        "actions": [first or {"generic_key": named}, *entries],
        "apply_on_stream_done": True,
        "hits_addend": {"format": amount},
    }


def _entries(policy: Policy, rules: Sequence[Rule], settings: GatewaySettings) -> list[Json]:
    has_unix = any(one.is_unix for one in settings.listen)
    address = expression(ADDRESS, "source.address") if has_unix else REMOTE_ADDRESS
    headers = sorted(_headers_sent(policy))
    return [*request_actions(address, headers), *map(_matched_line, _matched_values(rules))]


def request_actions(address: Json, headers: Iterable[str] = ()) -> list[Json]:
    """The actions that send a request's method, path, host, *address* and *headers*."""
    return [
        _header(":method", METHOD),
        _header(":path", PATH),
        _header(":authority", HOST),
        address,
        *(_header(name, name) for name in headers),
    ]


def _headers_sent(policy: Policy) -> frozenset[str]:
    """The headers that rules read. Envoy resolves the client address, so the header with it is
    among them only if a rule reads it."""
    identity = policy.identity
    address = replace(identity.address, header=":none")
    others = replace(policy, identity=replace(identity, address=address))
    return headers_of_interest(others) - {address.header}


def _matched_values(rules: Sequence[Rule]) -> list[tuple[str, str]]:
    """The headers that *rules* match, in lower case, with each value."""
    found = {
        (name.lower(), value)
        for rule in rules
        for name, values in rule.match.headers
        for value in values or ()
    }
    return sorted(found)


def _matched_line(matched: tuple[str, str]) -> Json:
    """The action that sends a matched header value if any line of the header has it.

    By itself Envoy sends only the first line of a header, but a rule matches any line.
    """
    name, value = matched
    text = f"request.headers[{_quoted(name)}]"
    tests = [
        f"{text}.{test}({_quoted(line)})"
        for test, line in (
            ("startsWith", f"{value},"),
            ("endsWith", f",{value}"),
            ("contains", f",{value},"),
        )
    ]
    return expression(name, f"{' || '.join(tests)} ? {_quoted(value)} : {_FAILING_EXPRESSION}")


def all_lines(name: str) -> Json:
    """The action that sends all lines of the header *name*, joined by commas."""
    return expression(name, f"request.headers[{_quoted(name)}]")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _constant(key: str, value: str) -> list[Json]:
    made = {"generic_key": {"descriptor_key": key, "descriptor_value": value}}
    return [made] if value else []


def _header(name: str, key: str) -> Json:
    # Without skip_if_absent Envoy sends nothing at all for a request without this header.
    return {"request_headers": {"header_name": name, "descriptor_key": key, "skip_if_absent": True}}


DEBUG_ACTION: Final[Json] = _header(debug.DEBUG.lower(), DEBUG)
REMOTE_ADDRESS: Final[Json] = {"remote_address": {}}
"""The caller's address. For a caller without one, on a unix socket, Envoy would send nothing."""
