"""What Envoy reads once, when it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.gateway.envoy.addresses import place, private
from headgate.gateway.envoy.clusters import service_cluster, upstream_clusters
from headgate.gateway.envoy.discovery import LISTENERS, from_file
from headgate.gateway.envoy.values import Json, extension

if TYPE_CHECKING:
    from headgate.gateway.envoy.values import Places
    from headgate.gateway.settings import GatewaySettings

_NAME: Final = "headgate"
_LARGEST_REGEX: Final = 100_000
_RUNTIME: Final[Json] = {
    "re2": {"max_program_size": {"error_level": _LARGEST_REGEX, "warn_level": _LARGEST_REGEX}}
}
"""Envoy refuses all but small patterns; ours are made from rules, and RE2 is linear in any."""

_CONNECTIONS: Final = "envoy.resource_monitors.global_downstream_max_connections"


def bootstrap(settings: GatewaySettings, places: Places) -> Json:
    """The clusters, the admin page, and where the rest is discovered."""
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
    """Without what there would be much of with thousands of rules, and what nobody looks at."""
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
