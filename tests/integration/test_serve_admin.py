"""The admin API of `headgate serve`: who may change rules, and that a change is in force."""

from __future__ import annotations

import json
import ssl
from typing import TYPE_CHECKING, Any

import httpx

from tests.support.decision_service import PLAIN, Service, serving
from tests.support.servers import Certificates, RedisServer, wait_until

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "correct-horse-battery"  # noqa: S105 - nobody's
RULE = {"key_by": "ip", "limit": "2/hour"}


def put(service: Service, token: str, rule: dict[str, Any]) -> httpx.Response:
    headers = {"authorization": f"Bearer {token}"}
    return PLAIN.put(f"{service.url}/admin/v1/rules/per-ip", json=rule, headers=headers)


def test_without_a_token_it_is_closed(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        assert put(service, TOKEN, RULE).status_code == 403
        assert "admin API: closed" in service.log
        assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "rules.yaml"]


def test_a_rule_that_is_put_is_in_force_everywhere_and_noted(tmp_path: Path) -> None:
    audit = tmp_path / "audit.log"
    with RedisServer() as redis:
        flags = ("--workers", "2", "--store", redis.url, "--audit-file", str(audit))
        with serving(tmp_path, *flags, env={"HEADGATE_ADMIN_TOKEN": TOKEN}) as service:
            assert "admin API: open to 1 token" in service.log
            assert put(service, "x" * 20, RULE).status_code == 401
            answer = put(service, TOKEN, RULE)
            assert (answer.status_code, answer.json()["rule_id"]) == (200, "per-ip")
            limits = [service.check(f"192.0.2.{n}").headers["x-ratelimit-limit"] for n in range(9)]
            wait_until(lambda: _limits(service) == {"2"}, f"both workers know: {limits}")
            assert TOKEN not in service.log
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert any("admin" in str(line) for line in lines)
    assert TOKEN not in audit.read_text()


def _limits(service: Service) -> set[str]:
    return {service.check(f"192.0.2.{n}").headers["x-ratelimit-limit"] for n in range(8)}


def test_tokens_and_certificates_have_roles(tmp_path: Path) -> None:
    files = Certificates(tmp_path)
    config = tmp_path / "headgate.json"
    config.write_text(
        json.dumps(
            {
                "http_tls_cert": str(files.server),
                "http_tls_key": str(files.server_key),
                "http_tls_client_ca": str(files.ca),
                "admin_tokens": [{"name": "eve", "role": "read", "token": TOKEN}],
                "admin_certificates": [
                    {"name": "ada", "role": "write", "subject": "CN=headgate tests client"}
                ],
            }
        )
    )
    trust = ssl.create_default_context(cafile=str(files.ca))
    trust.load_cert_chain(str(files.client), str(files.client_key))
    with serving(tmp_path, "--config", str(config), is_awaited=False) as service:
        wait_until(lambda: "serves with" in service.log, "the service listens")
        assert "open to 1 token and 1 certificate" in service.log
        url = f"https://127.0.0.1:{service.port}/admin/v1/rules/per-ip"
        by_token = {"authorization": f"Bearer {TOKEN}"}
        with httpx.Client(verify=trust) as client:
            assert client.get(url, headers=by_token).status_code == 200
            assert client.put(url, json=RULE, headers=by_token).status_code == 403
            assert client.put(url, json=RULE).status_code == 200
