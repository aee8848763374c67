from __future__ import annotations

from typing import Any

from headgate.gateway.envoy.envoy_limits import (
    MOST_CALLERS,
    backstop_filters,
    local_filters,
    quota_backstop_filters,
)
from headgate.gateway.envoy.keys import LONGEST
from headgate.policy.model import Override, Policy
from tests.support.envoy_matchers import Headers, descriptors, inner, is_asked, policy_of

TOGETHER = ("headgate.together", "1")


def config_of(rule: str, identity: str = "{}", gateways: int = 1) -> dict[str, Any]:
    policy = policy_of(rule, identity=identity)
    (made,) = local_filters(policy.rules[0], policy.identity, gateways)
    return inner(made)


def bucket(config: dict[str, Any], headers: Headers) -> tuple[Any, dict[str, Any]] | None:
    """The key of the bucket that a request counts in, and the bucket, besides that of all callers
    together; None if in none."""
    rows = [row for row in descriptors(config, headers) if TOGETHER not in row]
    if not rows:
        return None
    (row,) = rows
    for one in config["descriptors"]:
        entries = [(entry["key"], entry.get("value")) for entry in one["entries"]]
        if len(entries) == len(row) and all(
            key == other and want in (None, value)
            for (key, want), (other, value) in zip(entries, row, strict=True)
        ):
            return tuple(row), one["token_bucket"]
    raise AssertionError(f"no bucket for {row}")


def test_callers_are_told_apart_by_what_they_say() -> None:
    config = config_of("id: r, key_by: user_id, limit: 5/s")
    ada, bob = (bucket(config, {"x-user-id": name}) for name in ("ada", "bob"))
    assert ada is not None
    assert bob is not None
    assert ada[0] != bob[0]
    assert ada[1] == {"max_tokens": 5, "tokens_per_fill": 5, "fill_interval": "1.000s"}
    assert config["max_dynamic_descriptors"] == MOST_CALLERS


def test_all_callers_together_have_a_bucket_that_callers_without_a_key_do_not_use() -> None:
    config = config_of("id: r, key_by: user_id, limit: 5/s", "{fallback: skip}")
    (shared,) = [one for one in config["descriptors"] if one["entries"][-1]["key"] == TOGETHER[0]]
    assert shared["token_bucket"]["max_tokens"] == 5 * MOST_CALLERS
    assert [row for row in descriptors(config, {"x-user-id": "a"}) if TOGETHER in row]
    assert descriptors(config, {}) == []
    for rule in ("key_by: global, limit: 5/s", "key_by: user_id, limit: 1000000/s"):
        made = config_of(f"id: r, {rule}")["descriptors"]
        assert [one for one in made if one["entries"][-1]["key"] == TOGETHER[0]] == []


def test_of_several_lines_the_first_counts() -> None:
    config = config_of("id: r, key_by: user_id, limit: 5/s")
    assert bucket(config, {"x-user-id": "ada,x"}) == bucket(config, {"x-user-id": "ada"})


def test_what_is_too_long_has_no_bucket_of_its_own() -> None:
    """Envoy would keep all of it, of so many callers."""
    config = config_of("id: r, key_by: user_id, limit: 5/s")
    longest = bucket(config, {"x-user-id": "a" * LONGEST})
    longer = bucket(config, {"x-user-id": "a" * LONGEST + "b"})
    assert longest is not None
    assert longer is not None
    assert longest[0][-1] == ("x-user-id", "a" * LONGEST)
    assert longer == bucket(config, {"x-user-id": "c" * 10 * LONGEST})
    assert longer[0][-1] == ("x-user-id", ",")
    methods = config_of("id: r, key_by: method, limit: 5/s")
    assert bucket(methods, {":method": "A" * 99}) == bucket(methods, {":method": "B" * 99})


def test_a_backstop_lets_pass_whom_only_the_service_tells_apart() -> None:
    policy = policy_of("id: r, key_by: user_id, limit: 5/s")
    (exact,) = backstop_filters(policy.rules[0], policy, 1)
    (quota,) = quota_backstop_filters(policy.rules[0], policy.identity)
    long = {"x-user-id": "a" * 2 * LONGEST}
    assert bucket(inner(exact), long) is None
    assert bucket(inner(exact), {"x-user-id": "a"}) is not None
    assert bucket(inner(quota), long) is not None


def test_who_says_nothing_falls_back_as_the_policy_says() -> None:
    rule = "id: r, key_by: user_id, limit: 5/s"
    for said in ({}, {"x-user-id": ""}):
        by_ip = bucket(config_of(rule), said)
        assert by_ip is not None
        assert by_ip[0][-1] == ("masked_remote_address", "192.0.2.1")
        shared = bucket(config_of(rule, "{fallback: shared}"), said)
        assert shared is not None
        assert shared[0] == (("headgate.rule", "*"),)
        assert bucket(config_of(rule, "{fallback: skip}"), said) is None


def test_a_default_is_the_same_caller_as_one_who_says_it() -> None:
    config = config_of("id: r, key_by: user_id, limit: 5/s", "{user_id: {header: x-u, default: d}}")
    assert bucket(config, {}) == bucket(config, {"x-u": "d"})


def test_addresses_are_grouped_as_the_policy_says() -> None:
    config = config_of("id: r, key_by: ip, limit: 5/s", "{ip: {ipv4_prefix: 24, ipv6_prefix: 56}}")
    asked, _ = config["rate_limits"]
    masks = {"v4_prefix_mask_len": 24, "v6_prefix_mask_len": 56}
    assert asked["actions"][-1] == {"masked_remote_address": masks}


def test_head_counts_as_get_and_odd_methods_together() -> None:
    config = config_of("id: r, key_by: method, limit: 5/s")
    get, head, post, odd, odder = (
        bucket(config, {":method": name}) for name in ("GET", "HEAD", "POST", "pOst", "poSt")
    )
    assert get == head
    assert odd == odder
    assert len({str(one) for one in (get, post, odd)}) == 3


def test_tiers_have_limits_of_their_own() -> None:
    config = config_of(
        "id: r, key_by: user_id, limits: {free: 1/s, paid: 5/s, default: 2/s}",
        "{tier: {header: x-tier, default: free}}",
    )

    def most(**tier: str) -> int:
        found = bucket(config, {"x-user-id": "u"} | {f"x-{k}": v for k, v in tier.items()})
        assert found is not None
        return int(found[1]["max_tokens"])

    assert (most(), most(tier="free"), most(tier="paid"), most(tier="gold")) == (1, 1, 5, 2)
    assert most(tier="paid,free") == 5


def test_a_tier_without_limits_is_not_limited() -> None:
    config = config_of("id: r, key_by: user_id, limits: {free: 1/s, paid: 5/s}")
    assert bucket(config, {"x-user-id": "u", "x-tier": "gold"}) is None
    assert bucket(config, {"x-user-id": "u"}) is None


def test_a_limit_is_divided_by_the_gateways_and_costs_count() -> None:
    config = config_of("id: r, key_by: global, limit: 10/s, cost: 3", gateways=2)
    found = bucket(config, {})
    assert found is not None
    assert found[1] == {"max_tokens": 5, "tokens_per_fill": 5, "fill_interval": "1.000s"}
    assert config["rate_limits"][0]["hits_addend"] == {"number": 3}


def test_stacked_limits_are_a_filter_each_the_shortest_first() -> None:
    policy = policy_of("id: r, key_by: ip, limit: 100/hour; 2/minute")
    first, second = local_filters(policy.rules[0], policy.identity, 1)
    assert (first.name, second.name) == ("local-r", "local-r/2")
    assert inner(first)["descriptors"][0]["token_bucket"]["max_tokens"] == 2
    assert inner(second)["descriptors"][0]["token_bucket"]["max_tokens"] == 100
    told = [one["header"]["value"] for one in inner(first)["response_headers_to_add"]]
    assert told == ["no-store", "r", '"r/2";q=2;w=60']


def test_only_requests_that_the_rule_is_for_are_looked_at() -> None:
    policy = policy_of("id: r, match: {endpoint: /a/**, method: GET}, key_by: ip, limit: 2/s")
    (made,) = local_filters(policy.rules[0], policy.identity, 1)
    assert is_asked(made, {":path": "/a/b", ":method": "HEAD"})
    assert not is_asked(made, {":path": "/b", ":method": "GET"})


def test_a_refusal_names_the_rule_unless_that_is_not_to_be_told() -> None:
    def told(mode: str) -> dict[str, str]:
        config = config_of(f"id: r, key_by: ip, limit: 60/minute, headers: {mode}")
        headers = [one["header"] for one in config["response_headers_to_add"]]
        waits = {"retry-after": "?"} if config["enable_retry_after_header"] else {}
        found = {one["key"]: one["value"] for one in headers} | waits
        assert found.pop("cache-control") == "no-store"
        return found

    policy = '"r";q=60;w=60'
    assert told("on") == {"x-headgate-limit": "r", "ratelimit-policy": policy, "retry-after": "?"}
    assert told("brief") == {"x-headgate-limit": "r", "retry-after": "?"}
    assert told("off") == {"retry-after": "?"}
    assert told("redacted") == {}


def test_a_backstop_is_the_whole_limit_and_what_overrides_add() -> None:
    policy = policy_of("id: r, key_by: ip, limit: 60/hour")

    def most(policy: Policy) -> int:
        (made,) = backstop_filters(policy.rules[0], policy, 1)
        assert made.name == "backstop-r"
        return int(inner(made)["descriptors"][0]["token_bucket"]["max_tokens"])

    assert most(policy) == 61
    more = Policy(policy.rules, policy.identity, 0, (Override("r", "k", 1, extra=40),))
    assert most(more) == 101


def test_before_a_share_is_assigned_the_whole_limit_counts_and_no_more() -> None:
    policy = policy_of("id: r, key_by: ip, limit: 60/hour fixed_window")
    (made,) = quota_backstop_filters(policy.rules[0], policy.identity)
    assert inner(made)["descriptors"][0]["token_bucket"]["max_tokens"] == 60
