"""Two real Envoys share one limit through the quota service."""

from __future__ import annotations

import http.client
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.gateway_service import Service
from tests.support.servers import wait_until
from tests.support.servers.envoy import EnvoyServer, cluster, http_listener
from tests.support.servers.ports import HOST, free_port, release_port
from tests.support.servers.upstream import QuietHandler, upstream_of

if TYPE_CHECKING:
    from collections.abc import Iterator

RATE = 40
BURST = 20
_LATE_S = 4
_SETTLED_S = 14
"""Envoys report every five seconds: by then both have shares."""
POLICY = f"""
version: 1
rules:
  - id: per-user
    match: {{attributes: {{user: true}}}}
    key_by: "attribute:user"
    limit: {RATE}/s burst {BURST}
"""
_FILTERS = "type.googleapis.com/envoy.extensions.filters.http"


class _Upstream(QuietHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


def _envoy(port: int, service: int, upstream: int) -> dict[str, Any]:
    bucket = {
        "bucket_id_builder": {
            "bucket_id_builder": {
                "user": {
                    "custom_value": {
                        "name": "user",
                        "typed_config": {
                            "@type": "type.googleapis.com/envoy.type.matcher.v3."
                            "HttpRequestHeaderMatchInput",
                            "header_name": "x-user",
                        },
                    }
                }
            }
        },
        "reporting_interval": "5s",
        "no_assignment_behavior": {"fallback_rate_limit": {"blanket_rule": "DENY_ALL"}},
    }
    quota = {
        "name": "envoy.filters.http.rate_limit_quota",
        "typed_config": {
            "@type": f"{_FILTERS}.rate_limit_quota.v3.RateLimitQuotaFilterConfig",
            "domain": "edge",
            "rlqs_server": {"envoy_grpc": {"cluster_name": "quota"}},
            "bucket_matchers": {
                "on_no_match": {
                    "action": {
                        "name": "bucket",
                        "typed_config": {
                            "@type": f"{_FILTERS}.rate_limit_quota.v3.RateLimitQuotaBucketSettings",
                            **bucket,
                        },
                    }
                }
            },
        },
    }
    routes = [{"match": {"prefix": "/"}, "route": {"cluster": "upstream"}}]
    listener = http_listener(port, virtual_host={"routes": routes}, filters=[quota])
    clusters = [cluster("upstream", upstream), cluster("quota", service, http2=True)]
    return {"static_resources": {"listeners": [listener], "clusters": clusters}}


@pytest.fixture
def upstream() -> Iterator[int]:
    with upstream_of(_Upstream) as port:
        yield port


class _Caller(threading.Thread):
    """Asks one Envoy until *stop* is set; `admitted` has the times of what passed."""

    def __init__(self, port: int, stop: threading.Event) -> None:
        super().__init__()
        self._port = port
        self._stop_asking = stop
        self.admitted: list[float] = []
        self.refused = 0

    def run(self) -> None:
        connection = http.client.HTTPConnection(HOST, self._port, timeout=60)
        while not self._stop_asking.wait(0.005):
            connection.request("GET", "/", headers={"x-user": "ada"})
            reply = connection.getresponse()
            reply.read()
            if reply.status == 200:
                self.admitted.append(time.monotonic())
            else:
                self.refused += 1
        connection.close()


def test_two_envoys_stay_within_one_limit(upstream: int) -> None:
    ports, stop = [free_port(), free_port()], threading.Event()
    with Service(POLICY) as service:
        envoys = [EnvoyServer(_envoy(port, service.port, upstream)) for port in ports]
        try:
            for envoy in envoys:
                envoy.start()
            callers = [_Caller(port, stop) for port in ports]
            for caller in callers:
                caller.start()
            began = time.monotonic()

            def is_mostly_used() -> bool:
                """Most of what there is to share was used in the last seconds."""
                now = time.monotonic()
                times = [at for caller in callers for at in list(caller.admitted)]
                late = [at for at in times if at > now - _LATE_S]
                return now - began > _SETTLED_S and len(late) > 0.5 * _LATE_S * RATE

            wait_until(is_mostly_used, "most of what there is to share is used")
            stop.set()
            for caller in callers:
                caller.join()
        finally:
            stop.set()
            for envoy in envoys:
                envoy.close()
            for port in ports:
                release_port(port)
    admitted = sorted(at for caller in callers for at in caller.admitted)
    used, last = 0.0, admitted[0]
    for at in admitted:
        used = max(used - (at - last) * RATE, 0.0) + 1
        last = at
        assert used <= BURST + 5, "more than the limit, and what measuring may blur"
    assert all(caller.admitted and caller.refused for caller in callers)
