"""A rule tried beside the live one on a service that runs: traffic, figures, adopted, enforced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.decision_service import PLAIN, Service, serving
from tests.support.servers import RedisServer, wait_until

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "correct-horse-battery"  # noqa: S105 - nobody's
RULES = """\
version: 1
identity: {tenant: {header: x-tenant-id}}
rules:
  - {id: per-tenant, key_by: tenant, limit: 6/hour}
"""
TIGHTER = {"key_by": "tenant", "limit": "4/hour"}


def admin(service: Service, line: str, body: Any = None, **headers: str) -> Any:
    method, _, path = line.partition(" ")
    sent = {"authorization": f"Bearer {TOKEN}"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    answer = PLAIN.request(method, f"{service.url}/admin/v1{path}", json=body, headers=sent)
    assert answer.status_code == 200, answer.text
    return answer.json()


def statuses(service: Service, tenant: str, count: int) -> list[int]:
    headers = {"x-tenant-id": tenant}
    return [service.check(headers=headers).status_code for _ in range(count)]


def is_known(service: Service, revision: int) -> bool:
    """Whether both workers have a revision, as they tell each other."""
    told = admin(service, "GET /live")
    return bool(told["workers"] == 2 and told["policy"]["revision"] == revision)


def figures(service: Service) -> dict[str, Any]:
    [found] = admin(service, "GET /live")["candidates"]
    return dict(found)


def test_a_candidate_is_tried_on_real_traffic_and_adopted(tmp_path: Path) -> None:
    env = {"HEADGATE_ADMIN_TOKEN": TOKEN}
    with (
        RedisServer() as redis,
        serving(tmp_path, "--workers", "2", "--store", redis.url, rules=RULES, env=env) as service,
    ):
        put = admin(service, "POST /rules/per-tenant/candidate", TIGHTER)
        assert put["rule_id"] == "per-tenant-candidate"
        wait_until(lambda: is_known(service, 2), "both workers know of it")
        for tenant in "abc":
            assert statuses(service, tenant, 7) == [200] * 6 + [429]
        assert statuses(service, "d", 2) == [200] * 2
        wait_until(lambda: figures(service)["requests"] == 23, "all of it is told")

        told = figures(service)
        assert (told["rule_id"], told["candidate_of"]) == ("per-tenant-candidate", "per-tenant")
        assert (told["would_deny"], told["keys"], told["keys_exact"]) == (9, 3, True)
        assert (told["newly_denied"], told["newly_allowed"], told["denied_by_both"]) == (6, 0, 3)
        assert told["last_day"]["newly_denied"] == 6

        version = str(put["version"])
        assert admin(service, "POST /rules/per-tenant/adopt", if_match=f'"{version}"') == {
            "rule_id": "per-tenant",
            "version": 3,
        }
        wait_until(lambda: is_known(service, 3), "both workers have it")
        wait_until(lambda: not admin(service, "GET /live")["candidates"], "nothing is tried now")
        assert "4/hour" in (tmp_path / "rules.yaml").read_text()
        assert "candidate" not in (tmp_path / "rules.yaml").read_text()
        assert statuses(service, "d", 3) == [200, 200, 429]  # it had used two before
        assert statuses(service, "e", 6) == [200] * 4 + [429] * 2
