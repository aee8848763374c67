"""Checks that arrive on their own, 10,000 a second, whether or not the last was answered.

Each is due at a time fixed beforehand, with random gaps as those of independent callers are, and
its latency counts from that time to the decision: a stall is charged to everybody who was due in
it. The loop is kept turning, because asleep it would wake up to a millisecond late: asyncio rounds
its timers up to whole milliseconds.
"""

from __future__ import annotations

import asyncio
import gc
import random
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.redis.contestant import NEVER_REACHED, WrongAnswerError
from benchmarks.redis.ours import OURS_ASYNC
from benchmarks.redis.raw import RAW
from benchmarks.redis.traffic import entered, many_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.redis.contestant import AsyncEntry
    from benchmarks.redis.effort import Effort
    from tests.support.servers import RedisServer

RATE = 10_000
QUANTILES = (0.5, 0.9, 0.99, 0.999, 1.0)
MILLISECONDS = 1_000


@dataclass(frozen=True, slots=True)
class Distribution:
    """Milliseconds at the quantiles above."""

    p50: float
    p90: float
    p99: float
    p999: float
    max: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Distribution:
        ordered = sorted(seconds)
        last = len(ordered) - 1
        return cls(*(ordered[round(q * last)] * MILLISECONDS for q in QUANTILES))


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What came of it."""

    per_second: float
    latency: Distribution
    """From when a check was due to its decision."""
    lateness: Distribution
    """From when a check was due to when it was made: the part that this program adds."""


class OpenLoop:
    """Makes the checks when they are due, and writes down when each was decided."""

    def __init__(self, entry: AsyncEntry, due: Sequence[float]) -> None:
        self._entry = entry
        self._due = due
        self._keys = many_keys()
        self._loop = asyncio.get_running_loop()
        self._next = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._done = asyncio.Event()
        self.latencies: list[float] = []
        self.latenesses: list[float] = []
        self.seconds = 0.0

    async def run(self) -> None:
        self._start = perf_counter()
        self._turn()
        await self._done.wait()
        await asyncio.gather(*self._tasks)
        self.seconds = perf_counter() - self._start

    def _turn(self) -> None:
        now = perf_counter() - self._start
        while self._next < len(self._due) and self._due[self._next] <= now:
            task = self._loop.create_task(self._check(self._due[self._next]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            self._next += 1
        if self._next < len(self._due):
            self._loop.call_soon(self._turn)
        else:
            self._done.set()

    async def _check(self, due: float) -> None:
        key = next(self._keys)
        begun = perf_counter() - self._start
        allowed = await self._entry.hit(key)
        self.latencies.append(perf_counter() - self._start - due)
        self.latenesses.append(begun - due)
        if not allowed:
            raise WrongAnswerError(f"{key} was refused")


async def measure_arrivals(server: RedisServer, effort: Effort) -> dict[str, Arrivals]:
    """Ours, and what the machine allows: the plain script on the bare protocol, second by second.

    Each second has a timetable of its own; both have the same ones.
    """
    server.cli("flushall")
    loops: dict[str, list[OpenLoop]] = {each.name: [] for each in (OURS_ASYNC, RAW)}
    async with entered((OURS_ASYNC, RAW), server.bare_url, NEVER_REACHED, callers=20) as entries:
        for second in range(effort.arrival_seconds):
            for name, entry in entries.items():
                loop = OpenLoop(entry, _timetable(second))
                gc.freeze()
                await loop.run()
                loops[name].append(loop)
        gc.unfreeze()
    return {name: _arrivals(each) for name, each in loops.items()}


def _arrivals(loops: list[OpenLoop]) -> Arrivals:
    latencies = [latency for loop in loops for latency in loop.latencies]
    return Arrivals(
        len(latencies) / sum(loop.seconds for loop in loops),
        Distribution.of(latencies),
        Distribution.of([late for loop in loops for late in loop.latenesses]),
    )


def _timetable(seed: int) -> list[float]:
    gap = random.Random(seed).expovariate
    due, now = [], 0.0
    while (now := now + gap(RATE)) < 1.0:
        due.append(now)
    return due
