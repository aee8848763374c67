"""The texts: what was asked for is where it belongs, and what cannot be is said."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from headgate.config.gateway import GatewaySettings
from headgate.errors import OptionError
from headgate.gateway.envoy.filters import http_filters
from headgate.gateway.templates import GATEWAYS, TemplateOptions, gateway_named, template_options
from headgate.gateway.templates.options import Report
from headgate.policy.loader import read_policy

NAMES = [one.name for one in GATEWAYS]


def text(gateway: str, **asked: Any) -> str:
    return gateway_named(gateway).text(template_options(**asked))


def loaded(gateway: str, **asked: Any) -> Any:
    return yaml.safe_load(text(gateway, **asked))


@pytest.mark.parametrize("name", NAMES)
def test_every_place_is_filled(name: str) -> None:
    for is_open in ("open", "closed"):
        made = text(name, on_failure=is_open)
        assert "<<" not in made
        assert made.endswith("\n")
        assert not made.endswith("\n\n")
        assert not re.search(r"[ \t]\n", made)


@pytest.mark.parametrize("name", NAMES)
def test_texts_are_the_same_each_time(name: str) -> None:
    assert text(name) == text(name)


def test_an_unknown_gateway_is_refused_with_all_that_there_are() -> None:
    with pytest.raises(OptionError, match="nginx, caddy, traefik, envoy, istio"):
        gateway_named("haproxy")


OPTIONS = {"service", "grpc", "upstream", "listen", "server_name", "rules", "timeout", "full"}
APPLY = {
    "nginx": OPTIONS - {"grpc"},
    "caddy": OPTIONS - {"grpc", "full"},
    "traefik": OPTIONS - {"grpc", "full", "timeout"},
    "envoy": OPTIONS - {"service", "full"},
    "istio": {"grpc", "rules", "timeout"},
}


@pytest.mark.parametrize("name", NAMES)
def test_an_option_either_counts_or_there_is_a_reason(name: str) -> None:
    gateway = gateway_named(name)
    gateway.check(APPLY[name])
    for option in OPTIONS - APPLY[name]:
        with pytest.raises(OptionError, match=f"--{option.replace('_', '-')} .*{name}: "):
            gateway.check([option])


def test_traefik_cannot_be_asked_to_open() -> None:
    gateway = gateway_named("traefik")
    assert gateway.on_failure(None) == gateway.on_failure("closed") == "closed"
    with pytest.raises(OptionError, match="always denies"):
        gateway.on_failure("open")


@pytest.mark.parametrize("asked", [{"service": "unix:/run/a"}, {"upstream": "unix:/run/a"}])
def test_traefik_asks_at_no_unix_socket(asked: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="unix socket"):
        text("traefik", **asked)


def test_traefik_has_the_address_the_rule_and_the_upstream() -> None:
    made = loaded("traefik", service="http://h:1", upstream="https://u", server_name="a.example")
    auth = made["http"]["middlewares"]["headgate"]["forwardAuth"]
    assert auth == {"address": "http://h:1/v1/authorize", "trustForwardHeader": False}
    assert made["http"]["routers"]["headgate"]["rule"] == "Host(`a.example`)"
    servers = made["http"]["services"]["headgate-upstream"]["loadBalancer"]["servers"]
    assert servers == [{"url": "https://u:443"}]
    below = loaded("traefik", server_name="*.a.example")["http"]["routers"]["headgate"]["rule"]
    assert below == r"HostRegexp(`^[^.]+\.a\.example$`)"


def test_traefik_passes_on_the_headers_of_the_rules_if_they_are_known() -> None:
    made = yaml.safe_load(gateway_named("traefik").text(TemplateOptions(headers=("x-a", "x-'b"))))
    auth = made["http"]["middlewares"]["headgate"]["forwardAuth"]
    assert auth["authRequestHeaders"] == ["x-a", "x-'b", "headgate-debug"]


def ratelimit(made: Any) -> Any:
    [chain] = made["static_resources"]["listeners"][0]["filter_chains"]
    return chain["filters"][0]["typed_config"]["http_filters"][0]["typed_config"]


def test_the_printed_filter_of_envoy_is_that_of_the_gateway() -> None:
    policy = read_policy(b"version: 1\nrules: [{id: a, key_by: ip, limit: 1/s}]")
    own = {one.name: one for one in http_filters(policy, GatewaySettings())}["exact-open"].config
    printed = ratelimit(loaded("envoy"))
    shared = (own.keys() & printed.keys()) - {"rate_limits"}
    assert {"domain", "timeout", "failure_mode_deny", "rate_limit_service"} < shared
    assert {name: printed[name] for name in shared} == {name: own[name] for name in shared}
    first, second = (made["rate_limits"][0]["actions"] for made in (own, printed))
    names = [one["request_headers"]["header_name"] for one in first if one not in second]
    assert names == ["x-api-key", "x-tenant-id", "x-tier", "x-user-id"]


def test_envoy_names_the_headers_of_the_rules() -> None:
    wanted = TemplateOptions(headers=("host", "x-a", "x-'b"))
    made = ratelimit(yaml.safe_load(gateway_named("envoy").text(wanted)))
    actions = made["rate_limits"][0]["actions"]
    keys = [one.get("request_headers", {}).get("descriptor_key") for one in actions[:5]]
    assert keys == ["headgate.debug", "method", "path", "host", None]
    lines = [one["extension"]["typed_config"] for one in actions[5:]]
    assert [one["descriptor_key"] for one in lines] == ["x-a", "x-'b"]
    assert [one["text"] for one in lines] == ['request.headers["x-a"]', 'request.headers["x-\'b"]']
    # An action that finds nothing makes the whole descriptor go, and the limits with it.
    assert all(one["request_headers"]["skip_if_absent"] for one in actions[:4])
    assert all(one["skip_if_error"] for one in lines)


def test_envoy_reports_to_rules_whose_costs_are_known_afterwards() -> None:
    wanted = TemplateOptions(headers=("x-a",), reports=(Report("llm", "x-tokens"), Report("big")))
    asked, first, second = ratelimit(yaml.safe_load(gateway_named("envoy").text(wanted)))[
        "rate_limits"
    ]
    for report, rule, amount in (
        (first, "llm", "%RESPONSE_HEADER(x-tokens)%"),
        (second, "big", "%BYTES_SENT%"),
    ):
        assert report["apply_on_stream_done"]
        assert report["hits_addend"] == {"format": amount}
        named, refused, *entries = report["actions"]
        assert named["generic_key"]["descriptor_value"] == rule
        assert refused["metadata"]["skip_if_absent"]
        assert entries == asked["actions"][1:]  # the first is the debug token
    assert "apply_on_stream_done" not in asked


@pytest.mark.parametrize("on_failure", ["open", "closed"])
def test_envoy_fails_as_it_was_asked_for(on_failure: str) -> None:
    made = ratelimit(loaded("envoy", on_failure=on_failure, timeout=1.5))
    assert made["failure_mode_deny"] == (on_failure == "closed")
    assert ("status_on_error" in made) == (on_failure == "closed")
    assert made["timeout"] == "1.5s"


def test_envoy_finds_addresses_and_names_each_in_its_way() -> None:
    made = loaded("envoy", grpc="unix:/run/h.sock", upstream="https://[2001:db8::1]:8443")
    service, upstream = made["static_resources"]["clusters"]
    assert service["type"] == upstream["type"] == "STATIC"
    assert "/run/h.sock" in json.dumps(service["load_assignment"])
    tls = upstream["transport_socket"]["typed_config"]
    assert "sni" not in tls
    assert "IP_ADDRESS" in json.dumps(tls)
    named = loaded("envoy", grpc="headgate:8091", upstream="https://shop.example")
    service, upstream = named["static_resources"]["clusters"]
    assert service["type"] == upstream["type"] == "STRICT_DNS"
    assert upstream["transport_socket"]["typed_config"]["sni"] == "shop.example"


def test_istio_adds_the_same_filter_and_the_cluster_it_asks() -> None:
    made = loaded("istio", grpc="headgate:8091")
    asking, cluster = made["spec"]["configPatches"]
    assert asking["patch"]["value"]["typed_config"] == ratelimit(loaded("envoy"))
    envoys = loaded("envoy", grpc="headgate:8091")["static_resources"]["clusters"][0]
    assert cluster["patch"]["value"] == envoys


def test_nginx_opens_only_if_asked_to() -> None:
    assert "error_page 502 504 = @headgate_open;" in text("nginx")
    assert "@headgate_open" not in text("nginx", on_failure="closed")


@pytest.mark.parametrize("name", ["nginx", "caddy"])
def test_gateways_wait_as_long_as_rules_delay_a_request(name: str) -> None:
    rules = """
version: 1
rules:
  - {id: a, key_by: ip, shape: {rate: 10/s, queue: 100, max_wait: 4s}}
  - {id: b, key_by: ip, shape: {rate: 2/s, queue: 3}}
  - {id: c, key_by: ip, shape: {rate: 1/s, queue: 60}, mode: shadow}
"""
    text = gateway_named(name).text(template_options(policy=read_policy(rules)))
    assert text.count("4250ms") == 1
    assert "250ms" in text.replace("4250ms", "")
    assert "4250ms" not in gateway_named(name).text(template_options())


def test_nginx_verifies_what_it_speaks_tls_with() -> None:
    made = text("nginx", upstream="https://shop.example", service="https://limits.example")
    assert made.count("proxy_ssl_verify on;") == 2
    assert "proxy_pass https://headgate/v1/authorize?deny=403;" in made
    assert "proxy_ssl_name shop.example;" in made


def test_nginx_lets_rules_see_what_clients_accept() -> None:
    nginx = gateway_named("nginx").text
    assert "proxy_set_header Accept application/json;" in nginx(TemplateOptions())
    assert "Accept" not in nginx(TemplateOptions(headers=("accept",)))


@pytest.mark.parametrize(("name", "is_full"), [("nginx", True), ("caddy", False)])
def test_blocks_are_closed(name: str, is_full: bool) -> None:
    made = text(name, is_full=is_full)
    code = "\n".join(line for line in made.splitlines() if not line.lstrip().startswith("#"))
    assert code.count("{") == code.count("}")
