"""A node of a fleet, as a process of its own: hits one key over and over, and notes what it got.

    python -m tests.support.faults.node '{"url": ..., "limit": ..., ...}'

Each admission is a line in the file *notes*: when it was asked for and when it was granted, in
nanoseconds of the wall clock, and by what. A line is written at once, so that what was noted is
there whatever becomes of the process. It ends when it is killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from headgate import AsyncRateLimiter, RateLimiter
from headgate.limits import Accuracy
from headgate.stores.layers.circuit_breaker import CircuitBreakerStore
from headgate.stores.layers.leases import LeasedStore
from headgate.stores.redis import RedisStore

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.decision import Decision


@dataclass(frozen=True)
class Orders:
    """What a node is told. *skew_ns* is how far its clock is ahead, *pause* how many seconds it
    waits between two hits."""

    url: str
    notes: str
    namespace: str
    limit: str
    max_overshoot: str | None = None
    batch: int | None = None
    sync_ns: int | None = None
    skew_ns: int = 0
    pause: float = 0.002
    is_async: bool = False

    @property
    def accuracy(self) -> Accuracy:
        share = None if self.max_overshoot is None else Fraction(self.max_overshoot)
        return Accuracy(max_overshoot=share, batch=self.batch, sync_ns=self.sync_ns)

    def call(self) -> list[str]:
        """The command line of such a node."""
        return [sys.executable, "-m", "tests.support.faults.node", json.dumps(asdict(self))]

    def clock(self) -> int:
        return time.monotonic_ns() + self.skew_ns


@dataclass(frozen=True)
class Note:
    """One admission: asked for and granted at these times, in nanoseconds, by *source*."""

    asked_ns: int
    granted_ns: int
    source: str


def read_notes(path: Path) -> list[Note]:
    """What a node has noted so far; a last line that is not whole is left out."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    fields = [line.split() for line in lines]
    return [Note(int(asked), int(granted), source) for asked, granted, source in fields]


def _note(file: int, asked_ns: int, decision: Decision) -> None:
    if decision.allowed:
        os.write(file, f"{asked_ns} {time.time_ns()} {decision.source}\n".encode())


def hit_on(orders: Orders, file: int) -> None:
    """Hit for ever, blocking."""
    store = LeasedStore(CircuitBreakerStore(RedisStore(orders.url)), clock=orders.clock)
    limiter = RateLimiter(
        orders.limit,
        store=store,
        name="api",
        namespace=orders.namespace,
        accuracy=orders.accuracy,
        on_store_failure="fail_closed",
    )
    while True:
        asked_ns = time.time_ns()
        _note(file, asked_ns, limiter.hit("key"))
        time.sleep(orders.pause)


async def hit_on_in_loop(orders: Orders, file: int) -> None:
    """Hit for ever, in an event loop."""
    inner = CircuitBreakerStore(RedisStore(orders.url))
    limiter = AsyncRateLimiter(
        orders.limit,
        store=LeasedStore(inner, clock=orders.clock),
        name="api",
        namespace=orders.namespace,
        accuracy=orders.accuracy,
        on_store_failure="fail_closed",
    )
    while True:
        asked_ns = time.time_ns()
        _note(file, asked_ns, await limiter.hit("key"))
        await asyncio.sleep(orders.pause)


def main() -> None:
    orders = Orders(**json.loads(sys.argv[1]))
    file = os.open(orders.notes, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    if orders.is_async:
        asyncio.run(hit_on_in_loop(orders, file))
    else:
        hit_on(orders, file)


if __name__ == "__main__":
    main()
