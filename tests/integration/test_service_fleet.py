"""A fleet: several services, one etcd for their rules, one Redis for their counters."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from tests.support.decision_service import PLAIN, Service, serving
from tests.support.servers import RedisServer, wait_until
from tests.support.servers.etcd import EtcdServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

_TOKEN = "open-sesame-open-sesame"  # noqa: S105 - the tests' own
_BEARER = {"authorization": f"Bearer {_TOKEN}"}


@contextmanager
def _fleet(directory: Path, etcd: EtcdServer, store: str, *, size: int) -> Iterator[list[Service]]:
    with ExitStack() as stack:
        yield [stack.enter_context(_node(directory, n, etcd, store)) for n in range(size)]


@contextmanager
def _node(directory: Path, number: int, etcd: EtcdServer, store: str) -> Iterator[Service]:
    place = directory / f"node-{number}"
    place.mkdir(exist_ok=True)
    flags = ("--rules", f"{etcd.url}/fleet/", "--store", store, "--state-dir", str(place))
    env = {"HEADGATE_ADMIN_TOKEN": _TOKEN}
    with serving(place, *flags, rules=None, env=env) as service:
        yield service


def _put(service: Service, rule: str, **data: Any) -> httpx.Response:
    return PLAIN.put(f"{service.url}/admin/v1/rules/{rule}", json=data, headers=_BEARER)


def _limit_of(service: Service, ip: str) -> int | None:
    """The quota that a caller has here, looked at without using any."""
    told = PLAIN.post(f"{service.url}/v1/rate_limit", json={"path": "/", "ip": ip})
    limits = told.json()["limits"]
    return limits[0]["quota"] if limits else None


def _wait_for(quota: int, nodes: list[Service]) -> None:
    def is_everywhere() -> bool:
        return all(_limit_of(node, "192.0.2.1") == quota for node in nodes)

    wait_until(is_everywhere, f"a limit of {quota} is in force everywhere")


def test_one_call_changes_the_limit_of_the_whole_fleet(tmp_path: Path) -> None:
    with (
        EtcdServer() as etcd,
        RedisServer() as redis,
        _fleet(tmp_path, etcd, redis.url, size=3) as nodes,
    ):
        assert [_limit_of(node, "192.0.2.1") for node in nodes] == [None] * 3
        first = _put(nodes[0], "per-ip", key_by="ip", limit="5/hour")
        assert (first.status_code, first.json()["rule_id"]) == (200, "per-ip")
        _wait_for(5, nodes)
        asked = [nodes[n % 3].check("192.0.2.1").status_code for n in range(7)]
        assert asked == [200] * 5 + [429] * 2

        version = first.json()["version"]
        stale = PLAIN.put(
            f"{nodes[1].url}/admin/v1/rules/per-ip",
            json={"key_by": "ip", "limit": "1/hour"},
            headers={**_BEARER, "if-match": f'"{version - 1}"'},
        )
        assert stale.status_code == 412
        second = _put(nodes[1], "per-ip", key_by="ip", limit="8/hour")
        assert second.json()["version"] > version
        _wait_for(8, nodes)
        assert nodes[2].check("192.0.2.1").status_code == 200  # what was used stays used
        assert _limit_of(nodes[0], "192.0.2.1") == 8
        assert [node.check("192.0.2.1").status_code for node in nodes] == [200, 200, 429]


def test_the_fleet_runs_on_while_etcd_is_gone_and_hears_of_it_when_it_is_back(
    tmp_path: Path,
) -> None:
    with EtcdServer() as etcd, RedisServer() as redis, ExitStack() as stack:
        first = stack.enter_context(_node(tmp_path, 0, etcd, redis.url))
        _put(first, "per-ip", key_by="ip", limit="5/hour")
        _wait_for(5, [first])
        with _node(tmp_path, 1, etcd, redis.url) as second:
            _wait_for(5, [second])
        etcd.kill()
        assert first.check("192.0.2.1").status_code == 200
        refused = _put(first, "per-ip", key_by="ip", limit="6/hour")
        assert refused.status_code == 503
        assert refused.headers["content-type"].startswith("application/problem+json")
        again = stack.enter_context(_node(tmp_path, 1, etcd, redis.url))
        assert _limit_of(again, "192.0.2.1") == 5
        assert "last good" in again.log
        etcd.start()
        wait_until(
            lambda: _put(again, "per-ip", key_by="ip", limit="7/hour").status_code == 200,
            "etcd takes changes again",
        )
        _wait_for(7, [first, again])
