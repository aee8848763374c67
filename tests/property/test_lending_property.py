"""Whatever nodes do with what they were lent, the limit is kept up to what was on loan.

Nodes serve requests from their loans, renew them, crash and lose replies, in random schedules. In
any interval a bucket admits at most its capacity, its refill, and the cap; a log in any window its
limit and the cap; a fixed window, of which nothing is lent past its end, its limit exactly.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from headgate.limits import GCRA, FixedWindow, SlidingWindowLog, TokenBucket
from headgate.stores.operations import Check, GrantLease, Take
from headgate.testing import ManualClock
from headgate.units import MILLISECOND, SECOND
from tests.support.fleet_bounds import most_in_a_window, most_in_any_span, most_over_bucket
from tests.support.lease_store import LeaseGrantingStore

if TYPE_CHECKING:
    from headgate.limits import Limit

QUOTA = 20
CAP = 7
SCHEDULES = 50


class Node:
    """One holder: it decides by itself as long as its loan lasts."""

    def __init__(self, name: str, fleet: Fleet) -> None:
        self.fleet = fleet
        self.after_fork(name)

    def after_fork(self, name: str) -> None:
        """Crash, and come back as somebody else who knows nothing."""
        self.name = name
        self.left = self.used = self.reported = self.ends = 0

    def request(self) -> None:
        fleet = self.fleet
        if self.left and fleet.clock() < self.ends:
            self.left -= 1
            self.used += 0 if fleet.is_charged else 1
            fleet.allow()
        else:
            self.ask(1, fleet.random.randint(0, 10))

    def ask(self, cost: int, most: int) -> None:
        fleet, begun = self.fleet, self.fleet.clock()
        unused, self.left = self.left, 0
        lent = fleet.store.run(
            GrantLease(
                Check("g", "key", fleet.limit, cost),
                self.name,
                most,
                fleet.random.randint(1, 3_000) * MILLISECOND,
                unused=unused,
                used=self.used,
                reported=self.reported,
                cap=CAP,
                is_charged=fleet.is_charged,
            )
        )
        if fleet.random.random() < 0.15:  # the reply is lost: refused, and nothing was lent
            return
        self.reported, self.left, self.ends = self.used, lent.amount, begun + lent.lasts_ns
        assert lent.leased <= CAP
        if cost and lent.outcome.allowed:
            fleet.allow()


class Fleet:
    """Some nodes and a store, on one clock, and when they allowed a unit."""

    def __init__(self, limit: Limit, seed: int, *, is_charged: bool) -> None:
        self.limit = limit
        self.is_charged = is_charged
        self.random = Random(seed)
        self.clock = ManualClock(1_700_000_000)
        self.store = LeaseGrantingStore(clock=self.clock)
        self.allowed: list[tuple[int, int]] = []
        self.nodes = [Node(f"node {n}", self) for n in range(3)]

    def allow(self) -> None:
        self.allowed.append((self.clock(), 1))

    def live(self, steps: int) -> None:
        for step in range(steps):
            node, what = self.random.choice(self.nodes), self.random.random()
            if what < 0.75:
                node.request()
            elif what < 0.80:
                node.after_fork(f"node of step {step}")
            elif what < 0.85:
                node.ask(0, self.random.randint(0, 5))
            elif what < 0.90:
                if self.store.run(Take((Check("g", "key", self.limit),)))[0].allowed:
                    self.allow()
            else:
                most = self.random.choice((1, 100, 1_000, 5_000))
                self.clock.advance_ns(self.random.randint(0, most) * MILLISECOND)


@pytest.mark.parametrize("is_charged", [True, False], ids=["leases", "licences"])
@pytest.mark.parametrize("limit", [TokenBucket(QUOTA, 4), GCRA(rate=4, burst=QUOTA)], ids=str)
def test_a_bucket_admits_its_capacity_its_refill_and_the_cap(
    limit: Limit, is_charged: bool
) -> None:
    for seed in range(SCHEDULES):
        fleet = Fleet(limit, seed, is_charged=is_charged)
        fleet.live(200)
        assert most_over_bucket(fleet.allowed, QUOTA, 4) <= CAP, f"seed {seed}"


@pytest.mark.parametrize("is_charged", [True, False], ids=["leases", "licences"])
def test_a_log_admits_its_limit_and_the_cap(is_charged: bool) -> None:
    for seed in range(SCHEDULES):
        fleet = Fleet(SlidingWindowLog(QUOTA, 5), seed, is_charged=is_charged)
        fleet.live(200)
        assert most_in_any_span(fleet.allowed, 5 * SECOND) <= QUOTA + CAP, f"seed {seed}"


@pytest.mark.parametrize("is_charged", [True, False], ids=["leases", "licences"])
def test_a_fixed_window_admits_its_limit_and_with_licences_the_cap(is_charged: bool) -> None:
    for seed in range(SCHEDULES):
        fleet = Fleet(FixedWindow(QUOTA, 5), seed, is_charged=is_charged)
        fleet.live(200)
        most = most_in_a_window(fleet.allowed, 5 * SECOND)
        assert most <= QUOTA + (0 if is_charged else CAP), f"seed {seed}: {most} in a window"


def test_the_schedules_come_close_to_the_bound() -> None:
    closest = 0
    for seed in range(SCHEDULES):
        fleet = Fleet(SlidingWindowLog(QUOTA, 5), seed, is_charged=False)
        fleet.live(200)
        closest = max(closest, most_in_any_span(fleet.allowed, 5 * SECOND) - QUOTA)
    assert 0 < closest <= CAP
