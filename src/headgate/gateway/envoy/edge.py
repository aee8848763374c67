"""How requests are taken from clients: Envoy's guide for proxies at the edge, and a little more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.gateway.envoy.access_log import access_logs
from headgate.gateway.envoy.discovery import placed_filters
from headgate.gateway.envoy.replies import local_replies
from headgate.gateway.envoy.routes import route_config
from headgate.gateway.envoy.values import extension, seconds

if TYPE_CHECKING:
    from headgate.gateway.envoy.values import Edge, Json
    from headgate.gateway.settings import GatewaySettings

_FILTERS: Final = "envoy.extensions.filters"
_MANAGER: Final = f"{_FILTERS}.network.http_connection_manager.v3.HttpConnectionManager"
_MUTATION: Final = "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation"
_KIB: Final = 1024
_MOST_HEADERS: Final = 100
_STREAM_WINDOW: Final = 64 * _KIB
_CONNECTION_WINDOW: Final = 1024 * _KIB


def connection_manager(edge: Edge) -> Json:
    """What reads requests, passes them through the filters, and routes them."""
    settings, address = edge.settings, edge.address
    return extension(
        "envoy.filters.network.http_connection_manager",
        _MANAGER,
        stat_prefix="gateway",
        route_config=route_config(edge),
        http_filters=[*_health(settings), *placed_filters(edge.filters, edge.places), _router()],
        local_reply_config=local_replies(),
        access_log=access_logs(settings),
        upgrade_configs=[{"upgrade_type": "websocket"}],
        early_header_mutation_extensions=[_mutated(edge)],
        **address.manager,
        **_paths(),
        **_bounds(settings),
    )


def _health(settings: GatewaySettings) -> list[Json]:
    """What answers load balancers, before any limit: 200, and 503 from when it is about to end."""
    if settings.health_path is None:
        return []
    kind = f"{_FILTERS}.http.health_check.v3.HealthCheck"
    path = {"name": ":path", "string_match": {"exact": settings.health_path}}
    name = "envoy.filters.http.health_check"
    return [extension(name, kind, pass_through_mode=False, headers=[path])]


def _router() -> Json:
    kind = f"{_FILTERS}.http.router.v3.Router"
    return extension("envoy.filters.http.router", kind, suppress_envoy_headers=True)


def _mutated(edge: Edge) -> Json:
    """What is done to headers first: nobody outside gives Envoy orders."""
    orders = {"remove_on_match": {"key_matcher": {"prefix": "x-envoy-"}}}
    return extension(
        "envoy.http.early_header_mutation.header_mutation",
        _MUTATION,
        mutations=[orders, *edge.address.mutations, *edge.cookies.mutations],
    )


def _paths() -> Json:
    """One spelling for a path, the one that rules see, upstreams see, and clients are told.

    An escaped slash may be a slash or not, depending on who reads it: the client is told to ask
    again with a slash.
    """
    return {
        "normalize_path": True,
        "merge_slashes": True,
        "path_with_escaped_slashes_action": "UNESCAPE_AND_REDIRECT",
    }


def _bounds(settings: GatewaySettings) -> Json:
    """Against clients that are slow, greedy, or sly. There is no bound on how long a request takes
    as long as something moves: streams and websockets have no end."""
    return {
        "common_http_protocol_options": {
            "idle_timeout": seconds(settings.client_idle_timeout),
            "headers_with_underscores_action": "REJECT_REQUEST",
            "max_headers_count": _MOST_HEADERS,
        },
        "http2_protocol_options": {
            "max_concurrent_streams": settings.client_max_streams,
            "initial_stream_window_size": _STREAM_WINDOW,
            "initial_connection_window_size": _CONNECTION_WINDOW,
        },
        "max_request_headers_kb": -(-settings.client_max_header // _KIB),
        "request_headers_timeout": seconds(settings.client_header_timeout),
        "stream_idle_timeout": seconds(settings.client_stream_idle_timeout),
        "request_timeout": "0s",
        "server_header_transformation": "PASS_THROUGH",
    }
