"""`headgate serve`, one process: starting, deciding, reloading, draining, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import ssl
from contextlib import ExitStack
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.decision_service import (
    PLAIN,
    RULES,
    Service,
    load_until_gone,
    refused,
    serving,
    told,
)
from tests.support.servers import Certificates, RedisServer, free_port, release_port, wait_until

if TYPE_CHECKING:
    from pathlib import Path

WORD = "sesame"


def token_in(directory: Path) -> Path:
    """A file with the token of an administrator."""
    file = directory / "token"
    file.write_text("a token that nobody guesses")
    return file


class TestStarting:
    def test_requests_are_limited_and_a_changed_file_comes_into_force_but_no_bad_one(
        self, tmp_path: Path
    ) -> None:
        with serving(tmp_path) as service:
            assert service.statuses(6) == [200] * 5 + [429]
            assert service.statuses(1, ip="192.0.2.2") == [200]
            assert f"HTTP: 127.0.0.1:{service.port}" in service.log
            assert "revision 1, 1 rule" in service.log
            assert "counters: memory://" in service.log
            assert "admin API: closed" in service.log
            _reload(service, tmp_path / "rules.yaml")

    def test_programs_get_a_line_of_json_for_each_thing_that_is_told(self, tmp_path: Path) -> None:
        with serving(tmp_path, "--json") as service:
            lines = [json.loads(line) for line in service.log.splitlines()]
            [started] = [line for line in lines if line.get("event") == "started"]
            assert started["http"] == [f"127.0.0.1:{service.port}"]
            assert (started["rule_count"], started["admin"]) == (1, "closed")
            service.signal(signal.SIGTERM)
            assert service.wait() == 0
            assert json.loads(service.log.splitlines()[-1])["event"] == "stopped"

    def test_a_web_page_whose_name_points_here_reads_and_changes_nothing(
        self, tmp_path: Path
    ) -> None:
        page = {"host": "evil.example", "content-type": "application/json"}
        with serving(tmp_path, "--admin-token-file", str(token_in(tmp_path))) as service:
            for method, path in (
                ("GET", "/"),
                ("GET", "/healthz"),
                ("GET", "/admin/v1/policy"),
                ("PUT", "/admin/v1/rules/x"),
                ("POST", "/v1/check"),
            ):
                url = f"http://127.0.0.1:{service.port}{path}"
                reply = httpx.request(method, url, headers=page, trust_env=False)
                assert reply.status_code == 403, path
                assert "the setting allowed_hosts" in reply.json()["detail"]
            asked = f"http://127.0.0.1:{service.port}/v1/authorize/basket"
            assert httpx.get(asked, headers={"host": "shop.example"}).status_code == 200
        with serving(tmp_path, "--allowed-hosts", "evil.example") as service:
            url = f"http://127.0.0.1:{service.port}/healthz"
            assert httpx.get(url, headers=page, trust_env=False).status_code == 200

    def test_no_password_is_told(self, tmp_path: Path) -> None:
        with RedisServer(password=WORD) as redis:
            url = f"{redis.bare_url}?timeout=1"
            with serving(tmp_path, env={"HEADGATE_STORE": url}) as service:
                assert service.statuses(6) == [200] * 5 + [429]
                assert f"counters: redis://{redis.address}/0" in service.log
                assert WORD not in service.log

    def test_a_port_that_is_taken_is_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "rules.yaml").write_text(RULES)
        with socket.create_server(("127.0.0.1", free_port())) as taken:
            port = taken.getsockname()[1]
            status, said = refused(
                tmp_path, "--rules", "rules.yaml", "--http", f"127.0.0.1:{port}", "--grpc", "off"
            )
        release_port(port)
        assert status == 2
        assert re.fullmatch(
            rf"headgate serve: cannot listen at 127.0.0.1:{port}: port {port} is in use by "
            r"\S+ \(pid \d+\); choose another with --http",
            said.splitlines()[-1],
        )

    def test_bad_rules_are_told_with_their_place(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "rules.yaml").write_text(RULES.replace("limit:", "limt:"))
        flags = ("--rules", str(tmp_path / "rules.yaml"), "--http", "127.0.0.1:0", "--grpc", "off")
        status, said = refused(tmp_path, *flags)
        assert status == 2
        assert "rules.yaml:3:" in said
        assert "did you mean 'limit'?" in said
        assert "Traceback" not in said
        assert told(capsys, *flags, "--check")[0] == 1

    def test_check_says_that_all_is_well(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rules, config = tmp_path / "rules.yaml", tmp_path / "headgate.yaml"
        rules.write_text(RULES)
        config.write_text(f"rules: {rules}\nstore: redis://nowhere:1\n")
        assert told(capsys, "--config", str(config), "--check") == (0, "")
        config.write_text(f"rules: {rules}\nhttp_tls_cert: no\n")
        assert told(capsys, "--config", str(config), "--check")[0] == 2

    def test_no_rules_is_told_with_the_shortest_way_on(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        status, said = told(capsys)
        assert status == 2
        assert "give --rules FILE" in said

    def test_is_not_ready_while_the_store_does_not_answer(self, tmp_path: Path) -> None:
        with RedisServer() as redis:
            url = redis.url
        with serving(tmp_path, "--store", url, is_awaited=False) as service:
            wait_until(lambda: "serves with" in service.log, "the service listens")
            answer = PLAIN.get(f"{service.url}/readyz")
            assert answer.status_code == 503
            assert "the store is unavailable (unreachable)" in answer.text
            assert PLAIN.get(f"{service.url}/healthz").status_code == 200


def _reload(service: Service, path: Path) -> None:
    def limit() -> str:
        return service.check("192.0.2.9").headers["x-ratelimit-limit"]

    assert limit() == "5"
    path.write_text(RULES.replace("5/hour", "7/hour"))
    wait_until(lambda: limit() == "7", "the new limit is in force")
    path.write_text("version: 1\nrules: nonsense\n")
    service.signal(signal.SIGHUP)
    wait_until(lambda: "nonsense" in service.log, "the mistake is told")
    assert limit() == "7"
    assert service.is_ready()


class TestReloading:
    def test_envoys_own_configuration_is_served_and_reloaded(self, tmp_path: Path) -> None:
        config = tmp_path / "envoy"
        config.mkdir()
        text = (
            "domain: shop\n"
            "descriptors:\n"
            "  - key: path\n"
            "    value: /a\n"
            "    rate_limit: {unit: hour, requests_per_unit: 2}\n"
        )
        (config / "shop.yaml").write_text(text)
        with serving(tmp_path, "--envoy-config", str(config), rules=None) as service:
            assert "1 domain" in service.log

            def ask() -> int:
                body = {
                    "domain": "shop",
                    "descriptors": [{"entries": [{"key": "path", "value": "/a"}]}],
                }
                return PLAIN.post(f"{service.url}/json", json=body).status_code

            assert [ask() for _ in range(3)] == [200, 200, 429]
            (config / "shop.yaml").write_text(text.replace("requests_per_unit: 2", "unlimited: 1"))
            service.signal(signal.SIGHUP)
            wait_until(lambda: "stays in force" in service.log, "the mistake is reported")
            assert ask() == 429
            (config / "shop.yaml").write_text(text.replace(": 2}", ": 500}"))
            wait_until(lambda: ask() == 200, "the new limit is in force")


class TestDraining:
    def test_sigterm_under_load_loses_no_request(self, tmp_path: Path) -> None:
        rules = RULES.replace("5/hour", "1000000/hour")
        with serving(tmp_path, "--linger", "0.3", rules=rules) as service:
            answered = asyncio.run(load_until_gone(service.port, service.stop))
            assert service.wait() == 0
        assert answered > 200

    def test_readiness_goes_first_and_a_second_signal_ends_it_at_once(self, tmp_path: Path) -> None:
        with serving(tmp_path, "--linger", "60") as service:
            service.signal(signal.SIGTERM)
            wait_until(lambda: not service.is_ready(), "it is not ready")
            assert service.check().status_code == 200
            service.signal(signal.SIGINT)
            assert service.wait() == 1

    def test_a_unix_socket_is_gone_afterwards(self, tmp_path: Path) -> None:
        path = tmp_path / "http.sock"
        with serving(tmp_path, http=f"unix:{path}", is_awaited=False) as service:
            wait_until(lambda: "serves with" in service.log, "the service listens")
            transport = httpx.HTTPTransport(uds=str(path))
            with httpx.Client(transport=transport, base_url="http://headgate") as client:
                assert client.get("/readyz").status_code == 200
                answer = client.get("/v1/authorize/things", headers={"x-forwarded-for": "1.2.3.4"})
                assert answer.status_code == 200
            service.signal(signal.SIGTERM)
            assert service.wait() == 0
        assert not path.exists()


class TestBounds:
    def test_oversize_headers_and_slow_callers_are_refused(self, tmp_path: Path) -> None:
        flags = ("--max-header", "4096", "--receive-timeout", "1s")
        with serving(tmp_path, *flags) as service:
            answer = PLAIN.get(f"{service.url}/healthz", headers={"x-large": "y" * 5_000})
            assert answer.status_code == 431
            with socket.create_connection(("127.0.0.1", service.port)) as slow:
                slow.settimeout(10)
                slow.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n")
                assert slow.recv(100).startswith(b"HTTP/1.1 408 ")

    def test_of_a_crowd_the_connection_that_waits_longest_gives_way(self, tmp_path: Path) -> None:
        with serving(tmp_path, "--max-connections", "3") as service, ExitStack() as crowd:
            address = "127.0.0.1", service.port
            lines = [crowd.enter_context(socket.create_connection(address, 10)) for _ in range(4)]
            assert lines[0].recv(100) == b""  # it has waited longest
            wait_until(service.is_ready, "the service answers beside the crowd")


class TestTls:
    @pytest.fixture
    def certificates(self, tmp_path: Path) -> Certificates:
        return Certificates(tmp_path)

    def test_https_with_and_without_client_certificates(
        self, tmp_path: Path, certificates: Certificates
    ) -> None:
        files = certificates
        flags = ["--http-tls-cert", str(files.server), "--http-tls-key", str(files.server_key)]
        trust = ssl.create_default_context(cafile=str(files.ca))
        with serving(tmp_path, *flags, is_awaited=False) as service:
            wait_until(lambda: "(TLS)" in service.log, "the service listens")
            url = f"https://127.0.0.1:{service.port}/healthz"
            assert httpx.get(url, verify=trust).status_code == 200
        flags += ["--http-tls-client-ca", str(files.ca)]
        with serving(tmp_path, *flags, is_awaited=False) as service:
            wait_until(lambda: "client certificates" in service.log, "the service listens")
            url = f"https://127.0.0.1:{service.port}/healthz"
            with pytest.raises(httpx.TransportError):
                httpx.get(url, verify=trust)
            trust.load_cert_chain(str(files.client), str(files.client_key))
            assert httpx.get(url, verify=trust).status_code == 200

    def test_replaced_certificates_are_used_from_the_next_connection_on(
        self, tmp_path: Path, certificates: Certificates
    ) -> None:
        (tmp_path / "new").mkdir()
        old, new = certificates, Certificates(tmp_path / "new")
        trusts_old, trusts_new = (
            ssl.create_default_context(cafile=str(one.ca)) for one in (old, new)
        )
        flags = ["--http-tls-cert", str(old.server), "--http-tls-key", str(old.server_key)]
        with serving(tmp_path, *flags, is_awaited=False) as service:
            wait_until(lambda: "(TLS)" in service.log, "the service listens")
            url = f"https://127.0.0.1:{service.port}/healthz"
            with httpx.Client(verify=trusts_old) as kept:
                assert kept.get(url).status_code == 200
                for before, after in ((old.server, new.server), (old.server_key, new.server_key)):
                    before.write_bytes(after.read_bytes())
                assert httpx.get(url, verify=trusts_new).status_code == 200
                with pytest.raises(httpx.ConnectError):
                    httpx.get(url, verify=trusts_old)
                assert kept.get(url).status_code == 200


def test_a_lost_store_is_noticed_and_comes_back(tmp_path: Path) -> None:
    def trouble(service: Service) -> str:
        answer = PLAIN.get(f"{service.url}/readyz")
        assert answer.status_code == 200  # it is gone for all replicas alike
        return "".join(answer.json().get("reasons", ()))

    with RedisServer() as redis, serving(tmp_path, "--store", redis.bare_url) as service:
        redis.pause()
        wait_until(lambda: "the store" in trouble(service), "the loss is noticed")
        assert service.check().status_code == 200
        redis.resume()
        wait_until(lambda: not trouble(service), "the store is back")
