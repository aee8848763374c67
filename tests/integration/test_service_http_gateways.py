"""The service behind real gateways: what it decides reaches the client."""

from __future__ import annotations

from contextlib import closing, contextmanager
from http.client import HTTPConnection
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.gateways import caddy, envoy_config, nginx, service
from tests.support.servers import free_port, release_port
from tests.support.servers.envoy import EnvoyServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


@contextmanager
def envoy(at: str) -> Iterator[str]:
    port = free_port()
    try:
        with EnvoyServer(envoy_config(port, int(at.rpartition(":")[2]))):
            yield f"http://127.0.0.1:{port}"
    finally:
        release_port(port)


@pytest.fixture(params=[nginx, caddy, envoy], ids=["nginx", "caddy", "envoy"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A gateway of each kind, before a service of its own."""
    before: Callable[[str], AbstractContextManager[str]] = request.param
    with service() as at, before(at) as found:
        yield found


def test_a_gateway_asks_about_every_request_and_passes_refusals_on(url: str) -> None:
    key = {"x-api-key": "0123456789"}
    with httpx.Client(base_url=url) as client:
        for _ in range(2):
            answer = client.get("/api/a?q=1", headers=key)
            assert (answer.status_code, answer.text) == (200, "the app")
        refused = client.get("/api/b", headers=key)
        assert refused.status_code == 429
        assert 1700 <= int(refused.headers["retry-after"]) <= 1800
        assert refused.headers["ratelimit-policy"] == '"per-key";q=2;w=3600'
        assert refused.json()["error"] == "rate_limit_exceeded"
        assert client.head("/api/b", headers=key).status_code == 429
        assert client.options("/api/b", headers=key).status_code == 429
        assert client.get("/api/b", headers={"x-api-key": "another"}).status_code == 200
        assert client.get("/elsewhere", headers=key).status_code == 200

        # Neither the method nor who asks nor the path can be made up.
        forged = {
            "x-forwarded-for": "198.51.100.1",
            "x-real-ip": "198.51.100.2",
            "x-forwarded-host": "other.example",
            "x-envoy-external-address": "198.51.100.3",
        }
        assert client.get("/login").status_code == 200  # not a POST
        for n, path in enumerate(("/login", "/%6cogin", "//login?x", "/LOGIN/")):
            answer = client.post(url + path, content=b"name=x", headers=forged)
            assert answer.status_code == (200 if n < 2 else 429), path
        shop = {"host": "shop.example", "x-forwarded-host": "other.example"}
        assert client.get("/items", headers=shop).status_code == 200
        assert client.get("/items", headers=shop).status_code == 429
        assert client.get("/items", headers={"host": url.partition("//")[2]}).status_code == 200


ENDPOINTS = """
version: 1
rules:
  - {id: account, match: {endpoint: "/acct/**"}, key_by: endpoint, limit: 2/hour}
  - {id: anywhere, key_by: [ip, endpoint], limit: 2/hour}
"""
SPELLINGS = (
    *("/r{n}%23/../acct/me", "/r{n}%3f/../acct/me", "/r{n}%3F/%2e%2e/acct/me"),
    *("/r{n}%23/..//acct/me", "/r{n}%23%2f..%2facct/me", "/r{n}%2fa/../../acct/me"),
    *("/acct/me", "/acct/r{n}%23/../me", "/acct/./r{n}%3f/../me"),
)
"""Paths that are /acct/me for nginx."""


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_behind_nginx_no_spelling_of_a_path_gives_a_fresh_counter(spelling: str) -> None:
    with service(ENDPOINTS) as at, nginx(at, answer="$uri") as url:
        port = int(url.rpartition(":")[2])
        replies = [_get(port, spelling.format(n=n)) for n in range(8)]
    assert replies[0] == (200, "/acct/me"), "what nginx takes it for"
    assert [status for status, _ in replies] == [200, 200, *[429] * 6]


def _get(port: int, target: str) -> tuple[int, str]:
    """What a request for *target*, sent as it is, is answered."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.putrequest("GET", target)
        connection.endheaders()
        reply = connection.getresponse()
        return reply.status, reply.read().decode()


def test_a_client_cannot_say_which_request_it_is(url: str) -> None:
    with httpx.Client(base_url=url) as client:
        for said in ("x-original-uri", "x-forwarded-uri", "X_Original_URI"):
            statuses = [
                client.post("/login", headers={said: "/harmless", "x-original-method": "GET"})
                for _ in range(3)
            ]
            assert statuses[-1].status_code != 200, said
