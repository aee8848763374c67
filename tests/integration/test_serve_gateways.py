"""The pages' way through nginx, on the real one; rules in a real etcd."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import httpx

from tests.support.decision_service import PLAIN, Service, serving
from tests.support.gateways import NGINX_HEAD
from tests.support.servers import free_port, release_port, wait_until
from tests.support.servers.etcd import EtcdServer
from tests.support.servers.process import Process

PAGE = Path(__file__).parents[2] / "docs" / "service.md"
TOKEN = "correct-horse-battery"  # noqa: S105 - nobody's
AUTHORIZED = {"authorization": f"Bearer {TOKEN}"}
FRAME = (
    NGINX_HEAD
    + """\
  server {{
    listen 127.0.0.1:{port};
{locations}
  }}
}}
"""
)


def test_nginx_as_the_page_has_it_limits_requests(tmp_path: Path) -> None:
    [locations] = re.findall(r"```nginx\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    port = free_port()
    with serving(tmp_path) as service:
        # The service's own pages are the application behind nginx.
        locations = locations.replace("127.0.0.1:8090", f"127.0.0.1:{service.port}")
        locations = locations.replace("127.0.0.1:8000", f"127.0.0.1:{service.port}")
        config = tmp_path / "nginx.conf"
        config.write_text(FRAME.format(directory=tmp_path, port=port, locations=locations))
        call = ["nginx", "-c", str(config), "-p", str(tmp_path)]
        nginx = Process(call, tmp_path / "nginx.log")
        try:
            url = f"http://127.0.0.1:{port}/healthz"
            wait_until(lambda: _is_there(url), "nginx answers")
            answers = [PLAIN.get(url) for _ in range(6)]
            statuses = [answer.status_code for answer in answers]
            assert statuses == sorted(statuses)
            assert statuses[-1] == 429
            assert int(answers[-1].headers["retry-after"]) > 0
            assert answers[-1].headers["ratelimit"].startswith('"per-ip";r=0')
        finally:
            nginx.terminate()
            release_port(port)


def _is_there(url: str) -> bool:
    try:
        return PLAIN.get(url).status_code in (200, 429)
    except httpx.TransportError:
        return False


class TestEtcd:
    def put(self, service: Service, limit: str) -> httpx.Response:
        rule = {"key_by": "ip", "limit": limit}
        url = f"{service.url}/admin/v1/rules/per-ip"
        return PLAIN.put(url, json=rule, headers=AUTHORIZED)

    def limit(self, service: Service) -> str | None:
        answer = service.check("192.0.2.77")
        found: str | None = answer.headers.get("x-ratelimit-limit")
        return found

    def serving(self, directory: Path, etcd: EtcdServer, *flags: str) -> Any:
        directory.mkdir(exist_ok=True)
        flags = ("--rules", etcd.url, *flags)
        return serving(directory, *flags, rules=None, env={"HEADGATE_ADMIN_TOKEN": TOKEN})

    def test_a_rule_put_at_one_node_is_in_force_at_the_other(self, tmp_path: Path) -> None:
        with (
            EtcdServer() as etcd,
            self.serving(tmp_path / "a", etcd) as first,
            self.serving(tmp_path / "b", etcd) as second,
        ):
            assert self.limit(second) is None
            assert self.put(first, "50/hour").status_code == 200
            assert self.limit(first) == "50"
            wait_until(lambda: self.limit(second) == "50", "the other node knows")

    def test_starts_on_the_last_good_policy_while_etcd_is_down(self, tmp_path: Path) -> None:
        state = ("--state-dir", str(tmp_path / "state"))
        with EtcdServer() as etcd:
            with self.serving(tmp_path / "a", etcd, *state) as service:
                assert self.put(service, "50/hour").status_code == 200
                wait_until((tmp_path / "state" / "policy.json").exists, "it is kept")
            etcd.stop()
            with self.serving(tmp_path / "b", etcd, *state) as service:
                assert "the last good one" in service.log
                assert self.limit(service) == "50"
                assert self.put(service, "60/hour").status_code == 503
                etcd.start()
                wait_until(lambda: "available again" in service.log, "etcd is back")
                assert self.put(service, "60/hour").status_code == 200
                assert self.limit(service) == "60"
                service.signal(signal.SIGTERM)
                assert service.wait() == 0

    def test_is_alive_and_not_ready_with_nothing_to_start_on(self, tmp_path: Path) -> None:
        with EtcdServer() as etcd:
            url = etcd.url
        with serving(tmp_path, "--rules", url, rules=None, is_awaited=False) as service:
            wait_until(lambda: "serves with" in service.log, "the service listens")
            answer = PLAIN.get(f"{service.url}/readyz")
            assert answer.status_code == 503
            assert "no policy is in force" in answer.text
