from __future__ import annotations

import pytest

from headgate.config.gateway import GatewaySettings
from headgate.gateway.envoy.filters import http_filters
from tests.support.envoy_matchers import policy_of


def names(*rules: str) -> list[str]:
    return [one.name for one in http_filters(policy_of(*rules), GatewaySettings())]


def test_local_limits_come_first_then_quotas_then_the_service() -> None:
    plain = "key_by: ip, limit: 1/s"
    assert names(
        f"id: a, {plain}",
        f"id: b, {plain}, decide: quota",
        f"id: c, {plain}, decide: local",
        f"id: d, {plain}, on_store_failure: local",
    ) == ["local-c", "quota-b", "backstop-b", "exact-open", "backstop-d", "backstop"]


def test_rules_by_which_requests_take_turns_make_no_filters_and_change_no_others() -> None:
    turns = "id: turns, key_by: ip, fair: {slots: 5}"
    assert names(turns) == []
    plain = "id: a, key_by: ip, limit: 1/s"
    settings = GatewaySettings()
    alone, beside = (
        http_filters(policy_of(*rules), settings) for rules in ([plain], [plain, turns])
    )
    assert alone == beside


@pytest.mark.parametrize("decide", ["exact", "quota", "local"])
def test_a_queue_is_asked_for_with_a_backstop_that_admits_what_it_does(decide: str) -> None:
    rule = f"id: a, key_by: ip, shape: {{rate: 2/s, queue: 9}}, decide: {decide}"
    asked, backstop = http_filters(policy_of(rule), GatewaySettings())
    assert (asked.name, backstop.name) == ("exact-open", "backstop")
    (kept,) = backstop.config["descriptors"]
    # Ten at once, as many as pass in a second besides, then two a second.
    assert kept["token_bucket"] == {
        "max_tokens": 12,
        "tokens_per_fill": 2,
        "fill_interval": "1.000s",
    }


def test_without_rules_there_are_no_filters() -> None:
    assert (
        http_filters(policy_of("id: a, key_by: ip, limit: 1/s, mode: off"), GatewaySettings()) == ()
    )


@pytest.mark.parametrize(
    "rule",
    [
        "key_by: cookie:sid, limit: 1/s",
        "key_by: ip, limit: 9/s, cost: {header: x-cost, min: 0, max: 3}",
        "key_by: ip, algorithm: concurrency, limit: 5, ttl: 9",
        "key_by: ip, limit: 1/s, mode: shadow",
    ],
)
@pytest.mark.parametrize("failure", ["local", "fail_open"])
def test_no_backstop_where_it_could_refuse_what_the_limit_admits(rule: str, failure: str) -> None:
    assert names(f"id: a, {rule}, on_store_failure: {failure}") == ["exact-open"]


def test_the_backstop_charges_the_least_that_a_header_can_give() -> None:
    rule = "id: a, key_by: ip, limit: 9/s, cost: {header: x-cost, max: 3}"
    assert names(rule) == ["exact-open", "backstop"]


def test_a_rule_that_fails_closed_needs_no_backstop() -> None:
    assert names("id: a, key_by: ip, limit: 1/s, on_store_failure: fail_closed") == ["exact-closed"]
