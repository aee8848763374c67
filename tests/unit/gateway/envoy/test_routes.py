"""Which request goes to which upstream."""

from __future__ import annotations

from typing import Any

from headgate.config.gateway import GatewaySettings, parse_upstream
from headgate.gateway.envoy.client_address import client_address
from headgate.gateway.envoy.listener import route_config
from headgate.gateway.envoy.values import Edge, Places
from headgate.policy.model import Policy


def _table(*upstreams: str, **settings: Any) -> dict[str, list[tuple[str, str]]]:
    """For each virtual host the paths and clusters, in their order."""
    made = GatewaySettings(upstream=tuple(map(parse_upstream, upstreams)), **settings)
    edge = Edge(made, Places("/run", ("/grpc",), "/admin"), client_address(Policy(), made))
    return {
        host["domains"][0]: [
            (
                route["match"].get("path_separated_prefix", route["match"].get("prefix")),
                route["route"]["cluster"].removeprefix("upstream http://").removesuffix(":80"),
            )
            for route in host["routes"]
            if "route" in route
        ]
        for host in route_config(edge)["virtual_hosts"]
    }


def test_of_several_paths_the_longest_is_tried_first() -> None:
    table = _table("http://any", "/a=http://a", "/a/b/c=http://c", "/a/b=http://b")
    assert table == {"*": [("/a/b/c", "c"), ("/a/b", "b"), ("/a", "a"), ("/", "any")]}


def test_a_host_has_its_own_routes_before_those_of_wildcards_and_of_any() -> None:
    table = _table(
        "/x=http://any", "a.org/y=http://a", "*.org=http://below", "*.b.org/long/path=http://b"
    )
    assert table["a.org"] == [("/y", "a"), ("/", "below"), ("/x", "any")]
    assert table["*.b.org"] == [("/long/path", "b"), ("/", "below"), ("/x", "any")]
    assert table["*.org"] == [("/", "below"), ("/x", "any")]
    assert table["*"] == [("/x", "any")]


def test_without_an_upstream_there_is_no_route() -> None:
    assert _table() == {}
