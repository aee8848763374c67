"""Which request goes to which upstream.

Envoy looks for a virtual host first, the exact name before the longest wildcard before any, and
takes the first route in it that fits. So the routes of a host are those for it, for the wildcards
that it is below, and for any host: within each the longest path first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.gateway.envoy.clusters import cluster_name
from headgate.gateway.envoy.values import seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.gateway.envoy.values import Edge, Json
    from headgate.gateway.upstreams import Upstream

_ANY: Final = "*"
_OF_ENVOY: Final = ("x-envoy-external-address", "x-envoy-internal")


def route_config(edge: Edge) -> Json:
    """The table of routes. What is for us alone goes no further."""
    hosts = sorted({one.for_host for one in edge.settings.upstream})
    return {
        "name": "upstreams",
        "ignore_port_in_host_matching": True,
        "request_headers_to_remove": [
            *_OF_ENVOY,
            *edge.address.internal,
            *edge.cookies.internal,
        ],
        "virtual_hosts": [_virtual_host(host, edge) for host in hosts],
    }


def _virtual_host(host: str, edge: Edge) -> Json:
    fitting = _fitting(host, edge.settings.upstream)
    refused = *edge.address.refused, *edge.cookies.refused
    return {
        "name": host or _ANY,
        "domains": [host or _ANY],
        "routes": [
            *({"match": match, "direct_response": {"status": 400}} for match in refused),
            *(_route(one, edge) for one in fitting),
        ],
    }


def _fitting(host: str, upstreams: Iterable[Upstream]) -> list[Upstream]:
    """The upstreams for requests to *host*, those to be tried first first."""
    found = [one for one in upstreams if _is_within(host, one.for_host)]
    return sorted(found, key=lambda one: (-len(one.for_host), -len(one.for_path)))


def _is_within(host: str, wanted: str) -> bool:
    """Whether all requests of *host*, which may be a wildcard, are requests of *wanted*."""
    is_below = wanted.startswith("*.") and host.endswith(wanted[1:])
    return host == wanted or not wanted or is_below


def _route(upstream: Upstream, edge: Edge) -> Json:
    path = upstream.for_path
    return {
        "match": {"prefix": "/"} if path == "/" else {"path_separated_prefix": path},
        "route": {
            "cluster": cluster_name(upstream),
            "timeout": seconds(edge.settings.upstream_timeout),
        },
        "response_headers_to_remove": list(edge.own_headers),
        **edge.address.to_upstream,
    }
