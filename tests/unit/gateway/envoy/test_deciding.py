from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headgate.config import Address
from headgate.config.gateway import GatewaySettings
from headgate.gateway.envoy.filters import decided, has_backstop, ignored_parts
from headgate.gateway.envoy.values import Decided
from headgate.policy.model import Override
from tests.support.envoy_matchers import policy_of


def only(rule: str, identity: str = "{}", **settings: Any) -> Decided:
    (found,) = decided(policy_of(rule, identity=identity), GatewaySettings(**settings))
    return found


def test_a_rule_is_decided_as_it_asks_or_as_the_gateway_does() -> None:
    plain = "id: r, key_by: ip, limit: 1/s"
    assert only(plain) == Decided("r", "exact", "exact")
    assert only(plain, decide="local") == Decided("r", "local", "local")
    assert only(f"{plain}, decide: quota", decide="local") == Decided("r", "quota", "quota")


def test_rules_that_are_off_are_not_decided() -> None:
    policy = policy_of("id: a, key_by: ip, limit: 1/s, mode: off", "id: b, key_by: ip, limit: 1/s")
    assert [one.rule for one in decided(policy, GatewaySettings())] == ["b"]


def test_rules_by_which_requests_take_turns_are_not_decided_and_that_is_said() -> None:
    turns = "id: turns, key_by: ip, fair: {slots: 5}"
    policy = policy_of(
        turns, "id: b, key_by: ip, limit: 1/s", f"{turns[:3]} off{turns[9:]}, mode: off"
    )
    assert [one.rule for one in decided(policy, GatewaySettings())] == ["b"]
    assert ignored_parts(policy) == (
        "rule turns: fair queues work only in apps; the gateway ignores it",
    )


def test_that_a_gateway_delays_nothing_is_said() -> None:
    policy = policy_of("id: q, key_by: ip, shape: {rate: 1/s, queue: 5}")
    assert ignored_parts(policy) == ("rule q: the gateway delays nothing; the queue only counts",)


@pytest.mark.parametrize("asked", ["quota", "local"])
@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("key_by: cookie:sid, limit: 1/s", "its key has a cookie in it"),
        ("key_by: 'header:authorization', limit: 1/s", "whose scheme has many spellings"),
        ("key_by: endpoint, limit: 1/s", "its key has the endpoint in it"),
        ("key_by: host, limit: 1/s", "its key has the host in it"),
        ("key_by: attribute:user, limit: 1/s", "is not in a header"),
        ("key_by: ip, algorithm: concurrency, limit: 5, ttl: 10", "limits concurrency"),
        ("key_by: ip, shape: {rate: 1/s, queue: 5}", "a queue"),
        ("key_by: ip, limit: 9/s, adaptive: {floor: 20%}", "lowered under pressure"),
        ("key_by: ip, limit: 1/s, idempotency: {ttl: 60}", "repeated"),
        ("key_by: ip, limit: 1/s, mode: shadow", "in shadow"),
        ("key_by: ip, limit: 9/s, cost: {header: x-cost, max: 5}", "varies"),
        ("key_by: ip, limit: 9/s, cost: {endpoints: {/a: 5}}", "varies"),
        ("key_by: ip, limit: 9/s, cost: {after: {header: x-tokens}}", "only afterwards"),
        ("key_by: ip, limit: 9/s, cost: 0", "cost is 0"),
        ("key_by: ip, limit: 9/s, match: {cookies: {a: b}}", "matches by a cookie"),
    ],
)
def test_what_envoy_cannot_do_is_decided_exactly_and_said(rule: str, why: str, asked: str) -> None:
    found = only(f"id: r, {rule}, decide: {asked}")
    assert (found.decide, found.asked) == ("exact", asked)
    assert why in found.why
    assert "\n" not in found.why


def test_limits_by_a_tier_need_it_in_a_header() -> None:
    rule = "id: r, key_by: ip, limits: {a: 1/s, b: 2/s}, decide: local"
    assert only(rule).decide == "local"
    found = only(rule, "{tier: {lookup: api_key, values: {k: a}}}")
    assert "not in a header" in found.why


def test_a_tier_cannot_choose_the_limit_and_be_the_key() -> None:
    found = only("id: r, key_by: tier, limits: {a: 1/s, b: 2/s}, decide: local")
    assert "by the tier" in found.why


def test_a_host_that_is_the_only_one_can_be_counted_by() -> None:
    rule = "id: r, key_by: host, match: {host: a.test}, limit: 1/s, decide: local"
    assert only(rule).decide == "local"


@pytest.mark.parametrize("key", ["ip", "api_key"])
def test_clients_of_a_unix_socket_have_no_address_to_count_by(key: str) -> None:
    listen = (Address("127.0.0.1", 80), Address(path="/run/x.sock"))
    found = only(f"id: r, key_by: {key}, limit: 1/s, decide: local", listen=listen)
    assert "unix socket" in found.why


def test_overridden_counters_are_the_services() -> None:
    text = policy_of("id: r, key_by: ip, limit: 1/s, decide: local")
    policy = replace(text, overrides=(Override("r", "ip=1", 1, extra=1),))
    (found,) = decided(policy, GatewaySettings())
    assert "overrides" in found.why


@pytest.mark.parametrize("limit", ["unlimited", "0/minute"])
def test_a_limit_without_a_counter_is_decided_by_the_service(limit: str) -> None:
    rule = f"id: r, key_by: ip, limit: {limit}"
    for asked in ("quota", "local"):
        found = only(f"{rule}, decide: {asked}")
        assert found.decide == "exact"
        assert "without a counter" in found.why
    assert not has_backstop(policy_of(rule).rules[0], policy_of(rule), GatewaySettings())
