"""What is printed with other options: real gateways take it, and some of it is run."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.sync.server import serve

from tests.support.decision_service import PLAIN, serving
from tests.support.gateway_templates import RULES, app, at, gateway, printed
from tests.support.servers import wait_until
from tests.support.servers.envoy import envoy_binary
from tests.support.servers.process import run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from websockets.sync.server import ServerConnection

OWN = ["--listen", "[::1]:18080", "--server-name", "*.example.org"]
VARIANTS = [
    ["--on-failure", "closed", "--timeout", "2"],
    [*OWN, "--upstream", "https://localhost"],
    ["--upstream", "unix:/run/app.sock", "--server-name", "example.org"],
    ["--upstream", "http://[::1]:9000"],
]


def check(name: str, text: str, directory: Path) -> None:
    """Have the gateway *name* look at *text*; `ServerError` with what it says if it is wrong."""
    written = directory / ("envoy.yaml" if name == "envoy" else name)
    written.write_text(text, encoding="utf-8")
    calls: dict[str, Sequence[str]] = {
        "nginx": ["nginx", "-t", "-p", str(directory), "-c", str(written)],
        "caddy": ["caddy", "validate", "--adapter", "caddyfile", "--config", str(written)],
        "envoy": [envoy_binary(), "--mode", "validate", "-c", str(written)],
    }
    run(*calls[name], env={"HOME": str(directory)})


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant[-1])
@pytest.mark.parametrize("name", ["nginx", "caddy", "envoy"])
def test_gateways_take_what_is_printed(name: str, variant: list[str], tmp_path: Path) -> None:
    more = ["--full"] if name == "nginx" else []
    check(name, printed(name, *variant, *more), tmp_path)


@pytest.mark.parametrize("place", ["https://localhost:8443", "unix:/run/h.sock", "http://[::1]:1"])
@pytest.mark.parametrize("name", ["nginx", "caddy", "envoy"])
def test_gateways_take_where_the_service_is(name: str, place: str, tmp_path: Path) -> None:
    more = ["--full"] if name == "nginx" else []
    where = ["--service", place]
    if name == "envoy":
        where = ["--grpc", place.partition("//")[2] or place]
    check(name, printed(name, *where, *more), tmp_path)


def test_websockets_pass_and_count(tmp_path: Path) -> None:
    def echo(connection: ServerConnection) -> None:
        for message in connection:
            connection.send(message)

    with ExitStack() as stack:
        server = stack.enter_context(serve(echo, "127.0.0.1", 0))
        thread = Thread(target=server.serve_forever)
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        upstream = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        service = stack.enter_context(serving(tmp_path, rules=RULES, grpc=1))
        for name in ("nginx", "caddy", "envoy"):
            made = gateway(name, tmp_path / name, *at(service, name), upstream=upstream)
            url = stack.enter_context(made).replace("http:", "ws:")
            key = {"x-api-key": name}
            for _ in range(2):
                with connect(f"{url}/api/chat", additional_headers=key, proxy=None) as socket:
                    socket.send("hello")
                    assert socket.recv(timeout=10) == "hello", name
            with pytest.raises(InvalidStatus) as refused:
                connect(f"{url}/api/chat", additional_headers=key, proxy=None)
            assert refused.value.response.status_code == 429, name


def test_a_server_name_is_that_of_hosts_with_a_port_too(tmp_path: Path) -> None:
    with ExitStack() as stack:
        upstream = stack.enter_context(app())
        for name in ("nginx", "caddy", "envoy"):
            for asked, host in (("*.example.org", "a.example.org"), ("example.org", "example.org")):
                own = ["--server-name", asked]
                directory = tmp_path / f"{name}-{host}"
                with gateway(name, directory, *own, upstream=upstream) as url:
                    for sent in (host, f"{host}:8080"):
                        reply = PLAIN.get(f"{url}/status/201", headers={"host": sent})
                        assert reply.status_code == 201, (name, sent)


def test_envoy_takes_the_patches_for_istio(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES, encoding="utf-8")
    istio = yaml.safe_load(printed("istio", "--rules", str(rules), "--on-failure", "closed"))
    asking, cluster = (patch["patch"]["value"] for patch in istio["spec"]["configPatches"])
    bootstrap: Any = yaml.safe_load(printed("envoy"))
    resources = bootstrap["static_resources"]
    resources["clusters"][0] = cluster
    [chain] = resources["listeners"][0]["filter_chains"]
    chain["filters"][0]["typed_config"]["http_filters"][0] = asking
    check("envoy", yaml.safe_dump(bootstrap), tmp_path)


def test_gateways_ask_over_a_unix_socket(tmp_path: Path) -> None:
    where = f"unix:{tmp_path}/headgate.sock"

    def as_root(text: str) -> str:  # or its workers are nobody's if root runs the tests
        return f"user root;\n{text}" if text.lstrip().startswith("# Runs as it is") else text

    with ExitStack() as stack:
        upstream = stack.enter_context(app())
        stack.enter_context(serving(tmp_path, rules=RULES, http=where, is_awaited=False))
        for name in ("nginx", "caddy"):
            asking = ["--service", where]
            made = gateway(name, tmp_path / name, *asking, upstream=upstream, edited=as_root)
            url = stack.enter_context(made)
            wait_until(partial(_is_counted, f"{url}/status/200"), "the service answers")
            key = {"x-api-key": name}
            statuses = [PLAIN.get(f"{url}/api/a", headers=key).status_code for _ in range(3)]
            assert statuses == [200, 200, 429], name


def _is_counted(url: str) -> bool:
    return "ratelimit" in PLAIN.get(url).headers


def test_a_gateway_that_the_service_does_not_know_is_told_so(tmp_path: Path) -> None:
    """Not as a limit: a client could wait for ever."""
    with (
        app() as upstream,
        serving(tmp_path, "--gateways", "192.0.2.0/24", rules=RULES) as service,
        gateway("nginx", tmp_path / "n", "--service", service.url, upstream=upstream) as url,
    ):
        assert PLAIN.get(f"{url}/api/a").status_code == 503


def test_a_rule_that_fails_closed_does_so_behind_a_gateway_that_opens(tmp_path: Path) -> None:
    rules = """
version: 1
rules:
  - {id: a, match: {endpoint: /a}, key_by: ip, limit: 9/m, on_store_failure: fail_closed}
  - {id: b, match: {endpoint: /b}, key_by: ip, limit: 9/m, on_store_failure: fail_open}
"""
    with ExitStack() as stack:
        upstream = stack.enter_context(app())
        store = ["--store", "redis://127.0.0.1:1"]
        deciding = serving(tmp_path, *store, rules=rules, grpc=1, is_awaited=False)
        service = stack.enter_context(deciding)
        for name in ("nginx", "caddy", "envoy"):
            made = gateway(name, tmp_path / name, *at(service, name), upstream=upstream)
            url = stack.enter_context(made)
            wait_until(partial(_is_refused, f"{url}/a"), f"{name} asks")
            assert PLAIN.get(f"{url}/a").json()["error"] == "temporarily_unavailable", name
            assert PLAIN.get(f"{url}/b").status_code == 200, name


def _is_refused(url: str) -> bool:
    return PLAIN.get(url).status_code == 503


def test_envoy_reports_what_requests_have_cost(tmp_path: Path) -> None:
    rules = tmp_path / "after.yaml"
    text = """
version: 1
rules:
  - id: tokens
    match: {endpoint: /llm}
    key_by: user_id
    limit: 100/hour
    cost: {after: {header: x-tokens}}
  - id: bytes
    match: {endpoint: /big}
    key_by: user_id
    limit: 1000/hour
    cost: {after: {bytes: true}}
"""
    rules.write_text(text, encoding="utf-8")
    with (
        app() as upstream,
        serving(tmp_path, rules=text, grpc=1) as service,
        gateway(
            "envoy",
            tmp_path / "g",
            *at(service, "envoy"),
            "--rules",
            str(rules),
            upstream=upstream,
        ) as url,
    ):

        def left(path: str, user: str) -> int:
            answer = service.check(path=path, headers={"x-user-id": user}, peek=True)
            return int(answer.headers["x-ratelimit-remaining"])

        spending = {"x-user-id": "ada", "x-spend": "60"}
        assert PLAIN.get(f"{url}/llm", headers=spending).status_code == 200
        wait_until(lambda: left("/llm", "ada") == 40, "60 are charged")
        assert PLAIN.get(f"{url}/llm", headers=spending).status_code == 200
        wait_until(lambda: left("/llm", "ada") == 0, "beyond the limit too")
        refused = PLAIN.get(f"{url}/llm", headers=spending)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 36 * 20  # 20 more than there were

        large = PLAIN.get(f"{url}/big", headers={"x-user-id": "bob"})
        assert large.status_code == 200
        wait_until(lambda: left("/big", "bob") == 1000 - len(large.content), "its bytes count")


def test_nginx_keeps_a_refusal_of_its_own(tmp_path: Path) -> None:
    where = ["--service", "http://127.0.0.1:1"]

    def denying(text: str) -> str:
        return text.replace("auth_request /_headgate;", "deny all;")

    with (
        app() as upstream,
        gateway("nginx", tmp_path, *where, upstream=upstream, edited=denying) as url,
    ):
        assert PLAIN.get(f"{url}/api/a").status_code == 403
