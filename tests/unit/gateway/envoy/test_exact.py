from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.config import Address
from headgate.config.gateway import GatewaySettings
from headgate.engine.request import Request
from headgate.gateway.envoy.exact import exact_filters
from headgate.gateway.envoy.filters import decided
from headgate.policy.identity import Identifier
from headgate.policy.matcher import Matcher
from tests.examples import example_count
from tests.support.envoy_matchers import descriptors, headers_of, inner, is_asked, policy_of

if TYPE_CHECKING:
    from headgate.gateway.envoy.values import HttpFilter
    from headgate.policy.model import Policy

OPEN = "id: o, match: {endpoint: /a/**}, key_by: ip, limit: 1/s"
CLOSED = "id: c, match: {endpoint: /login, method: POST}, key_by: ip, limit: 1/s"
CLOSED += ", on_store_failure: fail_closed"
ALL = "id: all, key_by: ip, limit: 1/s"


def made(policy: Policy, **more: object) -> dict[str, HttpFilter]:
    settings = GatewaySettings(**more)  # type: ignore[arg-type]  # the settings check them
    found = exact_filters(policy, decided(policy, settings), settings)
    return {one.name: one for one in found}


def test_without_rules_nobody_is_asked() -> None:
    assert made(policy_of("id: r, key_by: ip, limit: 1/s, decide: local")) == {}


def test_rules_of_one_kind_are_one_filter() -> None:
    assert list(made(policy_of(OPEN))) == ["exact-open"]
    assert list(made(policy_of(CLOSED))) == ["exact-closed"]
    assert list(made(policy_of(OPEN, CLOSED))) == ["exact-closed", "exact-open"]


def test_a_rule_for_everything_needs_no_matcher() -> None:
    assert "xds_matcher" not in made(policy_of(OPEN, ALL))["exact-open"].config
    closed = made(policy_of(OPEN, f"{ALL}, on_store_failure: fail_closed"))
    assert list(closed) == ["exact-closed"]
    assert "xds_matcher" not in closed["exact-closed"].config


def test_a_rule_in_shadow_never_refuses() -> None:
    assert list(made(policy_of(f"{CLOSED}, mode: shadow"))) == ["exact-open"]


def test_only_the_closed_one_refuses_without_the_service() -> None:
    found = made(policy_of(OPEN, CLOSED), decision_timeout=0.1)
    closed, opened = inner(found["exact-closed"]), inner(found["exact-open"])
    assert (closed["failure_mode_deny"], opened["failure_mode_deny"]) == (True, False)
    assert closed["status_on_error"] == {"code": "ServiceUnavailable"}
    assert (closed["timeout"], closed["domain"]) == ("0.1s", "headgate")


@settings(max_examples=example_count(150))
@given(
    st.sampled_from(["/", "/login", "/LOGIN;x", "/a", "/a/b?c", "/%6cogin", "/b"]),
    st.sampled_from(["GET", "POST"]),
)
def test_each_request_of_a_rule_is_asked_about_once_and_by_the_right_one(
    path: str, method: str
) -> None:
    policy = policy_of(OPEN, CLOSED)
    request = Request(method, path.partition("?")[0])
    found = Identifier(policy.identity).find(request)
    rules = {rule.id for rule in Matcher(policy).matching(request, found)}
    headers = headers_of(request, "?" + path.partition("?")[2])
    asked = [name for name, one in made(policy).items() if is_asked(one, headers)]
    assert len(asked) <= 1
    if "c" in rules:
        assert asked == ["exact-closed"]
    elif rules:
        assert len(asked) == 1
    elif "%" not in path:
        assert asked == []


def test_a_request_is_told_with_all_that_rules_look_at() -> None:
    policy = policy_of("id: r, match: {headers: {x-app: a}}, key_by: user_id, limit: 1/s")
    headers = {":method": "GET", ":path": "/a?b", ":authority": "h", "x-app": "a"}
    headers |= {"x-user-id": "u", "x-other": "o", "x-forwarded-for": "1.2.3.4"}
    (row,) = descriptors(inner(made(policy)["exact-open"]), headers)
    assert row == [
        ("method", "GET"),
        ("path", "/a?b"),
        ("host", "h"),
        ("remote_address", "192.0.2.1"),
        ("x-app", "a"),
        ("x-user-id", "u"),
    ]


def test_the_header_of_addresses_is_told_only_to_rules_that_look_at_it_themselves() -> None:
    headers = {":path": "/", "x-forwarded-for": "1.2.3.4"}
    for match, told in (("endpoint: /", False), ("headers: {x-forwarded-for: true}", True)):
        policy = policy_of(f"id: r, match: {{{match}}}, key_by: ip, limit: 1/s")
        (row,) = descriptors(inner(made(policy)["exact-open"]), headers)
        assert (("x-forwarded-for", "1.2.3.4") in row) == told
    policy = policy_of("id: r, key_by: 'header:x-forwarded-for', limit: 1/s")
    (row,) = descriptors(inner(made(policy)["exact-open"]), headers)
    assert row[-1] == ("x-forwarded-for", "1.2.3.4")


def test_rules_that_are_decided_elsewhere_are_named() -> None:
    local = "key_by: ip, limit: 1/s, decide: local"
    policy = policy_of(f"id: a, {local}", f"id: b, {local}", ALL)
    (row,) = descriptors(inner(made(policy)["exact-open"]), {":path": "/"})
    assert row[0] == ("headgate.decided", "a,b")


def test_what_a_request_has_cost_is_reported_for_the_rule_that_asks() -> None:
    policy = policy_of(
        "id: tokens, match: {endpoint: /llm}, key_by: ip, limit: 9/s, cost: {after: {header: x-t}}",
        "id: bytes, key_by: ip, limit: 9/s, cost: {after: {bytes: true}}",
    )
    config = inner(made(policy)["exact-open"])
    asked, tokens, octets = config["rate_limits"]
    assert "apply_on_stream_done" not in asked
    assert tokens["apply_on_stream_done"]
    assert tokens["hits_addend"] == {"format": "%RESPONSE_HEADER(x-t)%"}
    assert "response.size" in octets["hits_addend"]["format"]
    rows = descriptors(config, {":path": "/llm"})
    assert [row[0] for row in rows[1:]] == [
        ("headgate.report", "tokens"),
        ("headgate.report", "bytes"),
    ]
    assert len(descriptors(config, {":path": "/other"})) == 2


def test_bytes_are_reported_whoever_ended_the_response_and_never_more_than_envoy_takes() -> None:
    policy = policy_of("id: bytes, key_by: ip, limit: 9/s, cost: {after: {bytes: true}}")
    told = inner(made(policy)["exact-open"])["rate_limits"][1]["hits_addend"]["format"]
    assert "via_upstream" not in told
    assert "response.size < 1000000000 ? response.size : 1000000000" in told


def test_of_a_header_that_rules_match_by_every_line_is_told() -> None:
    policy = policy_of(
        "id: a, match: {headers: {X-App: [one, two]}}, key_by: ip, limit: 1/s",
        "id: b, match: {headers: {x-app: one, x-there: true}}, key_by: ip, limit: 1/s",
        "id: c, match: {headers: {x-app: three}}, key_by: ip, limit: 1/s, decide: local",
    )
    actions = inner(made(policy)["exact-open"])["rate_limits"][0]["actions"]
    found = [one["extension"]["typed_config"] for one in actions if "extension" in one]
    assert [one["descriptor_key"] for one in found] == ["x-app", "x-app"]
    assert all(one["skip_if_error"] for one in found)
    assert 'request.headers["x-app"].contains(",one,")' in found[0]["text"]
    assert ' ? "two" : ' in found[1]["text"]


def test_on_a_unix_socket_a_request_is_told_without_an_address() -> None:
    policy = policy_of(ALL)
    listen = (Address(path="/run/x.sock"),)
    actions = inner(made(policy, listen=listen)["exact-open"])["rate_limits"][0]["actions"]
    (address,) = [one["extension"] for one in actions if "extension" in one]
    assert address["typed_config"]["skip_if_error"] is True
    assert address["typed_config"]["descriptor_key"] == "remote_address"
    assert {"remote_address": {}} not in actions
