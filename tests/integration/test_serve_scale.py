"""`headgate serve` at scale: leases, regions, workers that share memory."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING
from uuid import uuid4

import httpx

from headgate.limits import parse_limit
from headgate.stores.base import group_name
from headgate.stores.operations import Check, Take
from headgate.stores.redis import RedisStore
from headgate.stores.shm.file import path_of
from tests.support.decision_service import PLAIN, serving
from tests.support.servers import RedisServer, free_port, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.decision_service import Service

LEASED = """\
version: 1
rules:
  - {id: hot, key_by: ip, limit: 300/hour, accuracy: {batch: 30}}
"""
EVERYWHERE = """\
version: 1
rules:
  - {id: everywhere, key_by: ip, limit: 10/hour, across_regions: true}
  - {id: here, key_by: [ip], limit: 20/hour}
"""


def remaining(service: Service, rule: str) -> int:
    told = PLAIN.post(f"{service.url}/v1/rate_limit", json={"ip": "192.0.2.1", "path": "/"})
    (left,) = [one["remaining"] for one in told.json()["limits"] if one["name"] == rule]
    assert isinstance(left, int)
    return left


def measure(service: Service, name: str) -> float:
    """The sum of all samples of *name*."""
    lines = PLAIN.get(f"{service.url}/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def test_a_hot_caller_is_served_from_leases_within_the_limit(tmp_path: Path) -> None:
    token = "a" * 32
    environment = {"HEADGATE_ADMIN_TOKEN": token}
    with (
        RedisServer() as server,
        serving(tmp_path, "--store", server.url, rules=LEASED, env=environment) as service,
        httpx.Client(trust_env=False) as client,
    ):
        body = {"method": "GET", "path": "/", "ip": "192.0.2.1"}
        answers = [client.post(f"{service.url}/v1/check", json=body) for _ in range(400)]
        allowed = [one for one in answers if one.status_code == 200]
        assert 300 - 30 <= len(allowed) <= 300 + 30
        told = server.cli("info", "commandstats")
        (line,) = [one for one in told.splitlines() if one.startswith("cmdstat_evalsha:")]
        scripts = int(line.partition("calls=")[2].partition(",")[0])
        assert scripts < len(answers) / 5
        assert measure(service, "headgate_overshoot_bound") == 30
        headers = {"authorization": f"Bearer {token}"}
        pressure = client.get(f"{service.url}/admin/v1/pressure", headers=headers).json()
        assert pressure["bounds"] == [{"rule_id": "hot", "holders": 1, "units": 30}]
        assert pressure["hot_keys"][0]["rule_id"] == "hot"
        assert pressure["breaker"] == "closed"
        assert pressure["factor"] == 1


def test_regions_count_together_where_a_rule_says_so(tmp_path: Path) -> None:
    with RedisServer() as eu, RedisServer() as us:
        flags = (
            ("--store", eu.url, "--region", "eu", "--region-peers", f"us={us.url}"),
            ("--store", us.url, "--region", "us", "--region-peers", f"eu={eu.url}"),
        )
        places = [tmp_path / "eu", tmp_path / "us"]
        for place in places:
            place.mkdir()
        with (
            serving(places[0], *flags[0], rules=EVERYWHERE) as one,
            serving(places[1], *flags[1], rules=EVERYWHERE) as other,
        ):
            assert one.statuses(6) == [200] * 6
            wait_until(lambda: remaining(other, "everywhere") == 4, "the other region to be told")
            assert remaining(other, "here") == 20
            assert other.statuses(6) == [200] * 4 + [429] * 2
            wait_until(lambda: remaining(one, "everywhere") == 0, "what it used to be told back")


def test_all_workers_of_a_region_tell_the_others_and_are_told_apart(tmp_path: Path) -> None:
    with RedisServer() as eu, RedisServer() as us:
        here = ("--store", eu.url, "--region", "eu", "--workers", "2")
        nobody = f"ap=redis://:pass-word@127.0.0.1:{free_port()}"
        peers = ("--region-peers", f"us={us.url}", "--region-peers", nobody)
        with serving(tmp_path, *here, *peers, rules=EVERYWHERE) as service:
            assert sorted(service.statuses(12)) == [200] * 10 + [429] * 2

            def told() -> str:
                return PLAIN.get(f"{service.url}/metrics").text

            wait_until(
                lambda: all(f'worker="{one}"' in told() for one in "01"), "both workers to be told"
            )
            lines = told().splitlines()
            assert all('worker="' in line for line in lines if not line.startswith("#"))
            assert "pass-word" not in "".join(lines)
        with closing(RedisStore(us.url)) as there:  # what there was to tell has been told
            group = group_name("headgate", "everywhere")
            check = Check(group, "ip=192.0.2.1", parse_limit("10/hour"))
            (outcome,) = there.run(Take((check,), consume=False))
        assert not outcome.allowed


def test_workers_share_memory_without_redis(tmp_path: Path) -> None:
    name = f"test-{uuid4().hex}"
    store = f"shm://{name}?size=1MB&timeout=10"
    try:
        with serving(tmp_path, "--store", store, "--workers", "2") as service:
            statuses = service.statuses(20)
    finally:
        path_of(name).unlink()
    assert statuses.count(200) == 5
    assert statuses.count(429) == 15
