"""The real Envoy before the service of this process, as Headgate's own gateway sets it up.

What is here says what both have to say to each other (see `policy.envoy_config.attributes`),
written by hand: so it holds the service to it, whatever the gateway writes.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from headgate.policy.loader import read_policy
from headgate.rule_engine import AsyncRuleEngine
from headgate.service.core import Core
from headgate.service.grpc.server import GrpcServer
from headgate.service.rlqs import PATH as QUOTAS
from headgate.service.rlqs import QuotaCalls, RlqsOptions
from headgate.service.rls import PATH as LIMITS
from headgate.service.rls import RateLimitCalls
from tests.support.servers.envoy import EnvoyServer, cluster, http_listener
from tests.support.servers.ports import HOST, free_port, release_port
from tests.support.servers.upstream import CostingHandler, upstream_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.stores.base import Store

FILTERS = "type.googleapis.com/envoy.extensions.filters.http"
_HEADER_INPUT = "type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput"
RATELIMIT = "envoy.filters.http.ratelimit"


class Service:
    """RLS and RLQS under *policy*, in a thread with a loop of its own."""

    def __init__(self, policy: str, store: Store | str = "memory://") -> None:
        self._policy, self._store = policy, store
        self._socket = socket.create_server((HOST, 0))
        self.port = self._socket.getsockname()[1]
        self._is_up = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))

    def __enter__(self) -> Service:
        self._thread.start()
        assert self._is_up.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    async def _run(self) -> None:
        engine = AsyncRuleEngine(read_policy(self._policy), store=self._store)
        core = Core(rules=engine, clock=time.time_ns, secret=b"secret")
        quotas: dict[str, Any] = {}
        calls = None
        if self._store == "memory://":
            calls = QuotaCalls(core, RlqsOptions(ttl=4, delivery=0.5))
            await calls.start()
            quotas = {QUOTAS: calls.stream_usage}
        server = GrpcServer({LIMITS: RateLimitCalls(core).should_rate_limit}, quotas)
        await server.start(self._socket)
        self._is_up.set()
        await self._stop.wait()
        if calls is not None:
            await calls.aclose()
        await server.drain(1.0)
        await engine.aclose()


@contextmanager
def gateway(service: Service, *filters: dict[str, Any]) -> Iterator[tuple[int, EnvoyServer]]:
    """The port of an Envoy with *filters* before an upstream, and Envoy itself."""
    port = free_port()
    with ExitStack() as stack:
        stack.callback(release_port, port)
        upstream = stack.enter_context(upstream_of(CostingHandler))
        routes = [{"match": {"prefix": "/"}, "route": {"cluster": "upstream"}}]
        listener = http_listener(port, virtual_host={"routes": routes}, filters=list(filters))
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        manager |= {
            "use_remote_address": True,
            "max_request_headers_kb": 96,
            "delayed_close_timeout": "0.05s",  # after a refusal; a second unless told
            "local_reply_config": {"mappers": [_outage_mapper()]},
        }
        clusters = [cluster("upstream", upstream)]
        clusters += [cluster("headgate", service.port, http2=True)]
        envoy = EnvoyServer({"static_resources": {"listeners": [listener], "clusters": clusters}})
        stack.enter_context(envoy)
        yield port, envoy


def exact(
    *headers: str, decided: str = "", reports: Sequence[tuple[str, str]] = ()
) -> dict[str, Any]:
    """The filter that asks about each request; *reports* are rules, and what is reported to them.

    It lets pass if the call fails.
    """
    request = [
        _header(":method", "method"),
        _header(":path", "path"),
        _header(":authority", "host"),
        {"remote_address": {}},
        *[_header(name, name, skip_if_absent=True) for name in headers],
    ]
    front = [_word("headgate.decided", decided)] if decided else []
    after = [
        {
            "actions": [_word("headgate.report", rule), _refused(), *request],
            "apply_on_stream_done": True,
            "hits_addend": {"format": amount},
        }
        for rule, amount in reports
    ]
    return {
        "name": RATELIMIT,
        "typed_config": {
            "@type": f"{FILTERS}.ratelimit.v3.RateLimit",
            "domain": "headgate",
            "timeout": "5s",
            "rate_limit_service": {
                "transport_api_version": "V3",
                "grpc_service": {"envoy_grpc": {"cluster_name": "headgate"}},
            },
            "rate_limits": [{"actions": [*front, *request]}, *after],
        },
    }


def quota(rule: str, *headers: str) -> dict[str, Any]:
    """The filter that enforces shares of *rule*; all is denied before the first assignment."""
    entries = {"headgate.rule": {"string_value": rule}} | {
        name: {
            "custom_value": {
                "name": name,
                "typed_config": {
                    "@type": _HEADER_INPUT,
                    "header_name": name,
                },
            }
        }
        for name in headers
    }
    settings = {
        "@type": f"{FILTERS}.rate_limit_quota.v3.RateLimitQuotaBucketSettings",
        "bucket_id_builder": {"bucket_id_builder": entries},
        "reporting_interval": "5s",
        "no_assignment_behavior": {"fallback_rate_limit": {"blanket_rule": "DENY_ALL"}},
    }
    return {
        "name": "envoy.filters.http.rate_limit_quota",
        "typed_config": {
            "@type": f"{FILTERS}.rate_limit_quota.v3.RateLimitQuotaFilterConfig",
            "domain": "headgate",
            "rlqs_server": {"envoy_grpc": {"cluster_name": "headgate"}},
            "bucket_matchers": {"on_no_match": {"action": {"name": "b", "typed_config": settings}}},
        },
    }


def said(port: int, message: bytes) -> bytes:
    """All that the gateway answers to *message*, until it closes."""
    answer = b""
    with socket.create_connection((HOST, port)) as line, suppress(ConnectionError):
        line.settimeout(20)
        line.sendall(message)
        while part := line.recv(65536):
            answer += part
    return answer


def status_of(answer: bytes) -> int:
    """The status in *answer*; 0 if there is none."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def request(
    key: bytes = b"ada",
    path: bytes = b"/",
    method: bytes = b"GET",
    host: bytes = b"h",
    more: bytes = b"",
) -> bytes:
    """A request of the caller *key*, byte by byte."""
    head = b"%b %b HTTP/1.1\r\nhost: %b\r\nconnection: close\r\n" % (method, path, host)
    return head + b"x-api-key: %b\r\n%b\r\n" % (key, more)


def _header(name: str, key: str, **more: Any) -> dict[str, Any]:
    return {"request_headers": {"header_name": name, "descriptor_key": key, **more}}


def _word(key: str, value: str) -> dict[str, Any]:
    return {"generic_key": {"descriptor_key": key, "descriptor_value": value}}


def _refused() -> dict[str, Any]:
    place = {"key": RATELIMIT, "path": [{"key": "headgate.refused"}]}
    return {
        "metadata": {
            "descriptor_key": "headgate.refused",
            "metadata_key": place,
            "source": "DYNAMIC",
            "skip_if_absent": True,
        }
    }


def _outage_mapper() -> dict[str, Any]:
    matcher = {
        "filter": RATELIMIT,
        "path": [{"key": "headgate.refused"}],
        "value": {"string_match": {"exact": "outage"}},
    }
    # Without the second, what has no such metadata would count as an outage too.
    found = {"metadata_filter": {"matcher": matcher, "match_if_key_not_found": False}}
    return {"filter": found, "status_code": 503}
