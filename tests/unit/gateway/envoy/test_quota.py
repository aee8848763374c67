from __future__ import annotations

from base64 import b64decode
from json import loads
from typing import Any

from headgate.gateway.envoy.envoy_limits import quota_filter
from headgate.gateway.envoy.keys import LONGEST
from tests.support.envoy_matchers import Headers, holds, policy_of


def config_of(rule: str, identity: str = "{}", gateways: int = 1) -> dict[str, Any]:
    policy = policy_of(rule, identity=identity)
    made = quota_filter(policy.rules[0], policy.identity, gateways)
    assert made.name == "quota-r"
    return made.config


def settings_of(config: dict[str, Any], headers: Headers) -> dict[str, Any] | None:
    """The settings of the bucket that a request is in; None if in none."""
    tree = config["bucket_matchers"]
    matchers = tree.get("matcher_list", {"matchers": []})["matchers"]
    found = [one["on_match"] for one in matchers if holds(one["predicate"], headers)]
    assert len(found) <= 1
    action = found[0] if found else tree.get("on_no_match")
    settings: dict[str, Any] | None = action and action["action"]["typed_config"]
    return settings


def bucket(config: dict[str, Any], headers: Headers) -> dict[str, str] | None:
    settings = settings_of(config, headers)
    if settings is None:
        return None
    ids = settings["bucket_id_builder"]["bucket_id_builder"]
    return {key: _value(value, headers) for key, value in ids.items()}


def _value(value: dict[str, Any], headers: Headers) -> str:
    if "string_value" in value:
        return str(value["string_value"])
    name = value["custom_value"]["typed_config"].get("header_name")
    return "192.0.2.1" if name is None else headers[name]


def test_a_bucket_is_a_rule_and_a_caller() -> None:
    config = config_of("id: r, key_by: [user_id, ip], limit: 5/s")
    assert bucket(config, {"x-user-id": "ada"}) == {
        "headgate.rule": "r",
        "x-user-id": "ada",
        "remote_address": "192.0.2.1",
    }


def test_one_for_everybody_is_the_rule_alone() -> None:
    assert bucket(config_of("id: r, key_by: global, limit: 5/s"), {}) == {"headgate.rule": "r"}


def test_who_says_nothing_falls_back_as_the_policy_says() -> None:
    rule = "id: r, key_by: user_id, limit: 5/s"
    for said in ({}, {"x-user-id": ""}):
        assert bucket(config_of(rule), said) == {
            "headgate.rule": "r",
            "remote_address": "192.0.2.1",
        }
        assert bucket(config_of(rule, "{fallback: shared}"), said) == {"headgate.rule": "r"}
        assert bucket(config_of(rule, "{fallback: skip}"), said) is None


def test_who_sends_a_header_twice_has_no_bucket_of_its_own() -> None:
    """Envoy has both lines as one text, which may be any: each would be a new caller."""
    config = config_of("id: r, key_by: user_id, limit: 5/s", "{fallback: skip}")
    assert bucket(config, {"x-user-id": "ada,1"}) == bucket(config, {"x-user-id": "bob,2"})
    assert bucket(config, {"x-user-id": "ada,1"}) is not None


def test_bytes_that_are_no_utf8_have_no_bucket_of_their_own() -> None:
    """Nobody could tell Envoy to forget such a bucket. It sees bytes, here as Latin-1."""
    config = config_of("id: r, key_by: user_id, limit: 5/s", "{fallback: skip}")

    def of(octets: bytes) -> dict[str, str] | None:
        return bucket(config, {"x-user-id": octets.decode("latin-1")})

    shared = {"headgate.rule": "r", "x-user-id": ","}
    assert of(b"a" * (LONGEST + 1)) == shared
    odd = (b"ada\xff", b"\xffada", b"\xe9\xe9", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80")
    assert [of(one) for one in odd] == [shared] * len(odd)
    for name in ("ada", "josé", "\u07ff\uffff", "\U0001f600", "a b"):
        assert of(name.encode()) == shared | {"x-user-id": name.encode().decode("latin-1")}


def test_tiers_are_told_by_name() -> None:
    config = config_of(
        "id: r, key_by: global, limits: {free: 1/s, paid: 5/s, default: 2/s}",
        "{tier: {header: x-tier, default: free}}",
    )

    def tier(**headers: str) -> str | None:
        found = bucket(config, {f"x-{name}": value for name, value in headers.items()})
        return None if found is None else found["x-tier"]

    assert (tier(), tier(tier="free"), tier(tier="paid"), tier(tier="gold")) == (
        *("free", "free", "paid", "*"),
    )
    assert tier(tier="paid,x") == "paid"


def test_only_requests_that_the_rule_is_for_are_in_a_bucket() -> None:
    config = config_of("id: r, match: {endpoint: /a}, key_by: ip, limit: 5/s")
    assert bucket(config, {":path": "/A/"}) is not None
    assert bucket(config, {":path": "/b"}) is None


def test_when_the_service_is_gone_each_rule_does_what_it_says() -> None:
    def after(how: str) -> Any:
        rule = f"id: r, key_by: ip, limit: 10/s burst 40, on_store_failure: {how}"
        settings = settings_of(config_of(rule, gateways=2), {})
        assert settings is not None
        before = settings["no_assignment_behavior"]["fallback_rate_limit"]
        assert before == {"blanket_rule": "ALLOW_ALL"}
        return settings.get("expired_assignment_behavior", {}).get("fallback_rate_limit")

    assert after("fail_open") is None
    assert after("fail_closed") == {"blanket_rule": "DENY_ALL"}
    share = {"max_tokens": 20, "tokens_per_fill": 5, "fill_interval": "1s"}
    assert after("local") == {"token_bucket": share}


def test_a_refusal_is_that_of_the_service_but_for_figures() -> None:
    settings = settings_of(config_of("id: r, key_by: ip, limit: 6/minute"), {})
    assert settings is not None
    refusal = settings["deny_response_settings"]
    assert loads(b64decode(refusal["http_body"]["value"])) == {
        "error": "rate_limit_exceeded",
        "message": "Too many requests: 6 per minute. Try again in 10 seconds.",
        "limit": "r",
        "retry_after_ms": 10_000,
        "retry_after": 10,
    }
    headers = [one["header"] for one in refusal["response_headers_to_add"]]
    assert {one["key"]: one["value"] for one in headers} == {
        "content-type": "application/json",
        "cache-control": "no-store",
        "retry-after": "10",
        "ratelimit-policy": '"r";q=6;w=60',
    }


def test_a_redacted_rule_says_only_that_it_refused() -> None:
    settings = settings_of(config_of("id: r, key_by: ip, limit: 6/minute, headers: redacted"), {})
    assert settings is not None
    body = b64decode(settings["deny_response_settings"]["http_body"]["value"])
    assert set(loads(body)) == {"error", "message"}
    assert b"6" not in body
