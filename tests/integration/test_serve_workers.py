"""`headgate serve --workers N`: one service of several processes."""

from __future__ import annotations

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.support.decision_service import PLAIN, RULES, load_until_gone, refused, serving, told
from tests.support.servers import RedisServer, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.decision_service import Service

COUNTED = "headgate_policy_load_errors_total{"


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def service(redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Two workers. The last test that uses them ends them."""
    rules = RULES.replace("5/hour", "50/hour")
    flags = ("--workers", "2", "--store", redis.url, "--linger", "0")
    with serving(tmp_path_factory.mktemp("pair"), *flags, rules=rules) as running:
        yield running


def test_two_workers_count_exactly_as_one(service: Service) -> None:
    assert len(service.workers()) == 2
    assert "serves with 2 workers" in service.log
    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda _: service.check().status_code, range(80)))
    assert sorted(statuses) == [200] * 50 + [429] * 30


def test_a_worker_that_is_killed_is_replaced_and_nobody_else_notices(service: Service) -> None:
    before = service.workers()
    os.kill(before[0], signal.SIGKILL)
    assert service.check("192.0.2.2").status_code == 200
    wait_until(lambda: "is ready again" in service.log, "another serves")
    after = service.workers()
    assert len(after) == 2
    assert before[1] in after
    assert before[0] not in after
    assert "killed by SIGKILL" in service.log


def test_workers_end_when_their_supervisor_is_killed(service: Service) -> None:
    workers = service.workers()
    service.signal(signal.SIGKILL)
    wait_until(lambda: not any(map(_is_alive, workers)), "no worker is left")


def test_sighup_reaches_all_and_sigterm_under_load_loses_no_request(
    tmp_path: Path, redis: RedisServer
) -> None:
    rules = RULES.replace("5/hour", "1000000/hour")
    flags = ("--workers", "2", "--store", redis.url, "--linger", "0.3")
    with serving(tmp_path, *flags, rules=rules) as service:
        workers = service.workers()
        service.signal(signal.SIGHUP)
        wait_until(lambda: service.log.count("SIGHUP") == 2, "both look again")

        def stop() -> None:  # as who stops a whole cgroup or session does
            for pid in workers:
                os.kill(pid, signal.SIGTERM)
            service.stop()

        assert asyncio.run(load_until_gone(service.port, stop)) > 100
        assert service.wait() == 0
        assert not any(_is_alive(pid) for pid in workers)


def test_workers_that_cannot_start_are_one_line_and_no_loop(
    tmp_path: Path, redis: RedisServer
) -> None:
    (tmp_path / "rules.yaml").write_text(RULES.replace("limit:", "limt:"))
    flags = ("--rules", "rules.yaml", "--http", "127.0.0.1:0", "--grpc", "off")
    status, said = refused(tmp_path, *flags, "--workers", "2", "--store", redis.url)
    assert status == 2
    assert said.splitlines()[-1].startswith("headgate serve: rules.yaml:3:")
    assert said.count("rules.yaml:3:") == 1, "reported once, not by each worker"
    assert "Traceback" not in said


def test_a_change_of_the_rules_is_reported_once_by_all_workers(
    tmp_path: Path, redis: RedisServer
) -> None:
    def errors() -> list[str]:
        lines = PLAIN.get(f"{pair.url}/metrics").text.splitlines()
        return [line[-2:] for line in lines if line.startswith(COUNTED) and 'what="rules"' in line]

    with serving(tmp_path, "--workers", "2", "--store", redis.url) as pair:
        (tmp_path / "rules.yaml").write_text(RULES.replace("limit:", "limt:"))
        wait_until(lambda: errors() == [" 1", " 1"], "both workers have read the rules")
        assert pair.log.count("is in force") == 1
        assert pair.log.count("stays in force") == 1


def test_counting_in_memory_is_for_one_worker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    status, said = told(capsys, "--rules", str(tmp_path / "rules.yaml"), "--workers", "2")
    assert status == 2
    assert "would each count by themselves" in said


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
