"""Shared memory: checks a second of eight processes beside those of two, and beside Redis."""

from __future__ import annotations

import multiprocessing
import time
from contextlib import ExitStack
from secrets import token_hex
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.budgets.row import Budget, Effort, Row
from headgate import RateLimiter, TokenBucket
from headgate.stores.shm.file import path_of
from tests.support.servers import RedisServer

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Barrier

KEYS: Final = 100
AT_ONCE: Final = 20


def shm(effort: Effort) -> list[Row]:
    """Checks a second of all processes together, through `RateLimiter.hit`."""
    name = f"bench-{token_hex(8)}"
    url = f"shm://{name}?timeout=10"
    with ExitStack() as stack:
        stack.callback(lambda: path_of(name).unlink(missing_ok=True))
        cases = {"8 processes": (8, url), "2 processes": (2, url)}
        if effort.with_peers:
            redis = stack.enter_context(RedisServer())
            cases["Redis, 8 processes"] = (8, redis.url)
        rates: dict[str, list[float]] = {case: [] for case in cases}
        for _ in range(effort.rounds(5)):
            for case, (processes, store) in cases.items():
                rates[case].append(checks_a_second(store, processes, 1.0))
    beside = {case: median(found) for case, found in rates.items()}
    eight = beside.pop("8 processes")
    return [
        Row(
            "shm.scaling",
            "shm, checks a second of 8 processes",
            eight,
            "/s",
            (
                Budget(1, "2 processes", at_least=True),
                Budget(10, "Redis, 8 processes", at_least=True),
            ),
            beside,
            higher_is_better=True,
        )
    ]


def checks_a_second(url: str, processes: int, seconds: float) -> float:
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(processes)
    done: Queue[int] = context.Queue()
    running = [
        context.Process(target=_hit, args=(url, seconds, ready, done)) for _ in range(processes)
    ]
    for process in running:
        process.start()
    checks = sum(done.get(timeout=seconds + 60) for _ in running)
    for process in running:
        process.join()
    return checks / seconds


def _hit(url: str, seconds: float, ready: Barrier, done: Queue[int]) -> None:
    """Hit one key after the other for *seconds*, and report the number of allowed hits."""
    limit = TokenBucket(10**9, 1_000)
    with RateLimiter(limit, store=url, name="bench", on_store_failure="fail_closed") as limiter:
        keys = [f"user:{n}" for n in range(KEYS)]
        for key in keys:
            assert limiter.hit(key)
        ready.wait()
        end = time.perf_counter() + seconds
        checks = denied = 0
        while time.perf_counter() < end:
            for n in range(AT_ONCE):
                denied += not limiter.hit(keys[(checks + n) % KEYS])
            checks += AT_ONCE
    done.put(checks - denied)
