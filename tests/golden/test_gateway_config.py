"""Configurations for gateways: `headgate gateway config`, and what `headgate up` has Envoy read."""

import json
import shlex
from typing import Any

import pytest

from tests.golden.command_line import CORPUS, ROOT, run
from tests.golden.python_api import envoy_files
from tests.golden.recorder import check_text, check_wire

GATEWAYS = ("nginx", "caddy", "traefik", "envoy", "istio")
POLICIES = {
    path.stem: path
    for path in [
        *sorted((ROOT / "examples/policies").glob("*.yaml")),
        ROOT / "examples/traces/proposed.yaml",
        ROOT / "deploy/rules.yaml",
        CORPUS / "explain.yaml",
    ]
}

OPTIONS = (
    "nginx --full",
    "nginx --full --on-failure closed --timeout 1.5",
    "nginx --service unix:/run/headgate/http.sock --upstream https://app.example.org",
    "nginx --server-name example.org --listen 0.0.0.0:80 --upstream http://[::1]:9000",
    "nginx --service https://headgate.internal:8443",
    "caddy --on-failure closed",
    "caddy --service unix:/run/headgate/http.sock --server-name example.org",
    "caddy --listen [::1]:8080 --upstream https://app.example.org:8443 --timeout 2",
    "traefik --server-name example.org --upstream https://app.example.org",
    "traefik --on-failure closed",
    "envoy --grpc 10.0.0.7:8091 --listen 0.0.0.0:80 --upstream https://app.example.org",
    "envoy --on-failure closed --timeout 0.05 --server-name example.org",
    "istio --grpc headgate-grpc.prod.svc.cluster.local:9000 --on-failure closed",
)

WRONG = (
    "nginx --grpc 127.0.0.1:8091",
    "caddy --full",
    "traefik --timeout 3",
    "envoy --service http://127.0.0.1:8090",
    "istio --listen 127.0.0.1:80",
    "istio --upstream http://127.0.0.1:80",
    "haproxy",
    "nginx --service nonsense",
    "nginx --upstream 'http://a b'",
    "nginx --server-name 'a;b'",
    "nginx --timeout 0",
    "nginx --rules missing.yaml",
    "nginx --on-failure maybe",
    "envoy --grpc nonsense",
)

UP: dict[str, tuple[str, dict[str, Any]]] = {
    "quota": ("fragile-downstream", {"decide": "quota", "gateway_count": 3}),
    "local": ("public-api", {"decide": "local", "gateway_count": 2}),
    "tls": (
        "rules",
        {
            "listen": [("0.0.0.0", 8443), ("", 0, "/run/gateway/http.sock")],  # noqa: S104
            "listen_tls_cert": "/tls/a.crt",
            "listen_tls_key": "/tls/a.key",
            "listen_tls_client_ca": "/tls/ca.crt",
            "upstream_ca": "/tls/upstream.crt",
            "health_path": "/healthz",
            "access_log": "-",
            "envoy_admin": None,
            "upstream_timeout": 30.0,
            "client_max_header": 8192,
        },
    ),
}
UPSTREAMS = {
    "tls": (
        "https://app.example.org",
        "/shop=http://127.0.0.1:9001",
        "api.example.com=grpc://127.0.0.1:9002",
        "*.example.net/v1=unix:/run/app.sock",
    )
}


def without_comments(text: str) -> list[str]:
    """The lines that a gateway reads."""
    lines = (line.rstrip() for line in text.splitlines())
    return [line for line in lines if line and not line.lstrip().startswith("#")]


@pytest.mark.parametrize("gateway", GATEWAYS)
def test_a_configuration_is_printed_for_every_example_policy(gateway: str) -> None:
    wire = {}
    for name, path in POLICIES.items():
        ran = run("gateway", "config", gateway, "--rules", str(path))
        wire[name] = {"status": ran.status, "lines": without_comments(ran.out)}
    check_wire(f"gateway_config_{gateway}", wire)
    check_text(f"gateway_config_{gateway}", run("gateway", "config", gateway).out)


def test_options_change_the_configuration() -> None:
    wire: dict[str, object] = {}
    for options in OPTIONS:
        ran = run("gateway", "config", *shlex.split(options))
        wire[options] = {"status": ran.status, "lines": without_comments(ran.out)}
    ran = run("gateway", "config", "envoy", "--json")
    wire["envoy --json"] = {
        name: type(value).__name__ for name, value in json.loads(ran.out).items()
    }
    check_wire("gateway_config_options", wire)


def test_options_that_mean_nothing_are_wrong_usage() -> None:
    found = {options: run("gateway", "config", *shlex.split(options)) for options in WRONG}
    check_wire("gateway_config_wrong", {call: ran.status for call, ran in found.items()})
    text = "".join(ran.as_text(f"gateway config {call}") for call, ran in found.items())
    check_text("gateway_config_wrong", text)


def test_envoy_is_configured_for_every_example_policy() -> None:
    prose = []
    for name, path in POLICIES.items():
        made = envoy_files(path.read_text(encoding="utf-8"), ["http://127.0.0.1:9000"])
        prose += [f"=== {name}", *made.pop("prose")]
        bootstrap = made["files"].pop("bootstrap.json")  # one for all policies
        check_wire(f"envoy_{name}", made)
        check_wire("envoy_bootstrap", bootstrap)
    check_text("envoy", "\n".join(prose))


def test_settings_of_the_gateway_change_what_envoy_reads() -> None:
    prose = []
    for case, (name, settings) in UP.items():
        policy = POLICIES[name].read_text(encoding="utf-8")
        made = envoy_files(policy, UPSTREAMS.get(case, ["http://127.0.0.1:9000"]), **settings)
        prose += [f"=== {case}", *made.pop("prose")]
        check_wire(f"envoy_settings_{case}", made)
    check_text("envoy_settings", "\n".join(prose))
