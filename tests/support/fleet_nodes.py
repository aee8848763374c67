"""Nodes that ask, crash, are paused, join and leave, as one seed has it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.errors import StoreError
from headgate.stores.layers.leases import LeasedStore
from headgate.units import SECOND
from tests.support.fleet_world import FarStore, World

if TYPE_CHECKING:
    from headgate.limits import Accuracy, Limit

GROUP = "simulated"


@dataclass(frozen=True, slots=True)
class Scene:
    """What is simulated: one key under *limit*, kept as *accuracy* says, by some nodes."""

    limit: Limit
    accuracy: Accuracy
    nodes: int
    seconds: float
    demand: float
    """How many times the limit's rate is asked for, by all nodes together."""

    largest_cost: int = 1


class Node:
    """One process: its requests come in bursts; it may die and come back with nothing."""

    def __init__(self, world: World, scene: Scene, number: int) -> None:
        self._world = world
        self._scene = scene
        self._number = number
        self._clock = world.skewed_clock()
        self._requests: set[asyncio.Task[None]] = set()
        self._start()

    def _start(self) -> None:
        self.far = FarStore(self._world)
        self.store = LeasedStore(self.far, clock=self._clock)
        self.store.set_accuracies({GROUP: self._scene.accuracy})
        self._prepared = self.store.prepare([(GROUP, self._scene.limit)])

    async def live(self) -> None:
        """Until the scene is over."""
        world, scene, draw = self._world, self._scene, self._world.draw
        await asyncio.sleep(draw.choice([0, 0, 0.3, 1]) * scene.seconds * draw.random())
        per_second = scene.demand * scene.limit.quota * SECOND / scene.limit.period_ns
        mean = scene.nodes / max(per_second, 1e-9)
        is_bursty = draw.random() < 0.3
        while world.loop.time() < scene.seconds:
            left = self.far.paused_until_ns / SECOND - world.loop.time()
            if left > 0:
                await asyncio.sleep(left)
            for _ in range(draw.choice([1, 1, 12]) if is_bursty else 1):
                task = asyncio.ensure_future(self._request(draw.randint(1, scene.largest_cost)))
                self._requests.add(task)
                task.add_done_callback(self._requests.discard)
            fate = draw.random()
            if fate < 0.002:
                await self._crash()
            elif fate < 0.005:
                pause = draw.choice([0.02, 0.2, 2.0]) * draw.random()
                self.far.paused_until_ns = world.loop.time_ns() + round(pause * SECOND)
            await asyncio.sleep(draw.expovariate(1 / mean))
        if self._requests:
            await asyncio.wait(self._requests)
        await self.store.aclose()

    async def _request(self, cost: int) -> None:
        world = self._world
        world.asked += 1
        prepared, far = self._prepared, self.far
        try:
            found = prepared.atake(("key",), (cost,))
            (outcome,) = found if isinstance(found, tuple) else await found
        except StoreError:
            return
        if outcome.allowed:
            is_far = outcome.source == "store"
            when_ns = far.granted_ns(cost) if is_far else world.now_ns()
            world.allowed.append((when_ns, cost))

    async def _crash(self) -> None:
        """Everything in memory is gone; nobody is told."""
        for task in self._requests:
            task.cancel()
        self.far.is_dead = True
        await asyncio.sleep(self._world.draw.random())
        self._start()


async def play(seed: int, scene: Scene) -> World:
    """The world when *scene* is over."""
    loop = asyncio.get_running_loop()
    world = World(seed, loop)  # type: ignore[arg-type]  # it runs on a virtual loop only
    weather = asyncio.ensure_future(_weather(world, scene))
    await asyncio.gather(*(Node(world, scene, n).live() for n in range(scene.nodes)))
    weather.cancel()
    return world


async def _weather(world: World, scene: Scene) -> None:
    """It changes; at times the store is gone altogether."""
    draw = world.draw
    while True:
        await asyncio.sleep(scene.seconds / 4 * draw.random())
        world.weather = type(world.weather).drawn(draw)
        world.is_open = draw.random() > 0.1
