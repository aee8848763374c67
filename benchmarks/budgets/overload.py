"""Queues and gates: the cost of a place when no caller waits, and of a queue that grows."""

from __future__ import annotations

import asyncio
import random
from itertools import cycle
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Final

from benchmarks.budgets.row import Budget, Effort, Row
from benchmarks.measure import MILLISECOND, in_turns
from headgate import AsyncRateLimiter, LeakyQueue
from headgate.overload import AsyncFairGate, AsyncShaper, Gradient
from headgate.overload.fair_queue import FairQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.overload.fair_queue import Item

    Check = Callable[[str], Awaitable[object]]

CALLERS: Final = 1_000
DECISION: Final = "a decision"
SIZES: Final = (1_000, 100_000)


def overload(effort: Effort) -> list[Row]:
    with asyncio.Runner() as runner:
        checks = runner.run(_checks())
        samples = {name: _sample(check, runner) for name, check in checks.items()}
        timings = in_turns(samples, effort.rounds(40))
    decision = timings.pop(DECISION).best / 1000
    rows = [
        Row(
            f"overload.{name.replace(' ', '_')}",
            f"{name}, no caller waits, added to a decision",
            timing.best / 1000 - decision,
            "us",
            (Budget(5),),
            {DECISION: decision},
            whole=timing.best / 1000,
        )
        for name, timing in timings.items()
    ]
    queues = {str(size): _FilledQueue(size).replace_two for size in SIZES}
    small, large = (timing.best / 1000 for timing in in_turns(queues, effort.rounds(40)).values())
    rows.append(
        Row(
            "overload.queue_growth",
            f"fair queue of {SIZES[1]:,}: a pop, a cancellation and two pushes",
            large,
            "us",
            (Budget(4, f"{SIZES[0]:,} queued"),),
            {f"{SIZES[0]:,} queued": small},
        )
    )
    return rows


async def _checks() -> dict[str, Check]:
    limiter = AsyncRateLimiter("1000000/s")

    def then(gate: AsyncFairGate) -> Check:
        async def check(key: str) -> None:
            await limiter.hit(key)
            (await gate.enter(key)).release()

        return check

    return {
        DECISION: limiter.hit,
        "gate of slots": then(AsyncFairGate(slots=100)),
        "gate of adaptive slots": then(AsyncFairGate(slots=Gradient(least=100, most=200))),
        "gate of a rate": then(AsyncFairGate(rate=10**9)),
        "leaky queue": AsyncRateLimiter(LeakyQueue(10**9, 1_000_000)).hit,
        "shaper": AsyncShaper(10**9, queue=1_000_000).acquire,
    }


def _sample(check: Check, runner: asyncio.Runner) -> Callable[[], float]:
    keys = cycle([f"tenant-{number}" for number in range(CALLERS)])

    async def run(rounds: int) -> int:
        start = thread_time_ns()
        for _ in range(rounds):
            await check(next(keys))
        return thread_time_ns() - start

    runner.run(run(CALLERS))
    rounds = 5 * MILLISECOND * 50 // min(runner.run(run(50)) for _ in range(5))
    return lambda: runner.run(run(rounds)) / rounds


class _FilledQueue:
    """A queue of *size* requests of a tenth as many tenants; as many leave as arrive."""

    def __init__(self, size: int) -> None:
        self._random = random.Random(1)
        self._tenants = [f"tenant-{number}" for number in range(size // 10)]
        self._queue = FairQueue()
        self._items: list[Item] = [self._push(place) for place in range(size)]

    def _push(self, place: int) -> Item:
        draw = self._random.random
        tenant = self._tenants[int(draw() * len(self._tenants))]
        item = self._queue.push(tenant, 1 + int(draw() * 10), 1 + int(draw() * 4))
        item.load = place
        return item

    def replace_two(self, rounds: int = 250) -> float:
        """Nanoseconds to cancel one request, to take the next one out, and to add two."""
        queue, items, draw = self._queue, self._items, self._random.random
        start = perf_counter_ns()
        for _ in range(rounds):
            place = int(draw() * len(items))
            queue.cancel(items[place])
            items[place] = self._push(place)
            if (first := queue.pop()) is not None:
                items[first.load] = self._push(first.load)
        return (perf_counter_ns() - start) / rounds
