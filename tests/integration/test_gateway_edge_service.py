"""The gateway's Envoy and the decision service: answers, and what comes of a service that hangs."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.envoy_edge import NO_SERVICE, Gateway, echoing
from tests.support.servers import wait_until
from tests.support.servers.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_RULES = """\
version: 1
rules:
  - id: closed
    match: {endpoint: /closed}
    key_by: ip
    limit: 1000000/hour
    on_store_failure: fail_closed
  - id: open
    match: {endpoint: /open}
    key_by: ip
    limit: 1000000/hour
    on_store_failure: fail_open
"""


@contextmanager
def _service(directory: Path, rules: str) -> Iterator[Process]:
    """`headgate serve` with gRPC on the socket `grpc.sock`."""
    file, socket = directory / "rules.yaml", directory / "grpc.sock"
    file.write_text(rules)
    call = [sys.executable, "-m", "headgate.cli", "serve", "--rules", str(file)]
    call += ["--http", f"unix:{directory / 'http.sock'}", "--grpc", f"unix:{socket}"]
    process = Process(call, directory / "service.log")
    try:
        wait_until(socket.exists, "the service listens", within=30.0)
        yield process
    finally:
        process.kill()


def _is_asked(client: httpx.Client, path: str) -> bool:
    """Whether the service has decided about a request to *path*."""
    reply = client.get(path)
    return reply.status_code == 200 and "x-ratelimit-limit" in reply.headers


def test_a_service_that_hangs_is_left_alone_and_found_again(tmp_path: Path) -> None:
    with (
        _service(tmp_path, _RULES) as service,
        echoing() as upstream,
        Gateway(tmp_path, _RULES, str(tmp_path / "grpc.sock"), upstream=[upstream]) as gateway,
        httpx.Client(base_url=gateway.url) as client,
    ):
        wait_until(lambda: _is_asked(client, "/closed"), "the service answers")
        assert _is_asked(client, "/open")
        service.pause()
        wait_until(
            lambda: gateway.stat("cluster.headgate.membership_healthy") == 0, "it is left alone"
        )
        asked = gateway.stat("cluster.headgate.upstream_rq_total")
        closed = [client.get("/closed") for _ in range(20)]
        opened = [client.get("/open").status_code for _ in range(20)]
        assert gateway.stat("cluster.headgate.upstream_rq_total") - asked < 6  # health is asked for
        assert [reply.status_code for reply in closed] == [503] * 20
        assert closed[0].json() == {
            "error": "temporarily_unavailable",
            "message": "Temporarily unavailable. Try again later.",
        }
        assert "retry-after" not in closed[0].headers
        assert opened == [200] * 20
        service.resume()
        wait_until(lambda: _is_asked(client, "/closed"), "it is found again")
        assert _is_asked(client, "/open")


def test_a_service_that_comes_late_is_found_and_missed_when_it_is_gone(tmp_path: Path) -> None:
    with (
        echoing() as upstream,
        Gateway(tmp_path, _RULES, str(tmp_path / "grpc.sock"), upstream=[upstream]) as gateway,
        httpx.Client(base_url=gateway.url) as client,
    ):
        assert client.get("/closed").status_code == 503
        assert client.get("/open").status_code == 200
        with _service(tmp_path, _RULES):
            wait_until(lambda: _is_asked(client, "/closed"), "it is found")
        assert client.get("/closed").status_code == 503


def test_rate_limit_headers_of_an_upstream_are_not_told_beside_ours(tmp_path: Path) -> None:
    theirs = (("x-ratelimit-limit", "7"), ("ratelimit", '"theirs";r=1;t=1'), ("x-other", "1"))
    rules = _RULES.replace("/closed", "/**")
    with (
        _service(tmp_path, rules),
        echoing(headers=theirs) as upstream,
        Gateway(tmp_path, rules, str(tmp_path / "grpc.sock"), upstream=[upstream]) as gateway,
    ):
        wait_until(lambda: httpx.get(gateway.url).status_code == 200, "the service answers")
        reply = httpx.get(gateway.url)
        assert reply.headers.get_list("x-ratelimit-limit") == ["1000000"]
        assert "theirs" not in reply.headers["ratelimit"]
        assert reply.headers["x-other"] == "1"
        gateway.reload("version: 1\nrules: []\n")
        wait_until(
            lambda: httpx.get(gateway.url).headers.get("x-ratelimit-limit") == "7",
            "theirs are told where there are none of ours",
        )


@pytest.mark.parametrize("headers", ["on", "redacted"])
def test_what_a_local_limit_refuses_is_told_as_by_the_service(tmp_path: Path, headers: str) -> None:
    rules = f"""\
version: 1
rules:
  - {{id: small, key_by: ip, limit: 2/hour, decide: local, headers: "{headers}"}}
"""
    with (
        echoing() as upstream,
        Gateway(tmp_path, rules, NO_SERVICE, upstream=[upstream]) as gateway,
    ):
        replies = [httpx.get(gateway.url) for _ in range(3)]
    assert [reply.status_code for reply in replies] == [200, 200, 429]
    refused = replies[-1]
    assert refused.headers["content-type"] == "application/json"
    told = refused.json()
    assert told["error"] == "rate_limit_exceeded"
    if headers == "redacted":
        assert set(told) == {"error", "message"}
    else:
        assert told["limit"] == "small"
        assert told["retry_after"] == int(refused.headers["retry-after"])
        assert told["retry_after_ms"] == 1000 * told["retry_after"]
