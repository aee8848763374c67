"""The filters, entries and routes for calls of language models."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from headgate.config.gateway import GatewaySettings, parse_upstream
from headgate.gateway.envoy.documents import documents
from headgate.gateway.envoy.filters import decided, has_backstop, http_filters
from headgate.gateway.envoy.values import Places
from tests.support.envoy_matchers import fits, inner, is_asked, policy_of

if TYPE_CHECKING:
    from headgate.policy.model import Policy

PLAIN = "id: r, key_by: ip, limit: 1/s"
TOKENS = (
    "id: t, match: {endpoint: /v1/**, method: POST}, key_by: ip, limit: 9/s, cost: {llm: tokens}"
)
MODEL = "id: m, match: {endpoint: /v1/chat/completions, model: gpt-*}, key_by: ip, limit: 9/s"
SLOTS = "id: s, match: {endpoint: /v1/**}, key_by: ip, concurrency: {limit: 2, ttl: 9s}"
PLACES = Places("/run", ("/grpc",), "/admin")
USAGE = ["llm-usage-openai", "llm-usage-openai-responses", "llm-usage-anthropic"]


def filters(policy: Policy) -> dict[str, Any]:
    return {one.name: one for one in http_filters(policy, GatewaySettings())}


def asked(policy: Policy, path: str, method: str = "POST") -> list[str]:
    """The filters that look at a request."""
    headers = {":path": path, ":method": method, ":authority": "h"}
    return [name for name, one in filters(policy).items() if is_asked(one, headers)]


def keys_of(row: dict[str, Any]) -> list[str]:
    """The keys of the entries of a descriptor."""
    found = []
    for action in row["actions"]:
        ((kind, of),) = action.items()
        found.append((of["typed_config"] if kind == "extension" else of).get("descriptor_key", ""))
    return found


def routes(policy: Policy, *upstreams: str) -> list[dict[str, Any]]:
    settings = GatewaySettings(upstream=tuple(map(parse_upstream, upstreams)))
    made = documents(policy, settings, PLACES)
    manager = made.whole["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]
    hosts = manager["typed_config"]["route_config"]["virtual_hosts"]
    return [route for host in hosts for route in host["routes"] if "route" in route]


def test_bodies_are_read_around_the_filter_that_calls_the_service() -> None:
    assert list(filters(policy_of(TOKENS))) == ["llm-read", "exact-open", *USAGE]
    assert list(filters(policy_of(MODEL))) == ["llm-read", "exact-open"]


@pytest.mark.parametrize("rule", [PLAIN, SLOTS, f"{TOKENS}, mode: off"])
def test_other_policies_read_no_bodies(rule: str) -> None:
    policy = policy_of(rule)
    assert not [name for name in filters(policy) if name.startswith("llm-")]
    (route,) = routes(policy, "http://a")
    assert "request_body_buffer_limit" not in route
    whole = json.dumps(documents(policy, GatewaySettings(), PLACES).whole)
    assert "payload_too_large" in whole
    assert "request_too_large" not in whole


@pytest.mark.parametrize(
    ("path", "usage"),
    [
        ("/v1/chat/completions", 0),
        ("/v1/chat/completions?x=/messages", 0),
        ("/v1/embeddings", 0),
        ("/v1/responses", 1),
        ("/v1/responses/?a", 1),
        ("/v1/messages", 2),
        ("/v1/messages?beta=true", 2),
        ("/v1/messages/count_tokens", 2),
    ],
)
def test_the_usage_of_a_response_is_read_in_one_protocol(path: str, usage: int) -> None:
    policy = policy_of(TOKENS)
    assert asked(policy, path) == ["llm-read", "exact-open", USAGE[usage]]
    assert asked(policy, path, "GET") == []
    assert asked(policy, f"/other{path}") == []


def test_a_request_is_sent_with_its_fields_and_its_end_with_the_usage() -> None:
    first, end = inner(filters(policy_of(TOKENS))["exact-open"])["rate_limits"]
    fields = {"model", "max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"}
    fields |= {"n", "best_of", "messages", "unread", "bytes"}
    own = {"headgate.settles", *(f"headgate.llm.{name}" for name in fields)}
    request = {"method", "path", "host", "", "x-api-key", "x-tenant-id", "x-tier", "x-user-id"}
    assert set(keys_of(first)) == own | request | {"headgate.debug"}
    assert end["apply_on_stream_done"]
    usage = {"model", "input", "output", "cached", "written", "extraction", "status"}
    told = {"headgate.settle", "headgate.reservation", *(f"headgate.llm.{one}" for one in usage)}
    assert set(keys_of(end)) == told | request


def test_only_the_end_of_requests_with_a_reservation_is_reported_for_slots() -> None:
    first, end = inner(filters(policy_of(SLOTS))["exact-open"])["rate_limits"]
    assert "headgate.settles" in keys_of(first)
    assert keys_of(end) == ["headgate.settle", "headgate.reservation"]
    assert not end["actions"][0]["extension"]["typed_config"]["skip_if_error"]


def test_a_policy_that_settles_nothing_reports_no_end() -> None:
    for rule in (PLAIN, MODEL):
        (row,) = inner(filters(policy_of(rule))["exact-open"])["rate_limits"]
        assert "headgate.settles" not in keys_of(row)


def test_requests_that_are_read_have_a_route_with_a_bound() -> None:
    read, plain = routes(policy_of(TOKENS), "/v1=http://a")
    (matcher,) = read["match"].pop("headers")
    assert fits({**matcher, "invert_match": False}, {":path": "/v1/chat/completions"})
    assert not fits({**matcher, "invert_match": False}, {":path": "/other"})
    assert read["request_body_buffer_limit"] == 4 << 20
    assert "accept-encoding" in read.pop("request_headers_to_remove")
    assert read["match"] == plain["match"] == {"path_separated_prefix": "/v1"}
    assert "request_body_buffer_limit" not in plain
    (every,) = routes(policy_of("key_by: ip, id: t, limit: 9/s, cost: {llm: tokens}"), "http://a")
    assert every["request_body_buffer_limit"] == 4 << 20
    (first, _) = routes(policy_of(MODEL), "http://a")
    assert "accept-encoding" not in first["request_headers_to_remove"]


@pytest.mark.parametrize("rule", [TOKENS, MODEL])
def test_the_service_decides_and_envoy_has_no_backstop(rule: str) -> None:
    policy = policy_of(f"{rule}, decide: local")
    (one,) = decided(policy, GatewaySettings())
    assert (one.decide, one.asked) == ("exact", "local")
    assert "bod" in one.why
    assert not has_backstop(policy.rules[0], policy, GatewaySettings())


def test_headers_of_the_provider_are_those_of_headgate() -> None:
    names = {"x-ratelimit-remaining-tokens", "anthropic-ratelimit-input-tokens-reset"}
    read, _ = routes(policy_of(TOKENS), "http://a")
    assert names <= set(read["response_headers_to_remove"])
    (plain,) = routes(policy_of(PLAIN), "http://a")
    assert not names & set(plain["response_headers_to_remove"])
