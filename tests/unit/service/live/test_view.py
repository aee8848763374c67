"""Workers that share shared_snapshots, in one process."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from typing import TYPE_CHECKING, Any

import pytest

from headgate.observability import DecisionRecorder, MetricRegistry
from headgate.policy.loader import read_policy
from headgate.rule_engine import AsyncRuleEngine
from headgate.service.core import Core
from headgate.service.live import Live, SharedSnapshots
from headgate.service.live.shared_snapshots import new_file
from headgate.testing import ManualClock, run_virtually
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

POLICY = """\
version: 1
rules:
  - {id: per-ip, key_by: ip, limit: 5/hour}
  - {id: tried, key_by: ip, limit: 1/hour, mode: shadow}
"""


class Node:
    """A node with workers that somebody else makes busy."""

    def __init__(self, fileno: int, count: int = 2) -> None:
        self.clock = ManualClock()
        self.fileno, self.count = fileno, count
        self.engine = AsyncRuleEngine(read_policy(POLICY), clock=self.clock)

    def worker(self, number: int, **more: Any) -> Worker:
        return Worker(self, number, **more)

    def pass_seconds(self, seconds: int) -> None:
        self.clock.advance(seconds)


class Worker:
    """One of them."""

    def __init__(
        self, node: Node, number: int, shared_snapshots: SharedSnapshots | None = None
    ) -> None:
        self.journal, self.measures = DecisionRecorder(), MetricRegistry()
        self.measures.mark(worker=str(number))
        text = "What rules said."
        self.measures.collect("decisions", "counter", text, self.journal.samples)
        self.measures.gauge("answer", "A gauge.", self.answer)
        core = Core(rules=node.engine, clock=node.clock, secret=b"x")
        self.live = Live(
            core,
            worker=number,
            store="redis://host/0",
            shared_snapshots=shared_snapshots or SharedSnapshots(node.fileno, count=node.count),
            decisions=self.journal,
            measures=self.measures,
            monotonic=node.clock,
        )

    def answer(self) -> float:
        return 42.0

    def decide(self, times: int, *, allowed: bool = True) -> None:
        self.journal.cell("per-ip", "allowed" if allowed else "denied", "store")[0] += times
        self.journal.requests[allowed][0] += times

    def picture(self) -> dict[str, Any]:
        return asyncio.run(self.live.view())

    def text(self) -> str:
        return asyncio.run(self.live.text())

    def decided(self) -> dict[str, int]:
        """What it tells of each worker."""
        pattern = r'^headgate_decisions_total\{worker="(\d)".* (\d+)$'
        found = re.findall(pattern, self.text(), re.MULTILINE)
        told = dict.fromkeys([worker for worker, _ in found], 0)
        for worker, count in found:
            told[worker] += int(count)
        return told


@pytest.fixture
def node() -> Iterator[Node]:
    fileno = new_file()
    yield Node(fileno)
    os.close(fileno)


def test_any_worker_tells_of_all(node: Node) -> None:
    one, other = node.worker(0), node.worker(1)
    one.decide(3)
    other.decide(4, allowed=False)
    one.picture()
    found = other.picture()
    assert found["workers"] == 2
    assert found["requests"] == {"allowed": 3, "denied": 4}
    assert found["store"]["url"] == "redis://host/0"
    rows = [(row["rule_id"], row["mode"], row["allowed"], row["denied"]) for row in found["rules"]]
    assert rows == [("per-ip", "enforce", 3, 4), ("tried", "shadow", 0, 0)]


def test_no_counter_goes_back_whoever_answers(node: Node) -> None:
    workers = [node.worker(0), node.worker(1)]
    last: dict[str, int] = {}
    for turn in range(20):
        for number, worker in enumerate(workers):
            worker.decide(turn % 3 + number)
        told = workers[turn % 2].decided()
        assert all(told[worker] >= count for worker, count in last.items())
        last = told
    assert set(last) == {"0", "1"}


def test_each_name_has_its_help_once(node: Node) -> None:
    one, other = node.worker(0), node.worker(1)
    for worker in (one, other):
        worker.decide(1)
        worker.live.publish()
    assert one.text() == (
        "# HELP headgate_answer A gauge.\n"
        "# TYPE headgate_answer gauge\n"
        'headgate_answer{worker="0"} 42\n'
        'headgate_answer{worker="1"} 42\n'
        "# HELP headgate_decisions_total What rules said.\n"
        "# TYPE headgate_decisions_total counter\n"
        'headgate_decisions_total{worker="0",outcome="allowed",rule="per-ip",source="store"} 1\n'
        'headgate_decisions_total{worker="0",outcome="denied",rule="per-ip",source="store"} 0\n'
        'headgate_decisions_total{worker="1",outcome="allowed",rule="per-ip",source="store"} 1\n'
        'headgate_decisions_total{worker="1",outcome="denied",rule="per-ip",source="store"} 0\n'
    )


def test_of_a_worker_that_is_gone_only_counters_are_told(node: Node) -> None:
    one, other = node.worker(0), node.worker(1)
    other.decide(4)
    other.live.publish()
    node.pass_seconds(11)
    one.decide(1)
    text = one.text()
    assert 'headgate_answer{worker="1"}' not in text
    assert one.decided() == {"0": 1, "1": 4}
    assert one.picture()["workers"] == 1


def test_a_successor_goes_on_with_what_was_counted(node: Node) -> None:
    async def run() -> None:
        first = node.worker(1)
        first.live.start()
        first.decide(4)
        node.pass_seconds(1)
        await first.live.aclose()
        node.pass_seconds(2)
        second = node.worker(1)
        second.live.start()
        second.decide(3)
        node.pass_seconds(1)
        await second.live.aclose()

    run_virtually(run())
    found = node.worker(0).picture()
    assert found["requests"] == {"allowed": 7, "denied": 0}
    assert found["rules"][0]["allowed"] == 7
    line = found["series"]["rules"]["per-ip"]["allowed"]
    assert line[-5:] == [4, 0, 0, 3, 0]  # the last second was not over
    assert found["began"] == node.clock() / SECOND - 4


def test_points_are_put_down_every_second(node: Node) -> None:
    worker = node.worker(0)

    async def run() -> None:
        worker.live.start()
        for _ in range(3):
            worker.decide(2)
            node.pass_seconds(1)
            await asyncio.sleep(1.1)
        await worker.live.aclose()

    run_virtually(run())
    found = worker.picture()["series"]
    assert found["rules"]["per-ip"]["allowed"][-5:] == [0, 2, 2, 2, 0]
    assert found["end"] == node.clock() // SECOND


class Full(SharedSnapshots):
    """There is no memory left."""

    def _write(self, data: bytes, start: int) -> None:
        raise OSError(28, "No space left on device")


def test_without_memory_it_is_said_once_and_what_is_there_is_told(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    one = node.worker(0)
    one.decide(3)
    one.live.publish()
    full = node.worker(0, shared_snapshots=Full(node.fileno, count=2))
    with caplog.at_level(logging.WARNING):
        full.decide(5)
        # What was told before by this worker's board; else the other would tell less than it.
        assert full.decided() == node.worker(1).decided() == {"0": 3}
        full.picture()
    told = "other workers lack some figures of this worker: the snapshot cannot be written"
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [f"{told}: No space left on device"]
    other = node.worker(2, shared_snapshots=Full(node.fileno, count=3))
    other.decide(2)
    assert other.decided() == {"0": 3, "2": 2}  # its own if there is nothing on its board


def test_what_is_left_by_another_version_is_not_there(node: Node) -> None:
    SharedSnapshots(node.fileno, count=2).write(1, b"something else")
    one = node.worker(0)
    one.decide(1)
    assert one.decided() == {"0": 1}
    assert one.picture()["workers"] == 1
    run_virtually(_started_and_ended(node.worker(1)))


async def _started_and_ended(worker: Worker) -> None:
    worker.live.start()
    await worker.live.aclose()


class Small(SharedSnapshots):
    """Holds little."""

    def write(self, board: int, data: bytes) -> None:
        super().write(board, data if len(data) < 20_000 else bytes(9_000_000))


def test_what_is_too_large_is_told_without_its_points(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    one = node.worker(0, shared_snapshots=Small(node.fileno, count=2))
    one.live._recorder.sample(node.clock())
    for rule in range(20):
        one.journal.cell(f"rule-{rule}", "allowed", "store")[0] += 1
    node.pass_seconds(1)
    assert len(one.live.publish().encoded()) > 20_000
    assert "the maximum is" in caplog.text
    found = node.worker(1).picture()
    assert len(found["rules"]) == 22
    assert found["series"]["rules"] == {}


def test_a_rule_that_is_tried_no_longer_is_gone_at_once_from_all_workers(node: Node) -> None:
    def tried(worker: Worker) -> list[str]:
        return [one["rule_id"] for one in worker.picture()["candidates"]]

    one, other = node.worker(0), node.worker(1)
    other.text()
    assert "tried" in tried(one)
    node.engine.replace(read_policy(POLICY.replace("mode: shadow", "mode: enforce")))
    other.text()
    assert "tried" not in tried(one)
