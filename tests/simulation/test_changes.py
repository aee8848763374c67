"""Random schedules of a fleet whose rules change, with several keys and stacked checks.

Windows do not end while they last, so what is held against the limit is all that was allowed; and
whatever was allowed has been charged at the end.
"""

from __future__ import annotations

import asyncio
from fractions import Fraction
from typing import TYPE_CHECKING, TypeVar

import pytest

from headgate.errors import StoreError
from headgate.limits import Accuracy, FixedWindow
from headgate.stores.layers.leases import LeasedStore
from headgate.stores.operations import Check, GrantLease, Take, TakeEach
from headgate.testing.virtual_loop import run_virtually
from headgate.units import MILLISECOND, SECOND
from tests.examples import EXPLORE
from tests.support.fleet_world import FarStore, Weather, World

if TYPE_CHECKING:
    import random

    from headgate.stores.operations import Operation, Outcomes

R = TypeVar("R")

SEEDS_EACH = 10 * EXPLORE or 5
LEASED, SYNCED, EXACT = "leased", "synced", "exact"
GROUPS = (LEASED, SYNCED, EXACT)
KEYS = ("a", "b")
LIMITS = (FixedWindow(60, 3600), FixedWindow(90, 3600))
SYNC_NS = 20 * MILLISECOND
ACCURACIES = (
    {LEASED: Accuracy(batch=8), SYNCED: Accuracy(Fraction(1, 5), sync_ns=SYNC_NS)},
    {LEASED: Accuracy(Fraction(1, 5)), SYNCED: Accuracy(Fraction(1, 5), 6, sync_ns=SYNC_NS)},
    {SYNCED: Accuracy(batch=5)},
)


class Far(FarStore):
    """Any operation may be asked for; when it was allowed does not matter here."""

    def _perform(self, operation: Operation[R], reply: asyncio.Future[R]) -> None:
        world = self._world
        if not world.is_open:
            return
        result = world.store.run(operation)
        if world.draw.random() >= world.weather.lost_replies:
            due_ns = max(world.loop.time_ns() + self._delay_ns(), self.paused_until_ns)
            world.loop.call_at(due_ns / SECOND, self._hear, reply, result, None)


class Fleet:
    """Nodes, and what they allowed of each counter."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.allowed = {(group, key): 0 for group in GROUPS for key in KEYS}

    async def live(self) -> None:
        """One node: it asks, is told of other rules, crashes, is closed and begins anew."""
        world, draw = self.world, self.world.draw
        limit, accuracies = draw.choice(LIMITS), draw.choice(ACCURACIES)
        store = self._new_store(accuracies)
        waiting: set[asyncio.Task[None]] = set()
        for _ in range(draw.choice([40, 120])):
            task = asyncio.ensure_future(self._request(store, limit))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
            fate = draw.random()
            if fate < 0.02:
                for task in waiting:
                    task.cancel()
                store.inner.is_dead = True  # type: ignore[attr-defined]  # it is a Far
                store = self._new_store(accuracies)
            elif fate < 0.04:
                await store.aclose()
                store = self._new_store(accuracies)
            elif fate < 0.08:
                limit, accuracies = draw.choice(LIMITS), draw.choice(ACCURACIES)
                store.set_accuracies(accuracies)
            await asyncio.sleep(draw.choice([0, 0.001, 0.01]) * draw.random())
        if waiting:
            await asyncio.wait(waiting)
        world.weather, world.is_open = Weather(), True
        await asyncio.sleep(1)
        await store.aclose()

    def _new_store(self, accuracies: dict[str, Accuracy]) -> LeasedStore:
        store = LeasedStore(Far(self.world), clock=self.world.skewed_clock())
        store.set_accuracies(accuracies)
        return store

    async def _request(self, store: LeasedStore, limit: FixedWindow) -> None:
        draw = self.world.draw
        takes = tuple(self._take(draw, limit) for _ in range(draw.choice([1, 1, 2])))
        replies: tuple[Outcomes | StoreError, ...]
        try:
            if len(takes) == 1:
                outcomes = await store.arun(takes[0])
                replies = (outcomes,)
            else:
                replies = await store.arun(TakeEach(takes))
        except StoreError:
            return
        for take, reply in zip(takes, replies, strict=True):
            if not isinstance(reply, StoreError) and all(one.allowed for one in reply):
                for check in take.checks:
                    self.allowed[check.group, check.key] += check.cost

    def _take(self, draw: random.Random, limit: FixedWindow) -> Take:
        groups = draw.choice([(LEASED,), (SYNCED,), (LEASED, EXACT), GROUPS])
        key = draw.choice(KEYS)
        return Take(tuple([Check(group, key, limit, draw.choice([1, 1, 3])) for group in groups]))

    def charged(self, group: str, key: str) -> int:
        """All that was charged, after the last leases have lapsed."""
        self.world.store.run(GrantLease(Check(group, key, LIMITS[1], 0), "end", 0, SECOND))
        return self.world.store.used_in(group, key)


async def play(seed: int) -> Fleet:
    world = World(seed, asyncio.get_running_loop())  # type: ignore[arg-type]  # a virtual one
    fleet = Fleet(world)
    await asyncio.gather(*(fleet.live() for _ in range(3)))
    await asyncio.sleep(5)
    return fleet


@pytest.mark.parametrize("part", range(6))
def test_takes_stay_within_the_bound_and_all_that_was_taken_is_charged(part: int) -> None:
    for seed in range(part * SEEDS_EACH, (part + 1) * SEEDS_EACH):
        fleet = run_virtually(play(seed))
        for (group, key), allowed in fleet.allowed.items():
            most = 90 + (18 if group == SYNCED else 0)
            assert allowed <= most, f"seed {seed}: {allowed} of {group}, {most} allowed"
            charged = fleet.charged(group, key)
            assert charged >= allowed, f"seed {seed}: {allowed} of {group}, {charged} charged"
