"""`python -m benchmarks.overload.costs`: what the soft edge costs.

The first table is a pass with nobody in the way: a plain decision of this process, the same and
then a turn at a gate that is taken and released, one that is delayed where it has to be (by a queue
in the store, and by a shaper), and a whole request through the ASGI middleware with and without a
rule that has turns. The second is a queue with ever more in it: what it takes to
put one more in, to take the next out and to give a place up. If that is O(log n), a hundred times
as many cost a few steps more, not a hundred times as much.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import random
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from benchmarks.inprocess.goals import Goal
from benchmarks.inprocess.measure import MILLISECOND, Timing, in_turns
from benchmarks.inprocess.report import goal_lines, table, write_json
from benchmarks.surroundings import when_and_where
from headgate import AsyncRateLimiter, LeakyQueue
from headgate.integrations.asgi import RateLimitMiddleware
from headgate.overload import AsyncFairGate, AsyncShaper, Gradient
from headgate.overload.fair_queue import FairQueue, Item
from headgate.policy.loader import read_policy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

RESULTS = Path(__file__).parents[1] / "results" / "shaping.json"
CALLERS = 1_000
MOST_US_MORE = 5.0
MOST_TIMES = 4.0
"""What a queue of a hundred times as many may take: log2(100,000) / log2(1,000) is 1.7, and the
processor's caches do not hold the larger one."""

QUEUES = ("a decision of a queue", "a turn of a shaper")

SIZES = ((1_000, 100), (10_000, 1_000), (100_000, 10_000))
RULE = "version: 1\nrules:\n  - {id: rate, key_by: tenant, limit: 1000000/s}\n"
TURNS = RULE + "  - {id: turns, key_by: tenant, fair: {slots: 100}}\n"


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure."""

    repeats: int
    sample_ns: int


FULL = Effort(repeats=40, sample_ns=5 * MILLISECOND)
QUICK = Effort(repeats=12, sample_ns=3 * MILLISECOND)


# ---- a pass with nobody in the way --------------------------------------------------------


def passes() -> dict[str, Callable[[str], Awaitable[object]]]:
    """What is measured, by name."""
    limiter = AsyncRateLimiter("1000000/s")
    queue = AsyncRateLimiter(LeakyQueue(10**9, 1_000_000))
    gates = {
        "slots": AsyncFairGate(slots=100),
        "slots that move": AsyncFairGate(slots=Gradient(least=100, most=200)),
        "a rate": AsyncFairGate(rate=10**9),
    }

    def after(gate: AsyncFairGate) -> Callable[[str], Awaitable[object]]:
        async def one(key: str) -> object:
            await limiter.hit(key)
            turn = await gate.enter(key)
            return turn.release()

        return one

    found: dict[str, Callable[[str], Awaitable[object]]] = {"a decision": limiter.hit}
    found |= {f"and a gate of {name}": after(gate) for name, gate in gates.items()}
    found["a decision of a queue"] = queue.hit
    found["a turn of a shaper"] = AsyncShaper(10**9, queue=1_000_000).acquire
    found["a request under a rule"] = asking(RULE)
    found["and one with turns"] = asking(TURNS)
    return found


def asking(rules: str) -> Callable[[str], Awaitable[object]]:
    """A request through the middleware to an app that does nothing."""
    start = {"type": "http.response.start", "status": 200, "headers": []}
    body = {"type": "http.response.body", "body": b""}

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send(start)
        await send(body)

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(_message: Any) -> None:
        return

    limited = RateLimitMiddleware(app, policy=read_policy(rules))

    async def one(key: str) -> None:
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/",
            "raw_path": b"/",
            "headers": [(b"x-tenant-id", key.encode())],
            "client": ("203.0.113.7", 1),
        }
        await limited(scope, receive, send)

    return one


def measure_passes(effort: Effort) -> dict[str, Timing]:
    """Nanoseconds a pass."""
    with asyncio.Runner() as runner:
        keys = [f"tenant-{number}" for number in range(CALLERS)]
        samples = {
            name: _sample(one, keys, runner, effort)
            for name, one in runner.run(_made(passes)).items()
        }
        return in_turns(samples, effort.repeats)


async def _made(make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    return make()


def _sample(
    one: Callable[[str], Awaitable[object]], keys: list[str], runner: asyncio.Runner, effort: Effort
) -> Callable[[], float]:
    turn = count()

    async def run(rounds: int) -> int:
        start = perf_counter_ns()
        for _ in range(rounds):
            await one(keys[next(turn) % CALLERS])
        return perf_counter_ns() - start

    runner.run(run(CALLERS))
    rounds = max(1, effort.sample_ns * 50 // min(runner.run(run(50)) for _ in range(5)))
    return lambda: runner.run(run(rounds)) / rounds


# ---- a queue with ever more in it ---------------------------------------------------------


class Filled:
    """A queue of *items* over *tenants*, of which as many leave as come."""

    def __init__(self, items: int, tenants: int) -> None:
        self._random = random.Random(1)
        self._names = [f"tenant-{number}" for number in range(tenants)]
        self._queue = FairQueue()
        self._items: list[Item] = []
        for place in range(items):
            self._items.append(self._push(place))

    def _push(self, place: int) -> Item:
        draw = self._random.random
        name = self._names[int(draw() * len(self._names))]
        item = self._queue.push(name, 1 + int(draw() * 10), 1 + int(draw() * 4))
        item.load = place
        return item

    def turn_over(self, rounds: int) -> float:
        """Nanoseconds to take the next one out and have one give up, and to put two in."""
        queue, items, draw = self._queue, self._items, self._random.random
        start = perf_counter_ns()
        for _ in range(rounds):
            place = int(draw() * len(items))
            queue.cancel(items[place])
            items[place] = self._push(place)
            if (first := queue.pop()) is not None:
                items[first.load] = self._push(first.load)
        return (perf_counter_ns() - start) / rounds


def measure_queues(effort: Effort) -> dict[str, Timing]:
    """Nanoseconds of a pop, a cancellation and two pushes, by what is queued."""
    filled = {f"{items:,} of {tenants:,}": Filled(items, tenants) for items, tenants in SIZES}
    rounds = max(100, effort.sample_ns // 20_000)
    samples = {name: _turning(one, rounds) for name, one in filled.items()}
    return in_turns(samples, effort.repeats)


def _turning(one: Filled, rounds: int) -> Callable[[], float]:
    return lambda: one.turn_over(rounds)


def main() -> None:
    options = _parser().parse_args()
    effort = QUICK if options.quick else FULL
    walked, queued = measure_passes(effort), measure_queues(effort)
    print(_table("a pass, us", walked), end="\n\n")
    print(_table("a queue turned over by one, us", queued), end="\n\n")
    goals = _goals(walked, queued)
    print(goal_lines(goals))
    results = {
        **when_and_where(),
        "effort": effort,
        "ns_per_pass": walked,
        "ns_per_turnover": queued,
        "goals": [{**dataclasses.asdict(goal), "met": goal.met} for goal in goals],
    }
    write_json(options.json, results)


def _goals(walked: dict[str, Timing], queued: dict[str, Timing]) -> list[Goal]:
    def more(one: str, other: str) -> float:
        return round((walked[one].best - walked[other].best) / 1_000, 2)

    goals = [
        Goal(
            f"us more than a decision: {name}",
            more(name, "a decision"),
            MOST_US_MORE,
            at_least=False,
        )
        for name in walked
        if name.startswith("and a gate") or name in QUEUES
    ]
    small, *_, large = queued.values()
    times = round(large.best / small.best, 2)
    goals.append(
        Goal(
            "times as much for a queue of a hundred times as many",
            times,
            MOST_TIMES,
            at_least=False,
        )
    )
    return goals


def _table(title: str, timings: dict[str, Timing]) -> str:
    rows = [
        [name, f"{timing.best / 1_000:.2f}", f"{timing.median / 1_000:.2f}"]
        for name, timing in timings.items()
    ]
    return table([title, "best", "median"], rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overload.costs", description=__doc__
    )
    parser.add_argument("--quick", action="store_true", help="some seconds, rough figures")
    parser.add_argument("--json", type=Path, default=RESULTS, help="the file to write")
    return parser


if __name__ == "__main__":
    main()
