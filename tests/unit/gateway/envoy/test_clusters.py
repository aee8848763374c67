"""The servers that Envoy talks to."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.config.gateway import GatewaySettings, parse_upstream
from headgate.gateway.envoy.clusters import service_cluster, upstream_clusters
from headgate.gateway.envoy.values import Places

_PLACES = Places("/run", ("/run/grpc.sock", "10.0.0.1:8091"), "/admin", "/ca.pem")


def _clusters(*upstreams: str, **settings: Any) -> list[Any]:
    made = GatewaySettings(upstream=tuple(map(parse_upstream, upstreams)), **settings)
    return upstream_clusters(made, _PLACES)


def _addresses(cluster: Any) -> list[Any]:
    [place] = cluster["load_assignment"]["endpoints"]
    return [one["endpoint"]["address"] for one in place["lb_endpoints"]]


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("http://10.0.0.1", "STATIC"),
        ("http://[::1]:8000", "STATIC"),
        ("unix:/run/a.sock", "STATIC"),
        ("http://app", "STRICT_DNS"),
        ("grpc://app.example.com:50051", "STRICT_DNS"),
    ],
)
def test_only_names_are_looked_up(url: str, kind: str) -> None:
    [cluster] = _clusters(url)
    assert cluster["type"] == kind


def test_a_server_is_one_cluster_whatever_leads_there() -> None:
    clusters = _clusters("/a=http://app", "/b=http://app", "/c=https://app", "/d=grpc://app")
    names = [cluster["name"] for cluster in clusters]
    assert names == [
        "upstream http://app:80",
        "upstream https://app:443",
        "upstream grpc://app:80",
    ]


@pytest.mark.parametrize(
    ("url", "san", "sni"),
    [
        ("https://app.example.com", ("DNS", "app.example.com"), "app.example.com"),
        ("https://10.0.0.1", ("IP_ADDRESS", "10.0.0.1"), None),
    ],
)
def test_an_encrypted_upstream_is_verified_by_name(
    url: str, san: tuple[str, str], sni: str | None
) -> None:
    [cluster] = _clusters(url)
    tls = cluster["transport_socket"]["typed_config"]
    context = tls["common_tls_context"]["validation_context"]
    [name] = context["match_typed_subject_alt_names"]
    assert (name["san_type"], name["matcher"]["exact"]) == san
    assert tls.get("sni") == sni
    assert context["trusted_ca"] == {"filename": "/ca.pem"}
    [cluster] = _clusters(url, upstream_ca="/own.pem")
    context = cluster["transport_socket"]["typed_config"]["common_tls_context"]
    assert context["validation_context"]["trusted_ca"] == {"filename": "/own.pem"}


def test_every_worker_of_the_service_is_an_endpoint_and_none_is_asked_while_all_are_gone() -> None:
    cluster = service_cluster(GatewaySettings(), _PLACES)
    assert _addresses(cluster) == [
        {"pipe": {"path": "/run/grpc.sock"}},
        {"socket_address": {"address": "10.0.0.1", "port_value": 8091}},
    ]
    assert cluster["common_lb_config"]["healthy_panic_threshold"] == {"value": 0}
    assert cluster["health_checks"]
