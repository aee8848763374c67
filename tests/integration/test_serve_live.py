"""What any of several real workers tells of all of them."""

from __future__ import annotations

import os
import re
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.decision_service import PLAIN, Service, serving
from tests.support.servers import RedisServer, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "t" * 20
RULES = """\
version: 1
rules:
  - {id: per-ip, key_by: ip, limit: 5/hour}
  - {id: tried, key_by: ip, limit: 3/hour, mode: shadow, candidate_of: per-ip}
"""
SAMPLE = re.compile(r"(headgate_[a-z_]+)(\{[^ ]*\})? ([0-9.e+-]+)")
COUNTED = ("_total", "_bucket", "_sum", "_count")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("live")
    with (
        RedisServer() as redis,
        serving(
            directory,
            *("--workers", "2", "--store", redis.url),
            rules=RULES,
            env={"HEADGATE_ADMIN_TOKEN": TOKEN},
        ) as running,
    ):
        yield running


def live(service: Service) -> Any:
    headers = {"authorization": f"Bearer {TOKEN}"}
    answer = PLAIN.get(f"{service.url}/admin/v1/live", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def scraped(service: Service) -> tuple[str, dict[str, float]]:
    """`/metrics`, and its counters by name and labels."""
    text = PLAIN.get(f"{service.url}/metrics").text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    matches = [SAMPLE.fullmatch(line) for line in lines]
    assert all(matches), text
    found = {match[1] + (match[2] or ""): float(match[3]) for match in matches if match}
    assert len(found) == len(lines), "a sample is told twice"
    return text, {name: value for name, value in found.items() if _is_counted(name)}


def _is_counted(name: str) -> bool:
    return name.partition("{")[0].endswith(COUNTED)


def test_counters_of_all_workers_are_told_by_any_and_never_go_back(service: Service) -> None:
    last: dict[str, float] = {}
    for turn in range(25):
        assert service.check(f"192.0.2.{turn % 3}").status_code in (200, 429)
        text, found = scraped(service)
        back = {
            name: (last[name], found.get(name)) for name in last if found.get(name, -1) < last[name]
        }
        assert not back
        last = found

    def decided() -> list[float]:
        _, now = scraped(service)
        return [value for name, value in now.items() if name.startswith("headgate_requests_total")]

    assert len(decided()) == 4, "allowed and denied of two workers"
    wait_until(lambda: sum(decided()) == 25, "both have told all")
    assert text.count("# HELP headgate_requests_total ") == 1
    assert text.count("# TYPE headgate_decision_seconds histogram") == 1
    for worker in "01":
        assert f'headgate_policy_revision{{worker="{worker}"}} 1\n' in text
        assert f'headgate_policy_load_errors_total{{worker="{worker}",what="rules"}} 0\n' in text


def test_a_picture_has_all_workers_and_survives_the_death_of_one(service: Service) -> None:
    wanted = sum(live(service)["requests"].values()) + 10  # all there were have been told by now
    for _ in range(10):
        service.check("198.51.100.9")

    def is_complete() -> bool:
        told = live(service)  # what rules in shadow said is told every few seconds only
        compared = sum(one["requests"] for one in told["candidates"])
        return bool(wanted == _drawn(told) == compared)

    wait_until(is_complete, "the seconds are complete")
    before = live(service)
    assert sum(before["requests"].values()) == wanted
    assert before["workers"] == 2
    assert before["store"]["state"] == "ok"
    assert 10 <= before["latency"]["count"] <= wanted
    assert before["latency"]["p50"] <= before["latency"]["p99"]
    assert [row["rule_id"] for row in before["rules"]] == ["per-ip", "tried"]
    assert {row["rule_id"] for row in before["refused_keys"]} == {"per-ip", "tried"}
    assert "198.51.100" not in str(before)
    (candidate,) = before["candidates"]
    assert (candidate["candidate_of"], candidate["requests"]) == (
        "per-ip",
        sum(before["requests"].values()),
    )

    killed = service.workers()[0]
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: "is ready again" in service.log, "another worker serves", within=60.0)
    after = live(service)
    assert after["requests"] == before["requests"]
    assert _drawn(after) == _drawn(before)
    assert after["rules"][0]["denied"] == before["rules"][0]["denied"]
    assert after["candidates"][0]["requests"] == candidate["requests"]
    assert after["candidates"][0]["keys"] == candidate["keys"]
    wait_until(lambda: live(service)["workers"] == 2, "both are heard of")


def _drawn(picture: Any) -> int:
    """How much was allowed and denied in the last two minutes."""
    lines = picture["series"]["rules"].get("per-ip", {"allowed": [], "denied": []})
    return int(sum(lines["allowed"]) + sum(lines["denied"]))


def test_nodes_that_share_a_store_know_each_other(service: Service, tmp_path: Path) -> None:
    def nodes(of: Service) -> dict[str, Any]:
        return {one["node"].rpartition(":")[2]: one for one in live(of)["nodes"]}

    store, env = live(service)["store"]["url"], {"HEADGATE_ADMIN_TOKEN": TOKEN}
    with serving(tmp_path, "--store", store, rules=RULES, env=env) as other:
        workers = {str(service.port): 2, str(other.port): 1}

        def knows(one: Service) -> bool:
            return {port: node["workers"] for port, node in nodes(one).items()} == workers

        for one in (service, other):
            wait_until(partial(knows, one), "both nodes are known")
            found = nodes(one).values()
            assert {node["store"] for node in found} == {"ok"}
            assert len({node["digest"] for node in found}) == 1
