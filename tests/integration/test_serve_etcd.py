"""`headgate serve` with rules in a real etcd."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from tests.support.decision_service import PLAIN, Service, serving
from tests.support.servers import wait_until
from tests.support.servers.etcd import EtcdServer

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

TOKEN = "correct-horse-battery"  # noqa: S105 - nobody's
AUTHORIZED = {"authorization": f"Bearer {TOKEN}"}


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
