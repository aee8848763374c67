"""The real Envoy asks a method of ours whether a request may pass."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from typing import Any

import pytest

from headgate.service.grpc.server import GrpcServer
from tests.support.grpc_server import bound_socket, run
from tests.support.servers import free_port, release_port
from tests.support.servers.envoy import EnvoyServer, cluster, http_listener
from tests.support.servers.process import run as run_program

PATH = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
OK, OVER_LIMIT = b"\x08\x01", b"\x08\x02"


def should_rate_limit(request: bytes) -> bytes:
    """A RateLimitResponse with nothing but `overall_code`."""
    return OVER_LIMIT if b"/denied" in request else OK


async def should_rate_limit_later(request: bytes) -> bytes:
    await asyncio.sleep(0.004)  # so that many are under way at the same time
    return should_rate_limit(request)


def config(port: int, upstream: int, service: int) -> dict[str, Any]:
    """Envoy on *port*, which asks *service* about everything that it hands on to *upstream*."""
    kind = "envoy.extensions.filters.http.ratelimit.v3.RateLimit"
    ratelimit = {
        "name": "envoy.filters.http.ratelimit",
        "typed_config": {
            "@type": f"type.googleapis.com/{kind}",
            "domain": "test",
            "timeout": "5s",
            "failure_mode_deny": True,
            "rate_limit_service": {
                "transport_api_version": "V3",
                "grpc_service": {"envoy_grpc": {"cluster_name": "rls"}},
            },
        },
    }
    by_path = {"request_headers": {"header_name": ":path", "descriptor_key": "path"}}
    guarded = {
        "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "upstream"}}],
        "rate_limits": [{"actions": [by_path]}],
    }
    answering = {"routes": [{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]}
    return {
        "static_resources": {
            "listeners": [
                http_listener(port, virtual_host=guarded, filters=[ratelimit]),
                http_listener(upstream, virtual_host=answering, filters=[]),
            ],
            "clusters": [cluster("upstream", upstream), cluster("rls", service, http2=True)],
        }
    }


def status_of(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def load(port: int, requests: int) -> str:
    """Make requests, more at the same time than a connection of the server takes calls."""
    url = f"http://127.0.0.1:{port}/allowed"
    return run_program("h2load", "--h1", "-n", str(requests), "-c", "200", url, within=60)


@pytest.mark.parametrize("method", [should_rate_limit, should_rate_limit_later])
def test_envoy_asks_before_each_request(method: Any) -> None:
    requests = 5_000  # more than a connection takes
    port, upstream = free_port(), free_port()

    async def main() -> None:
        server = GrpcServer({PATH: method}, {})
        sock = bound_socket()
        service = sock.getsockname()[1]
        await server.start(sock)
        envoy = EnvoyServer(config(port, upstream, service))
        try:
            await asyncio.to_thread(envoy.start)
            assert await asyncio.to_thread(status_of, port, "/allowed") == 200
            assert await asyncio.to_thread(status_of, port, "/denied") == 429
            told = await asyncio.to_thread(load, port, requests)
            assert f"{requests} 2xx, 0 3xx, 0 4xx, 0 5xx" in told, told
            stats = await asyncio.to_thread(envoy.stats, "cluster.upstream.ratelimit")
            assert stats["cluster.upstream.ratelimit.ok"] == requests + 1
            assert stats["cluster.upstream.ratelimit.over_limit"] == 1
            assert "cluster.upstream.ratelimit.error" not in stats
        finally:
            envoy.close()
            await server.drain(0.0)

    try:
        run(main())
    finally:
        release_port(port)
        release_port(upstream)
