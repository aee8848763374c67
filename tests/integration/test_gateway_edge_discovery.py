"""What the gateway's Envoy discovers from files: filters and listeners, new ones and bad ones."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import headgate.gateway.envoy.documents as made
from headgate.gateway.envoy.values import HttpFilter
from tests.support.envoy_edge import HOST, NO_SERVICE, Gateway, echoing, receive
from tests.support.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_EMPTY = "version: 1\nrules: []\n"
_TYPES = "type.googleapis.com/envoy.extensions"
_HTTP = f"{_TYPES}.filters.http"
_GRPC = {"envoy_grpc": {"cluster_name": "headgate"}}
_HEADER = "type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput"

Chain = list[HttpFilter]


def _local(tokens: int) -> dict[str, Any]:
    always = {"default_value": {"numerator": 100}}
    return {
        "@type": f"{_HTTP}.local_ratelimit.v3.LocalRateLimit",
        "stat_prefix": "local",
        "filter_enabled": always,
        "filter_enforced": always,
        "token_bucket": {
            "max_tokens": tokens,
            "tokens_per_fill": tokens,
            "fill_interval": "3600s",
        },
    }


def _asking() -> dict[str, Any]:
    return {
        "@type": f"{_HTTP}.ratelimit.v3.RateLimit",
        "domain": "d",
        "failure_mode_deny": True,
        "status_on_error": {"code": "ServiceUnavailable"},
        "rate_limits": [{"actions": [{"remote_address": {}}]}],
        "rate_limit_service": {"transport_api_version": "V3", "grpc_service": _GRPC},
    }


def _matched(path: str, config: dict[str, Any]) -> dict[str, Any]:
    """*config*, for requests to *path* only."""
    wanted = {
        "input": {"name": "path", "typed_config": {"@type": _HEADER, "header_name": ":path"}},
        "value_match": {"exact": path},
    }
    skip = {"@type": f"{_HTTP.replace('extensions.filters.http', 'extensions.filters.common')}"}
    skip = {
        "@type": "type.googleapis.com/envoy.extensions.filters.common.matcher.action.v3.SkipFilter"
    }
    return {
        "@type": f"{_TYPES}.common.matching.v3.ExtensionWithMatcher",
        "extension_config": {"name": "inner", "typed_config": config},
        "xds_matcher": {
            "matcher_list": {
                "matchers": [
                    {
                        "predicate": {"not_matcher": {"single_predicate": wanted}},
                        "on_match": {"action": {"name": "skip", "typed_config": skip}},
                    }
                ]
            }
        },
    }


def _quota(blanket: str) -> dict[str, Any]:
    """*blanket*: what it does as long as nobody has assigned anything.

    The bucket is called so, too: Envoy keeps the buckets that it has, with what they were made for.
    """
    kind = f"{_HTTP}.rate_limit_quota.v3"
    settings = {
        "@type": f"{kind}.RateLimitQuotaBucketSettings",
        "bucket_id_builder": {"bucket_id_builder": {"rule": {"string_value": blanket}}},
        "reporting_interval": "5s",
        "no_assignment_behavior": {"fallback_rate_limit": {"blanket_rule": blanket}},
    }
    action = {"name": "bucket", "typed_config": settings}
    return {
        "@type": f"{kind}.RateLimitQuotaFilterConfig",
        "domain": "d",
        "rlqs_server": _GRPC,
        "bucket_matchers": {"on_no_match": {"action": action}},
    }


@pytest.fixture
def chain(monkeypatch: pytest.MonkeyPatch) -> Chain:
    """The filters that the documents are made with, in place of those of the policy."""
    filters: Chain = []
    monkeypatch.setattr(made, "http_filters", lambda _policy, _settings: tuple(filters))
    return filters


@pytest.fixture
def start(tmp_path: Path, chain: Chain) -> Iterator[Callable[[], Gateway]]:
    running: list[Gateway] = []
    with echoing() as upstream:

        def starting() -> Gateway:
            gateway = Gateway(tmp_path, _EMPTY, NO_SERVICE, upstream=[upstream])
            running.append(gateway.__enter__())
            return gateway

        yield starting
        for gateway in running:
            gateway.__exit__(None, None, None)


def _status(client: httpx.Client, path: str = "/") -> int:
    return client.get(path).status_code


def test_every_kind_of_filter_is_discovered_and_changed_on_an_open_connection(
    chain: Chain, start: Callable[[], Gateway]
) -> None:
    def filters(local: int, asked: str, blanket: str) -> Chain:
        return [
            HttpFilter("local-a", _local(local)),
            HttpFilter("quota-a", _quota(blanket)),
            HttpFilter("exact-closed", _matched(asked, _asking())),
        ]

    chain[:] = filters(1000, "/asked", "ALLOW_ALL")
    gateway = start()
    with (
        httpx.Client(base_url=gateway.url) as client,
        socket.create_connection((HOST, gateway.port)) as waiting,
    ):
        assert (_status(client, "/"), _status(client, "/asked")) == (200, 503)
        chain[:] = filters(1000, "/other", "ALLOW_ALL")
        gateway.reload(_EMPTY)
        wait_until(lambda: _status(client, "/other") == 503, "the matcher is the new one")
        assert _status(client, "/asked") == 200
        chain[:] = filters(1000, "/other", "DENY_ALL")
        gateway.reload(_EMPTY)
        wait_until(lambda: _status(client) == 429, "the quota is the new one")
        chain[:] = filters(1000, "/other", "ALLOW_ALL")
        gateway.reload(_EMPTY)
        wait_until(lambda: _status(client) == 200, "the quota allows all again")
        chain[:] = filters(1, "/other", "ALLOW_ALL")
        gateway.reload(_EMPTY)
        wait_until(lambda: _status(client) == 429, "the bucket is small")
        waiting.sendall(b"GET /late HTTP/1.1\r\nhost: a\r\n\r\n")
        assert receive(waiting).status == "429"
        assert gateway.stat("listener_manager.listener_in_place_updated") == 0
        assert gateway.stat("listener_manager.listener_modified") == 0


def test_filters_come_and_go_without_a_connection_being_cut(
    chain: Chain, start: Callable[[], Gateway]
) -> None:
    gateway = start()
    with socket.create_connection((HOST, gateway.port), timeout=5) as old:
        old.sendall(b"GET /1 HTTP/1.1\r\nhost: a\r\n\r\n")
        assert receive(old).status == "200"
        chain[:] = [HttpFilter("local-a", _local(1))]
        gateway.reload(_EMPTY)
        wait_until(lambda: httpx.get(gateway.url).status_code == 429, "the new listener serves")
        old.sendall(b"GET /2 HTTP/1.1\r\nhost: a\r\n\r\n")
        reply = receive(old)
        assert reply.status == "200"
        assert "connection: close" in reply.head
    chain.clear()
    gateway.reload(_EMPTY)
    wait_until(lambda: httpx.get(gateway.url).status_code == 200, "the filter is gone")


@pytest.mark.parametrize(
    "bad",
    [_local(1) | {"stat_prefix": ""}, _local(1) | {"nonsense": 1}, _asking()],
    ids=["wrong value", "unknown field", "other kind"],
)
def test_a_filter_that_is_no_good_leaves_the_one_before_it_in_force(
    chain: Chain, start: Callable[[], Gateway], bad: dict[str, Any]
) -> None:
    chain[:] = [HttpFilter("local-a", _local(1))]
    gateway = start()
    with httpx.Client(base_url=gateway.url) as client:
        assert [_status(client), _status(client)] == [200, 429]
        file = gateway.directory / "filter-local-a.json"
        document = json.loads(file.read_text())
        document["resources"][0]["typed_config"] = bad
        beside = file.with_suffix(".new")
        beside.write_text(json.dumps(document))
        beside.replace(file)
        wait_until(lambda: "config update" in gateway.log, "Envoy has said no")
        assert _status(client) == 429


def test_without_its_filter_a_listener_serves_nobody_unlimited(
    chain: Chain, start: Callable[[], Gateway]
) -> None:
    chain[:] = [HttpFilter("local-a", _local(1) | {"stat_prefix": ""})]
    gateway = start()
    try:
        reply = httpx.get(gateway.url, timeout=2)
    except httpx.TransportError:
        return
    assert reply.status_code == 500
    assert reply.json()["error"] == "internal_error"


def test_hundreds_of_filters_are_served_and_changed(
    chain: Chain, start: Callable[[], Gateway]
) -> None:
    """More than Envoy could watch files for."""
    chain[:] = [HttpFilter(f"local-{number}", _local(1000)) for number in range(200)]
    gateway = start()
    assert httpx.get(gateway.url).status_code == 200
    chain[199] = HttpFilter("local-199", _local(1))
    gateway.reload(_EMPTY)
    wait_until(lambda: httpx.get(gateway.url).status_code == 429, "the new listener serves")
