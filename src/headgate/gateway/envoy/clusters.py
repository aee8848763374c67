"""The servers that Envoy talks to: the upstreams, and the decision service."""

from __future__ import annotations

import json
from hashlib import sha256
from ipaddress import ip_address
from posixpath import dirname
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from headgate.config.values import UNIX, Address, parse_address
from headgate.errors import OptionError
from headgate.gateway.envoy.values import SERVICE, Json, extension, seconds, typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.config.gateway import GatewaySettings, Upstream
    from headgate.gateway.envoy.values import HttpFilter, Places


# Addresses, as Envoy's configuration writes them.


_LOCALHOST: Final = "localhost"
_PRIVATE: Final = 0o600


def place(text: str) -> Address:
    """Parse *text*: the path of a socket, or `host:port`."""
    return parse_address(f"{UNIX}{text}" if text.startswith("/") else text)


def connecting(address: Address) -> Json:
    """An address to connect to."""
    if address.is_unix:
        return {"pipe": {"path": address.path}}
    return {"socket_address": {"address": address.host, "port_value": address.port}}


def listening(address: Address) -> Json:
    """An address to listen on. Raises `OptionError` for a name, which Envoy does not resolve here.

    `[::]` listens on IPv6 only, as in the service.
    """
    if address.host == _LOCALHOST:
        return connecting(Address("127.0.0.1", address.port))
    if address.host and not is_literal(address.host):
        expected = "expected an address such as 127.0.0.1, 0.0.0.0 or [::]"
        raise OptionError(f"listen: {address.host} is a name; {expected}")
    return connecting(address)


def private(address: Address) -> Json:
    """An address to listen on; a socket is accessible only to its owner."""
    made = connecting(address)
    if "pipe" in made:
        made["pipe"]["mode"] = _PRIVATE
    return made


def is_literal(host: str) -> bool:
    """True if *host* is an address rather than a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


# Configuration that Envoy discovers from files.


LISTENERS: Final = "listeners.json"
MOST_DISCOVERED: Final = 24
"""The number of filters that are discovered, each from its own file; more are in the listener.

Envoy needs an inotify instance for each watched file and exits without one; Linux gives a user 128.
A changed filter in the listener replaces the listener: existing connections keep their old rules
and are asked to close."""


def from_file(path: str) -> Json:
    """The configuration source at *path*, read again when the file is replaced."""
    return {"resource_api_version": "V3", "path_config_source": {"path": path}}


def discovered(resources: list[Json]) -> Json:
    """The content of a discovered file. Its version is a hash of the content."""
    text = json.dumps(resources, sort_keys=True).encode()
    return {"version_info": sha256(text).hexdigest()[:16], "resources": resources}


def filter_documents(filters: Sequence[HttpFilter]) -> dict[str, Json]:
    """The files of *filters*, by name."""
    if len(filters) > MOST_DISCOVERED:
        return {}
    return dict(map(_filter_document, filters))


def placed_filters(filters: Sequence[HttpFilter], places: Places) -> list[Json]:
    """The entries of *filters* in the chain. A discovered filter has no default: the listener does
    not serve, or rejects requests, until Envoy has it."""
    if len(filters) > MOST_DISCOVERED:
        return inline_filters(filters)
    return [_discovering(one, places) for one in filters]


def inline_filters(filters: Sequence[HttpFilter]) -> list[Json]:
    """The entries of *filters* in the chain, none of them discovered."""
    return [{"name": one.name, "typed_config": one.config} for one in filters]


def _filter_document(one: HttpFilter) -> tuple[str, Json]:
    resource = typed(
        "envoy.config.core.v3.TypedExtensionConfig", name=one.name, typed_config=one.config
    )
    return _filter_file(one.name), discovered([resource])


def _discovering(one: HttpFilter, places: Places) -> Json:
    return {
        "name": one.name,
        "config_discovery": {
            "config_source": from_file(f"{places.directory}/{_filter_file(one.name)}"),
            "type_urls": [one.config["@type"]],
        },
    }


def _filter_file(name: str) -> str:
    return f"filter-{quote(name, safe='')}.json"


# TLS for clients and upstreams.
#
# Certificates for clients are discovered from files, so that a renewed one is used as soon as it is
# moved to its place. Existing connections keep the old one.


_PACKAGE: Final = "envoy.extensions.transport_sockets.tls.v3"
_SOCKET: Final = "envoy.transport_sockets.tls"
_VERSIONS: Final = {"tls_minimum_protocol_version": "TLSv1_2"}
_CERTIFICATE: Final = "certificate"
_CLIENT_CA: Final = "client-ca"


def secret_documents(settings: GatewaySettings) -> dict[str, Json]:
    """The files with the paths of certificates for clients, by name."""
    made: dict[str, Json] = {}
    cert, key, ca = (
        settings.listen_tls_cert,
        settings.listen_tls_key,
        settings.listen_tls_client_ca,
    )
    if cert is not None and key is not None:
        files = {"certificate_chain": {"filename": cert}, "private_key": {"filename": key}}
        watched = _watched(cert) if dirname(cert) == dirname(key) else {}
        made[_file(_CERTIFICATE)] = _secret(_CERTIFICATE, tls_certificate=files | watched)
    if ca is not None:
        trusted = {"trusted_ca": {"filename": ca}, **_watched(ca)}
        made[_file(_CLIENT_CA)] = _secret(_CLIENT_CA, validation_context=trusted)
    return made


def listening_tls(settings: GatewaySettings, places: Places) -> Json | None:
    """The TLS of client connections; None if they are not encrypted."""
    if settings.listen_tls_cert is None:
        return None
    context: Json = {
        "tls_params": _VERSIONS,
        "alpn_protocols": ["h2", "http/1.1"],
        "tls_certificate_sds_secret_configs": [_tls_discovering(_CERTIFICATE, places)],
    }
    has_client_ca = settings.listen_tls_client_ca is not None
    if has_client_ca:
        context["validation_context_sds_secret_config"] = _tls_discovering(_CLIENT_CA, places)
    return extension(
        _SOCKET,
        f"{_PACKAGE}.DownstreamTlsContext",
        common_tls_context=context,
        require_client_certificate=has_client_ca,
    )


def upstream_tls(host: str, settings: GatewaySettings, places: Places) -> Json:
    """The TLS of connections to the upstream *host*, whose certificate is verified."""
    is_name = not is_literal(host)
    name = {"san_type": "DNS" if is_name else "IP_ADDRESS", "matcher": {"exact": host}}
    context = {
        "tls_params": _VERSIONS,
        "validation_context": {
            "trusted_ca": {"filename": settings.upstream_ca or places.system_ca},
            "match_typed_subject_alt_names": [name],
        },
    }
    sni = {"sni": host} if is_name else {}
    return extension(_SOCKET, f"{_PACKAGE}.UpstreamTlsContext", common_tls_context=context, **sni)


def _file(name: str) -> str:
    return f"secret-{name}.json"


def _secret(name: str, **content: Json) -> Json:
    return discovered([typed(f"{_PACKAGE}.Secret", name=name, **content)])


def _tls_discovering(name: str, places: Places) -> Json:
    return {"name": name, "sds_config": from_file(f"{places.directory}/{_file(name)}")}


def _watched(path: str) -> Json:
    return {"watched_directory": {"path": dirname(path) or "."}}


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
"""Failures in a row; a late decision is one, too."""


def cluster_name(upstream: Upstream) -> str:
    """The name of the cluster of *upstream*: one for each server."""
    return f"upstream {upstream.url}"


def upstream_clusters(settings: GatewaySettings, places: Places) -> list[Json]:
    """A cluster for each server among the upstreams."""
    servers = {cluster_name(one): one for one in settings.upstream}
    return [_upstream(one, settings, places) for one in servers.values()]


def service_cluster(settings: GatewaySettings, places: Places) -> Json:
    """The workers of the decision service.

    A worker that hangs delays the first requests by their timeout. Then it is ejected until it
    answers health checks, twice a second. While all are ejected none is called (a panic
    threshold of 0): rules then fail open or closed at once.
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
    """Any response within the decision timeout is healthy."""
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
    """A cluster of *servers*. Names are resolved repeatedly; IPv4 is preferred."""
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
    """Lift Envoy's default limits of 1,024 connections, requests and pending requests."""
    names = "max_connections", "max_pending_requests", "max_requests", "max_retries"
    return {"thresholds": [dict.fromkeys(names, _UNBOUNDED)]}


# The bootstrap, which Envoy reads once.


_NAME: Final = "headgate"
_LARGEST_REGEX: Final = 100_000
_RUNTIME: Final[Json] = {
    "re2": {"max_program_size": {"error_level": _LARGEST_REGEX, "warn_level": _LARGEST_REGEX}}
}
"""Envoy rejects large patterns by default; ours are made from rules, and RE2 is linear."""

_CONNECTIONS: Final = "envoy.resource_monitors.global_downstream_max_connections"


def bootstrap(settings: GatewaySettings, places: Places) -> Json:
    """The bootstrap: clusters, admin page, and the place of discovered files."""
    return {
        "node": {"id": _NAME, "cluster": _NAME},
        "admin": {"address": private(place(places.admin))},
        "dynamic_resources": {"lds_config": from_file(f"{places.directory}/{LISTENERS}")},
        "static_resources": {
            "clusters": [service_cluster(settings, places), *upstream_clusters(settings, places)]
        },
        "overload_manager": _overload(settings),
        "layered_runtime": {"layers": [{"name": "headgate", "static_layer": _RUNTIME}]},
        "stats_config": _stats(),
    }


def _stats() -> Json:
    """Leave out statistics that grow with the number of rules or have no use."""
    unused = r"control_plane\..*|init_fetch_timeout|update_.*|version.*|config_reload_time_ms"
    patterns: list[Json] = [
        {"safe_regex": {"regex": rf"extension_config_discovery\..*\.(?:{unused})"}},
        {"prefix": "vhost."},
    ]
    return {"stats_matcher": {"exclusion_list": {"patterns": patterns}}}


def _overload(settings: GatewaySettings) -> Json:
    kind = (
        "envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig"
    )
    most = settings.client_max_connections
    return {
        "resource_monitors": [extension(_CONNECTIONS, kind, max_active_downstream_connections=most)]
    }
