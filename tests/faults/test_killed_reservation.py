"""A process that reserves and is killed before it settles: what it held counts as used."""

from __future__ import annotations

import sys
from secrets import token_hex
from typing import TYPE_CHECKING

import pytest

from headgate.engine.plan import CompiledRule, Plan, plan_rule
from headgate.engine.use_cases import Engine
from headgate.limits import FixedWindow, SlidingWindowLog, TokenBucket
from headgate.runtime.drivers import drive
from headgate.units import HOUR, SECOND
from tests.support.servers import RedisServer, is_installed, wait_until
from tests.support.servers.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headgate.limits import Limit

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

LIMITS: list[Limit] = [
    TokenBucket(100, 0.001),
    FixedWindow(100, 86_400),
    SlidingWindowLog(100, 86_400),
]
HELD = 60
PROGRAM = """
import sys, time
from headgate.runtime.drivers import drive
from headgate.engine.use_cases import Engine
from tests.faults.test_killed_reservation import HELD, plan

_, url, namespace, ttl_ns = sys.argv
verdict = drive(Engine(url).reserve(plan(namespace, HELD), "call", int(ttl_ns)))
print("reserved" if verdict.held else "denied", flush=True)
time.sleep(600)
"""


def plan(namespace: str, cost: int) -> Plan:
    """A request under a rule for each limit that charges what expires, and one that does not."""
    rules = [
        plan_rule(CompiledRule(f"{number}", charges_expired=True), (limit,), "key", cost, namespace)
        for number, limit in enumerate(LIMITS)
    ]
    rules.append(plan_rule(CompiledRule("plain"), (LIMITS[1],), "key", cost, namespace))
    return Plan(0, tuple(rules), open=frozenset([one.rule.id for one in rules]))


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def reserve_and_die(url: str, namespace: str, ttl_ns: int, log: Path) -> None:
    """Reserve in another process, and kill it."""
    process = Process([sys.executable, "-c", PROGRAM, url, namespace, str(ttl_ns)], log)
    try:
        wait_until(lambda: "reserved" in log.read_text(), "the process has reserved")
    finally:
        process.kill()


def left(engine: Engine, namespace: str) -> list[int]:
    """What is left under each rule."""
    decisions = drive(engine.peek(plan(namespace, 0), raises=True)).decisions
    return [decision.remaining for decision in decisions if decision is not None]


def test_what_a_killed_process_held_counts_after_it_expired(
    server: RedisServer, tmp_path: Path
) -> None:
    engine, namespace = Engine(server.url), token_hex(4)
    reserve_and_die(server.url, namespace, 2 * SECOND, tmp_path / "log")
    wait_until(lambda: left(engine, namespace)[-1] == 100, "the hold has expired")
    assert left(engine, namespace) == [40, 40, 40, 100]
    again = drive(engine.reserve(plan(namespace, HELD), "again", HOUR))
    assert not again.allowed
    fitting = drive(engine.reserve(plan(namespace, 40), "fitting", HOUR))
    assert fitting.allowed
    assert left(engine, namespace) == [0, 0, 0, 60]
    drive(engine.closing())


def test_what_a_killed_process_held_is_out_of_reach_until_then(
    server: RedisServer, tmp_path: Path
) -> None:
    engine, namespace = Engine(server.url), token_hex(4)
    reserve_and_die(server.url, namespace, HOUR, tmp_path / "log")
    assert left(engine, namespace) == [40, 40, 40, 40]
    assert not drive(engine.decide(plan(namespace, 41))).allowed
    drive(engine.closing())
