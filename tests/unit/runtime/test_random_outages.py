"""Processes with one store that comes and goes: bounds that hold whatever happens.

In each process, during any time t, no more than its share of the limit is admitted without the
store; the store is charged for each admitted request at most once, and never beyond its limit.
"""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import pytest

from headgate import RateLimiter
from headgate.decision import OnFailure
from headgate.errors import StoreError, StoreFault
from headgate.limits import FixedWindow, Limit, TokenBucket
from headgate.runtime.local_share import share_of
from headgate.stores import MemoryStore, Store
from headgate.stores.base import group_name
from headgate.stores.operations import Operation, Take, TakeEach
from headgate.testing import ManualClock
from tests.support.failing_fallback import reconcile
from tests.support.fleet_bounds import Allowed, excess
from tests.support.unbroken_stores import unbroken

FAULTS: tuple[StoreFault, ...] = ("circuit_open", "timeout", "unreachable", "loading")
KEYS = ("a", "b")


class Link(Store):
    """One process's way to the shared store, which may be cut, or lose what comes back."""

    def __init__(self, shared: MemoryStore, random: Random) -> None:
        self.clock = shared.clock
        self._shared = shared
        self._random = random
        self.faults = FAULTS
        self.is_up = True
        self.charged = 0
        self.merged = 0

    def run(self, operation: Operation[Any]) -> Any:
        if not self.is_up:
            fault = self._random.choice(self.faults)
            if fault == "timeout" and self._random.random() < 0.5:
                self._count(operation, self._shared.run(operation))
            raise StoreError("gone", reason=fault)
        reply = self._shared.run(operation)
        self._count(operation, reply)
        return reply

    def _count(self, operation: Operation[Any], reply: Any) -> None:
        if isinstance(operation, TakeEach):  # limiters hit one by one: this is the merge
            for take, (outcome,) in zip(operation.takes, reply, strict=True):
                self.merged += take.checks[0].cost if outcome.allowed else 0
        elif isinstance(operation, Take) and reply[0].allowed:
            self.charged += operation.checks[0].cost


class Process:
    def __init__(self, shared: MemoryStore, limit: Limit, share: Fraction, random: Random) -> None:
        self.link = Link(shared, random)
        store = unbroken(self.link)
        self.limiter = RateLimiter(limit, store=store, on_store_failure=OnFailure(share=share))
        self.fallback = self.limiter._engine.fallback
        self.without: dict[str, list[tuple[int, int]]] = {key: [] for key in KEYS}
        self.owed = 0

    def hit(self, key: str, cost: int, now: int) -> None:
        before = self.link.charged
        decision = self.limiter.hit(key, cost)
        assert decision.source in {"store", "fail_open", "fallback"}
        if decision.allowed and decision.source == "fail_open":
            self.without[key].append((now, cost))
            self.owed += cost if self.link.charged == before else 0


@pytest.mark.parametrize("limit", [TokenBucket(20, 2), FixedWindow(20, 60)], ids=str)
@pytest.mark.parametrize("seed", range(25))
def test_bounds_hold_whatever_happens(limit: Limit, seed: int) -> None:
    random = Random(seed)
    clock = ManualClock(1_200)
    shared = MemoryStore(clock=clock)
    share = Fraction(1, random.randint(1, 4))
    processes = [Process(shared, limit, share, random) for _ in range(2)]
    for _ in range(200):
        process = random.choice(processes)
        match random.random():
            case chance if chance < 0.7:
                process.hit(random.choice(KEYS), random.randint(1, 4), clock())
            case chance if chance < 0.85:
                clock.advance(random.choice((0.1, 0.5, 1.5, 10)))
            case chance if chance < 0.95:
                process.link.is_up = not process.link.is_up
            case _:
                reconcile(process.fallback)
    for process in processes:
        for events in process.without.values():
            units = [Allowed(at, at) for at, cost in events for _ in range(cost)]
            assert excess(units, [share_of(limit, share)]) <= 0
        assert process.link.merged <= process.owed, "charged twice"


@pytest.mark.parametrize("seed", range(25))
def test_after_the_merge_the_store_shows_what_was_used_as_far_as_it_was_left(seed: int) -> None:
    random = Random(seed)
    clock = ManualClock(1_200)
    shared = MemoryStore(clock=clock)
    limit = FixedWindow(20, 3_600)
    processes = [Process(shared, limit, Fraction(1), random) for _ in range(3)]
    for process in processes:
        process.link.faults = ("circuit_open",)
        process.link.is_up = random.random() < 0.5
        for _ in range(random.randint(0, 12)):
            process.hit("a", random.randint(1, 2), clock())
    used = sum(process.link.charged + process.owed for process in processes)
    clock.advance(2)
    for process in processes:
        process.link.is_up = True
        process.limiter.peek("a")
        reconcile(process.fallback)
    assert shared.used_in(group_name("headgate", 0), "a") == min(20, used)
