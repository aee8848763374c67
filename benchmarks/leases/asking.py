"""One process of a fleet: it hits one key, and notes what it got and when."""

from __future__ import annotations

import gc
import time
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.leases.ways import HALF, KEY
from headgate import RateLimiter

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Barrier

    from benchmarks.leases.ways import Traffic, Way

PATIENCE: Final = 60.0
_AT_ONCE: Final = 20
_PAUSE: Final = 0.001


@dataclass(frozen=True, slots=True)
class Orders:
    """What each of *processes* does: *warm_s* seconds until leases are as large as they get, then
    *seconds* that count."""

    url: str
    namespace: str
    way: Way
    traffic: Traffic
    processes: int
    warm_s: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Notes:
    """What one process got. *checks*, *refused* and *took_s* are of the time that counts, the times
    of what was *admitted* (monotonic, the same for all processes) are those of all time."""

    checks: int
    refused: int
    took_s: float
    admitted: array[int]


class Asker:
    """Hits the key, in this process, by these orders."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._limiter = RateLimiter(
            orders.traffic.limit,
            store=orders.url,
            name="api",
            namespace=orders.namespace,
            accuracy=orders.way.accuracy,
            on_store_failure="fail_closed",
        )
        self._hit = self._limiter.hit
        self._many = self._many_noted if orders.traffic.is_limited else self._many_unnoted
        self.checks = self.refused = 0
        self.admitted = array("q")

    def warm_up(self) -> None:
        self._ask(HALF.share if self._orders.traffic.is_limited else None, self._orders.warm_s)

    def ask(self) -> float:
        """Do what counts; for how many seconds."""
        self.checks = self.refused = 0
        return self._ask(self._orders.traffic.share, self._orders.seconds)

    def close(self) -> None:
        self._limiter.close()

    def _ask(self, share: float | None, seconds: float) -> float:
        began = time.monotonic()
        end = began + seconds
        if share is None:
            while time.monotonic() < end:
                self._many(_AT_ONCE)
        else:
            limit = self._orders.traffic.limit
            per_second = share * float(limit.per_second) / self._orders.processes
            asked = 0
            while (now := time.monotonic()) < end:
                due = int((now - began) * per_second) - asked
                self._many(due)
                asked += due
                time.sleep(_PAUSE)
        return time.monotonic() - began

    def _many_noted(self, hits: int) -> None:
        hit, note, now_ns = self._hit, self.admitted.append, time.monotonic_ns
        for _ in range(hits):
            if hit(KEY):
                note(now_ns())
            else:
                self.refused += 1
        self.checks += hits

    def _many_unnoted(self, hits: int) -> None:
        hit = self._hit
        for _ in range(hits):
            if not hit(KEY):
                self.refused += 1
        self.checks += hits


def take_part(orders: Orders, gate: Barrier, done: Queue[Notes]) -> None:
    """Take part in a round: the gate opens when all are warm, when it counts, and after it."""
    gc.freeze()
    asker = Asker(orders)
    asker.warm_up()
    gate.wait(PATIENCE)
    gate.wait(PATIENCE)
    took_s = asker.ask()
    gate.wait(PATIENCE)
    gate.wait(PATIENCE)
    asker.close()
    done.put(Notes(asker.checks, asker.refused, took_s, asker.admitted))
