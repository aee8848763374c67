"""`python -m benchmarks.shm`: checks per second in shared memory, beside Redis on loopback.

The same processes (1, 2, 4, 8), the same limits, all through `RateLimiter.hit`; the two take
turns, a few rounds each, so that a noisy machine disturbs both alike. What is shown is the median.
The goal is ten times as many checks per second, for token buckets and fixed windows; sliding
counters and stacked limits are shown beside them. The status is 1 if a goal was missed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from secrets import token_hex
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.inprocess.goals import Goal
from benchmarks.inprocess.report import goal_lines, write_json
from benchmarks.surroundings import when_and_where
from headgate import RateLimiter
from headgate.limits import FixedWindow, Limit, SlidingWindowCounter, TokenBucket
from headgate.stores.shm.file import path_of
from tests.support.servers import RedisServer

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Barrier

RESULTS: Final = Path(__file__).parent / "results" / "shm.json"
LEAST: Final = 10.0
HELD: Final = ("token bucket", "fixed window")
PROCESSES: Final = (1, 2, 4, 8)
LIMITS: Final[dict[str, Limit | list[Limit]]] = {
    "token bucket": TokenBucket(10**9, 1_000),
    "fixed window": FixedWindow(10**9, 3_600),
    "sliding counter": SlidingWindowCounter(10**9, 3_600),
    "two stacked": [TokenBucket(10**9, 1_000), FixedWindow(10**9, 3_600)],
}
KEYS: Final = 100
_AT_ONCE: Final = 20


class Case(NamedTuple):
    """What is measured: which limit, with how many processes."""

    limit: str
    processes: int


Found = dict[Case, dict[str, list[float]]]
"""Checks per second of each round, by store."""


def ask(case: Case, url: str, seconds: float, ready: Barrier, done: Queue[int]) -> None:
    """Hit one key after the other for *seconds*; how often."""
    limiter = RateLimiter(
        LIMITS[case.limit], store=url, name="bench", on_store_failure="fail_closed"
    )
    keys = [f"user:{n}" for n in range(KEYS)]
    for key in keys:
        assert limiter.hit(key)
    ready.wait()
    end = time.perf_counter() + seconds
    checks = refused = 0
    while time.perf_counter() < end:
        for n in range(_AT_ONCE):
            refused += not limiter.hit(keys[(checks + n) % KEYS])
        checks += _AT_ONCE
    limiter.close()
    done.put(checks - refused)


def measured(case: Case, url: str, seconds: float) -> float:
    """Checks per second, all processes together."""
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(case.processes)
    done: Queue[int] = context.Queue()
    asking = [
        context.Process(target=ask, args=(case, url, seconds, ready, done))
        for _ in range(case.processes)
    ]
    for process in asking:
        process.start()
    checks = sum(done.get(timeout=seconds + 60) for _ in asking)
    for process in asking:
        process.join()
    return checks / seconds


def ratio(rates: dict[str, list[float]]) -> float:
    """How many times the checks per second of Redis."""
    return median(rates["shm"]) / median(rates["redis"])


def rows(found: Found) -> str:
    """The table: what was measured, and the ratio."""
    lines = [f"{'limit':16} {'processes':>9} {'redis/s':>10} {'shm/s':>10} {'ratio':>6}"]
    for case, rates in found.items():
        redis, shm = median(rates["redis"]), median(rates["shm"])
        figures = f"{redis:10,.0f} {shm:10,.0f} {ratio(rates):6.1f}"
        lines.append(f"{case.limit:16} {case.processes:9} {figures}")
    return "\n".join(lines)


def goals_of(found: Found) -> list[Goal]:
    """What the limits with a goal are held to; the others are there to be seen."""
    return [
        Goal(f"{case.limit}, processes: {case.processes}", ratio(rates), LEAST, at_least=True)
        for case, rates in found.items()
        if case.limit in HELD
    ]


def record(found: Found, goals: list[Goal], given: argparse.Namespace) -> dict[str, object]:
    """Where, when and with what the numbers were taken, and the numbers."""
    return {
        **when_and_where(),
        "cores": os.cpu_count(),
        "effort": {"seconds": given.seconds, "rounds": given.rounds, "keys": KEYS},
        "checks_per_second": [
            {**case._asdict(), **rates, "ratio": ratio(rates)} for case, rates in found.items()
        ],
        "goals": [{**asdict(goal), "met": goal.met} for goal in goals],
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shm", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limits", nargs="*", default=list(LIMITS), choices=list(LIMITS))
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the record goes")
    given = parser.parse_args()
    name = f"bench-{token_hex(8)}"
    cases = [Case(limit, many) for limit in given.limits for many in PROCESSES]
    found: Found = {case: defaultdict(list) for case in cases}
    try:
        with RedisServer() as server:
            urls = {"redis": server.url, "shm": f"shm://{name}?timeout=10"}
            for _ in range(given.rounds):
                for case in cases:
                    for store, url in urls.items():
                        found[case][store].append(measured(case, url, given.seconds))
    finally:
        path_of(name).unlink(missing_ok=True)
    goals = goals_of(found)
    print(rows(found), goal_lines(goals), sep="\n\n")
    write_json(given.json, record(found, goals, given))
    return 0 if all(goal.met for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
