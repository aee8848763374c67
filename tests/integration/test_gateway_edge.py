"""The gateway's Envoy at the edge: what it lets in, how it spells it, and where it sends it."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.envoy_edge import NO_SERVICE, Gateway, echoing, seen
from tests.support.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_EMPTY = "version: 1\nrules: []\n"
_SHORT = 0.2


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One with an upstream for each of several hosts and paths."""
    directory = tmp_path_factory.mktemp("edge")
    socket = directory / "upstream.sock"
    names = "any", "shop", "shop-cart", "api", "api-v2", "below"
    with ExitStack() as stack:
        url = {name: stack.enter_context(echoing(name)) for name in names}
        url["socket"] = stack.enter_context(echoing("socket", path=str(socket)))
        upstreams = [
            url["any"],
            f"/shop={url['shop']}",
            f"/shop/cart={url['shop-cart']}",
            f"api.example.com={url['api']}",
            f"api.example.com/v2={url['api-v2']}",
            f"*.example.com={url['below']}",
            f"/socket={url['socket']}",
            f"/named={url['any'].replace('127.0.0.1', 'localhost')}",
            "/dead=http://127.0.0.1:1",
        ]
        started = Gateway(
            directory,
            _EMPTY,
            NO_SERVICE,
            upstream=upstreams,
            client_max_header=8192,
            health_path="/health",
            access_log=str(directory / "access.log"),
        )
        yield stack.enter_context(started)


def _asking(path: str, *lines: str, method: str = "GET", host: str = "a") -> bytes:
    """The head of a request, as raw as can be."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"host: {host}", *lines, "", ""]).encode()


@pytest.mark.parametrize(
    ("host", "path", "name"),
    [
        ("other.org", "/", "any"),
        ("other.org", "/shopping", "any"),
        ("other.org", "/shop", "shop"),
        ("other.org", "/shop?x=1", "shop"),
        ("other.org", "/shop/x", "shop"),
        ("other.org", "/shop/cart", "shop-cart"),
        ("other.org", "/shop/cart/1", "shop-cart"),
        ("other.org", "/shop/carts", "shop"),
        ("other.org", "//shop//x", "shop"),
        ("api.example.com", "/", "api"),
        ("API.example.com:8080", "/", "api"),
        ("api.example.com", "/v2/x", "api-v2"),
        ("api.example.com", "/shop", "api"),
        ("www.example.com", "/v2", "below"),
        ("a.b.example.com:1", "/", "below"),
        ("example.com", "/", "any"),
        ("example.com", "/socket/x", "socket"),
        ("example.com", "/named", "any"),
    ],
)
def test_an_upstream_is_found_by_host_and_whole_segments(
    gateway: Gateway, host: str, path: str, name: str
) -> None:
    reply = gateway.raw(_asking(path, host=host))
    assert json.loads(reply.body)["server"] == name


@pytest.mark.parametrize(
    ("path", "becomes"),
    [
        ("/x/..//shop/./a", "/shop/a"),
        ("/x/%2e%2E/shop/a", "/shop/a"),
        ("/%73hop/a", "/shop/a"),
        ("/shop\\a", "/shop/a"),
        ("/shop/a?next=//b/../c", "/shop/a?next=//b/../c"),
    ],
)
def test_an_upstream_sees_one_spelling_of_a_path(gateway: Gateway, path: str, becomes: str) -> None:
    assert gateway.raw(_asking(path)).upstream() == ("GET", becomes)


@pytest.mark.parametrize("path", ["/shop%2Fa", "/shop%2fa", "/shop%5Ca"])
def test_an_escaped_slash_is_answered_with_the_path_to_ask_for(gateway: Gateway, path: str) -> None:
    reply = gateway.raw(_asking(path))
    assert reply.status == "307"
    assert "location: /shop/a" in reply.head


@pytest.mark.parametrize(
    ("sent", "status", "error"),
    [
        (_asking("/", "x_user: ada"), 400, "bad_request"),
        (_asking("/", "x: " + "y" * 9000), 431, "headers_too_large"),
        (_asking("/", *(f"x{n}: 1" for n in range(120))), 431, "headers_too_large"),
        (_asking("/%00"), 400, "bad_request"),
        (_asking("/#x"), 400, "bad_request"),
        (_asking("/", "x : 1"), 400, "bad_request"),
        (b"GET / HTTP/1.0\r\n\r\n", 426, "upgrade_required"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "bad_request"),
        (b"\x16\x03\x01 nonsense\r\n\r\n", 400, "bad_request"),
        (_asking("/", "connection: upgrade", "upgrade: other"), 403, "forbidden"),
        (
            _asking("/", "content-length: 3", "transfer-encoding: chunked", method="POST"),
            400,
            "bad_request",
        ),
        (
            _asking("/", "content-length: 3", "content-length: 4", method="POST") + b"abcd",
            400,
            "bad_request",
        ),
        (_asking("/", "transfer-encoding: xchunked", method="POST"), 501, "not_implemented"),
    ],
)
def test_what_is_malformed_is_refused_in_json(
    gateway: Gateway, sent: bytes, status: int, error: str
) -> None:
    reply = gateway.raw(sent)
    assert reply.status == str(status)
    assert "content-type: application/json" in reply.head
    assert json.loads(reply.body)["error"] == error


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nhost: a\r\n",
        _asking("/", "content-length: 3", method="POST") + b"a",
    ],
    ids=["head", "body"],
)
def test_a_client_that_is_slow_to_send_is_not_waited_for(tmp_path: Path, sent: bytes) -> None:
    with (
        echoing() as upstream,
        Gateway(
            tmp_path,
            _EMPTY,
            NO_SERVICE,
            upstream=[upstream],
            client_header_timeout=_SHORT,
            client_stream_idle_timeout=_SHORT,
        ) as gateway,
    ):
        reply = gateway.raw(sent)
    assert reply.status == "408"
    assert json.loads(reply.body)["error"] == "request_timeout"


def test_an_upstream_that_is_down_is_told_in_json_and_in_no_detail(gateway: Gateway) -> None:
    reply = httpx.get(f"{gateway.url}/dead/x")
    assert reply.status_code == 503
    assert reply.headers["content-type"] == "application/json"
    assert reply.json()["error"] == "upstream_unavailable"
    assert "127.0.0.1" not in reply.text


def test_envoys_own_headers_are_neither_believed_nor_sent(gateway: Gateway) -> None:
    forged = {
        "x-envoy-max-retries": "3",
        "x-envoy-upstream-rq-timeout-ms": "1",
        "x-envoy-original-path": "/other",
        "x-envoy-external-address": "9.9.9.9",
        "x-envoy-internal": "true",
    }
    reply = httpx.get(gateway.url, headers=forged)
    assert reply.status_code == 200
    assert [name for name in reply.headers if "envoy" in name] == []
    assert [name for name, _ in reply.json()["headers"] if "envoy" in name] == []
    assert reply.headers["server"].startswith("BaseHTTP")


def test_the_access_log_is_a_line_of_json_without_the_query(gateway: Gateway) -> None:
    httpx.get(f"{gateway.url}/logged/x?secret=1", headers={"user-agent": "me"})
    log = gateway.directory / "access.log"
    wait_until(lambda: "/logged/x" in log.read_text(), "the line is there")
    line = next(line for line in log.read_text().splitlines() if "/logged/x" in line)
    told = json.loads(line)
    assert (told["method"], told["status"], told["client"]) == ("GET", 200, "127.0.0.1")
    assert "secret" not in line


def test_no_more_connections_than_allowed_are_served(tmp_path: Path) -> None:
    with (
        echoing() as upstream,
        Gateway(
            tmp_path, _EMPTY, NO_SERVICE, upstream=[upstream], client_max_connections=2
        ) as gateway,
        httpx.Client() as first,
        httpx.Client() as second,
        httpx.Client() as third,
    ):
        assert first.get(gateway.url).status_code == 200
        assert second.get(gateway.url).status_code == 200
        with pytest.raises(httpx.TransportError):
            third.get(gateway.url)
        first.close()
        wait_until(lambda: _is_served(gateway), "there is room again")


def _is_served(gateway: Gateway) -> bool:
    try:
        return httpx.get(gateway.url).status_code == 200
    except httpx.TransportError:
        return False


def test_a_load_balancer_asks_the_gateway_itself(gateway: Gateway) -> None:
    asked = httpx.get(f"{gateway.url}/health")
    assert (asked.status_code, asked.content) == (200, b"")
    assert httpx.get(f"{gateway.url}/health/x").json()["path"] == "/health/x"
    gateway.admin("/healthcheck/fail", method="POST")  # as it is when it is about to end
    try:
        assert httpx.get(f"{gateway.url}/health").status_code == 503
        assert httpx.get(f"{gateway.url}/").status_code == 200
    finally:
        gateway.admin("/healthcheck/ok", method="POST")


def test_where_no_upstream_fits_there_is_nothing(tmp_path: Path) -> None:
    with (
        echoing() as upstream,
        Gateway(tmp_path, _EMPTY, NO_SERVICE, upstream=[f"a.org/x={upstream}"]) as gateway,
    ):
        replies = [
            httpx.get(f"{gateway.url}/x", headers={"host": "b.org"}),
            httpx.get(f"{gateway.url}/y", headers={"host": "a.org"}),
        ]
        found = httpx.get(f"{gateway.url}/x", headers={"host": "a.org"})
    assert [reply.status_code for reply in replies] == [404, 404]
    assert [reply.json()["error"] for reply in replies] == ["not_found", "not_found"]
    assert seen(found, "host") == ["a.org"]
