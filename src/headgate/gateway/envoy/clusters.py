"""The servers that Envoy talks to: the upstreams, and the decision service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.gateway.envoy.addresses import connecting, is_literal, place
from headgate.gateway.envoy.service import SERVICE
from headgate.gateway.envoy.tls import upstream_tls
from headgate.gateway.envoy.values import Json, seconds, typed
from headgate.settings import Address

if TYPE_CHECKING:
    from headgate.gateway.envoy.values import Places
    from headgate.gateway.settings import GatewaySettings
    from headgate.gateway.upstreams import Upstream

_PROTOCOL: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_BUFFER: Final = 32 * 1024
_HTTP_1: Final[Json] = {"http_protocol_options": {}}
_HTTP_2: Final[Json] = {
    "http2_protocol_options": {
        "initial_stream_window_size": 64 * 1024,
        "initial_connection_window_size": 1024 * 1024,
    }
}
_UNBOUNDED: Final = 2**32 - 1
_SERVICE_STREAMS: Final = 100
_SERVICE_FRAMES: Final = 100_000
_GRPC: Final = {"header": {"key": "content-type", "value": "application/grpc"}}
_TRAILERS: Final = {"header": {"key": "te", "value": "trailers"}}
_QUICK: Final = 0.25
_FAILURES: Final = 3
"""In a row; a decision that comes too late is one, too."""


def cluster_name(upstream: Upstream) -> str:
    """The name of the cluster of *upstream*: one for each server, whatever leads there."""
    return f"upstream {upstream.url}"


def upstream_clusters(settings: GatewaySettings, places: Places) -> list[Json]:
    """A cluster for each server among the upstreams."""
    servers = {cluster_name(one): one for one in settings.upstream}
    return [_upstream(one, settings, places) for one in servers.values()]


def service_cluster(settings: GatewaySettings, places: Places) -> Json:
    """The workers of the decision service.

    One that hangs costs the first requests their timeout; then it is left alone until it answers
    again, which is looked for twice a second. While all are left alone none is asked (a panic
    threshold of 0): rules then do at once what they do without the service.
    """
    return {
        **_cluster(SERVICE, [place(one) for one in places.grpc]),
        "connect_timeout": seconds(min(settings.decision_timeout, _QUICK)),
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "circuit_breakers": _without_breakers(),
        "health_checks": [_health_check(settings)],
        "outlier_detection": {
            "consecutive_5xx": _FAILURES,
            "enforcing_success_rate": 0,
            "interval": "0.1s",
            "base_ejection_time": "1s",
            "max_ejection_time": "2s",
            "max_ejection_percent": 100,
        },
        **_speaking(
            http2_protocol_options={
                "max_concurrent_streams": _SERVICE_STREAMS,
                "max_outbound_frames": _SERVICE_FRAMES,
                "connection_keepalive": {"interval": "10s", "timeout": "2s"},
            }
        ),
    }


def _health_check(settings: GatewaySettings) -> Json:
    """Any answer will do: it is whether one comes, in the time of a decision, that counts."""
    return {
        "interval": "0.5s",
        "no_traffic_interval": "0.5s",
        "unhealthy_interval": "0.5s",
        "timeout": seconds(max(settings.decision_timeout, _QUICK)),
        "unhealthy_threshold": 2,
        "healthy_threshold": 1,
        "http_health_check": {
            "path": "/grpc.health.v1.Health/Check",
            "method": "POST",
            "request_headers_to_add": [_GRPC, _TRAILERS],
            "codec_client_type": "HTTP2",
            "expected_statuses": [{"start": 200, "end": 600}],
        },
    }


def _upstream(upstream: Upstream, settings: GatewaySettings, places: Places) -> Json:
    name = cluster_name(upstream)
    server = Address(upstream.host, upstream.port, upstream.path)
    made = {
        **_cluster(name, [server]),
        "connect_timeout": seconds(settings.upstream_connect_timeout),
        "per_connection_buffer_limit_bytes": _BUFFER,
        "circuit_breakers": _without_breakers(),
        **_speaking(**(_HTTP_2 if upstream.is_http2 else _HTTP_1)),
    }
    if upstream.is_tls:
        made["transport_socket"] = upstream_tls(upstream.host, settings, places)
    return made


def _cluster(name: str, servers: list[Address]) -> Json:
    """Names are looked up again and again; IPv6 is used where there is no IPv4."""
    endpoints = [{"endpoint": {"address": connecting(one)}} for one in servers]
    is_fixed = all(one.is_unix or is_literal(one.host) for one in servers)
    named: Json = {"type": "STRICT_DNS", "dns_lookup_family": "V4_PREFERRED"}
    return {
        "name": name,
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
        **({"type": "STATIC"} if is_fixed else named),
    }


def _speaking(**options: Any) -> Json:
    made = typed(_PROTOCOL, explicit_http_config=options)
    return {"typed_extension_protocol_options": {_PROTOCOL: made}}


def _without_breakers() -> Json:
    """Envoy's own limits of 1,024 connections, requests and waiting ones are for other places."""
    names = "max_connections", "max_pending_requests", "max_requests", "max_retries"
    return {"thresholds": [dict.fromkeys(names, _UNBOUNDED)]}
