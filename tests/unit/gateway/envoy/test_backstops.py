"""One filter keeps callers of all rules that fail open to their limits."""

from __future__ import annotations

from typing import Any

from headgate.gateway.envoy.envoy_limits import MOST_CALLERS
from headgate.gateway.envoy.filters import open_backstop
from tests.support.envoy_matchers import fits, policy_of


def _made(*rules: str, **more: str) -> dict[str, Any]:
    policy = policy_of(*rules, **more)
    (one,) = open_backstop(policy.rules, policy)
    assert one.name == "backstop"
    return one.config


def _descriptors(config: dict[str, Any], headers: dict[str, str]) -> list[str]:
    """The names that a request with *headers* is counted under."""
    found = []
    for one in config["rate_limits"]:
        first = one["actions"][0]
        told = first.get("header_value_match") or first["generic_key"]
        if all(fits(matcher, headers) for matcher in told.get("headers", ())):
            found.append(told["descriptor_value"])
    return found


def test_each_rule_counts_its_own_requests() -> None:
    config = _made(
        "id: a, match: {endpoint: /a/**}, key_by: api_key, limit: 3/hour",
        "id: b, match: {endpoint: /b, method: POST}, key_by: ip, limit: 5/m; 100/h",
        "id: c, key_by: global, limit: 9/s",
    )
    keyed = {":method": "GET", ":path": "/a/x?y=1", "x-api-key": "ada"}
    assert _descriptors(config, keyed) == ["a/1/*", "c/1/*"]
    assert _descriptors(config, {":method": "GET", ":path": "/a"}) == ["a/1/*", "c/1/*"]
    posted = {":method": "POST", ":path": "/b"}
    assert _descriptors(config, posted) == ["b/1/*", "b/2/*", "c/1/*"]
    assert _descriptors(config, {":method": "GET", ":path": "/z"}) == ["c/1/*"]


def test_every_descriptor_that_can_be_made_has_a_bucket_and_no_two_are_one() -> None:
    config = _made(
        "id: a, match: {endpoint: /a}, key_by: api_key, limit: 3/hour",
        "id: t, key_by: user_id, limits: {free: 1/s, paid: 9/s}",
        identity="{tier: {header: x-tier, default: free}}",
    )
    entries = [
        tuple((entry["key"], entry.get("value")) for entry in one["entries"])
        for one in config["descriptors"]
    ]
    assert len(set(entries)) == len(entries)
    for one in config["rate_limits"]:
        first, *rest = one["actions"]
        told = first.get("header_value_match") or first["generic_key"]
        keys = [_key(action) for action in rest]
        assert ((("headgate.rule", told["descriptor_value"])), *((key, None) for key in keys)) in {
            tuple(one) for one in entries
        }
    assert config["max_dynamic_descriptors"] == MOST_CALLERS


def test_without_rules_there_is_none() -> None:
    policy = policy_of("id: a, key_by: ip, limit: 1/s")
    assert open_backstop((), policy) == ()


def _key(action: dict[str, Any]) -> str:
    if "masked_remote_address" in action:
        return "masked_remote_address"
    told = action.get("request_headers") or action["generic_key"]
    return str(told["descriptor_key"])
