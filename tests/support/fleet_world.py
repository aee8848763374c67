"""Many nodes, one store far away, and everything that can go wrong in between.

All that happens is drawn from one seed: who asks when and for how much, how long messages take,
which are lost on the way there or on the way back, who crashes, who is paused, whose clock is off.
What was allowed is noted with its time, and held against the bound afterwards.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.errors import StoreError
from headgate.stores.base import Store
from headgate.stores.operations import GrantLease, Take
from headgate.units import MILLISECOND, SECOND
from tests.support.lease_store import LeaseGrantingStore

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.stores.operations import Operation
    from headgate.testing.virtual_loop import VirtualLoop

R = TypeVar("R")

START_NS = 1_800_000_000 * SECOND
"""When all simulations begin, since the epoch, by the store's clock."""

DEADLINE_NS = 50 * MILLISECOND
"""How long a node waits for an answer."""


@dataclass(slots=True)
class Weather:
    """How bad it is: chances for each message, and delays in milliseconds."""

    lost_requests: float = 0.0
    lost_replies: float = 0.0
    slow: float = 0.0
    usual_ms: float = 1.0
    slow_ms: float = 120.0
    denied: float = 0.0

    @classmethod
    def drawn(cls, draw: random.Random) -> Weather:
        """Some weather, now fine, now terrible."""
        badness = draw.choice([0.0, 0.0, 0.02, 0.1, 0.4])
        return cls(
            lost_requests=badness * draw.random(),
            lost_replies=badness * draw.random(),
            slow=badness * draw.random(),
            usual_ms=draw.choice([0.1, 1.0, 5.0, 20.0]),
            slow_ms=draw.choice([60.0, 200.0, 2_000.0]),
            denied=badness * draw.random() / 2,
        )


@dataclass(slots=True)
class World:
    """The one store and its clock, and what every node allowed."""

    seed: int
    loop: VirtualLoop
    draw: random.Random = field(init=False)
    store: LeaseGrantingStore = field(init=False)
    weather: Weather = field(init=False)
    allowed: list[tuple[int, int]] = field(default_factory=list)
    """When, by the store's clock, and how much."""

    asked: int = 0
    calls: int = 0
    is_open: bool = True
    """Whether the store can be reached at all."""

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.store = LeaseGrantingStore(clock=self.now_ns)
        self.weather = Weather.drawn(self.draw)

    def now_ns(self) -> int:
        """What the store's clock says."""
        return START_NS + self.loop.time_ns()

    def skewed_clock(self) -> Clock:
        """A node's clock: off by up to some minutes, and running a little too fast or too slow."""
        offset = round(self.draw.uniform(-300, 300) * SECOND)
        rate = 1 + self.draw.uniform(-1, 1) * 1e-4
        return lambda: START_NS + offset + round(self.loop.time_ns() * rate)


class FarStore(Store):
    """The store as one node sees it: through a network."""

    grants_leases = True

    def __init__(self, world: World) -> None:
        self._world = world
        self.paused_until_ns = 0
        """While the node is paused no reply reaches it."""
        self.is_dead = False
        """What is left of a node that crashed reaches nobody."""
        self.granted: list[tuple[int, int]] = []
        """What the store has allowed and the node has heard of: cost and time there."""

    def run(self, operation: Operation[R]) -> R:
        raise AssertionError(f"{operation} was sent by a thread: nodes live in the virtual loop")

    async def arun(self, operation: Operation[R]) -> R:
        world, draw, weather = self._world, self._world.draw, self._world.weather
        world.calls += 1
        deadline_ns = world.loop.time_ns() + DEADLINE_NS
        if self.is_dead or not world.is_open or draw.random() < weather.denied:
            raise StoreError("denied", reason="unreachable")
        if draw.random() < weather.lost_requests:
            await self._time_out(deadline_ns)
        arrives_ns = self._delay_ns()
        reply: asyncio.Future[R] = world.loop.create_future()
        world.loop.call_later(arrives_ns / SECOND, self._perform, operation, reply)
        try:
            async with asyncio.timeout((deadline_ns - world.loop.time_ns()) / SECOND):
                return await reply
        except TimeoutError:
            await self._wake()
            raise StoreError("no answer", reason="timeout") from None

    def _perform(self, operation: Operation[R], reply: asyncio.Future[R]) -> None:
        """At the store: it is done, whether or not anybody hears of it."""
        world = self._world
        if not world.is_open:
            return
        result = world.store.run(operation)
        if world.draw.random() < world.weather.lost_replies:
            return
        due_ns = max(world.loop.time_ns() + self._delay_ns(), self.paused_until_ns)
        cost = _granted(operation, result)
        grant = (cost, world.now_ns()) if cost else None
        world.loop.call_at(due_ns / SECOND, self._hear, reply, result, grant)

    def _hear(self, reply: asyncio.Future[R], result: R, grant: tuple[int, int] | None) -> None:
        if not reply.done():
            reply.set_result(result)
            if grant is not None:
                self.granted.append(grant)

    def granted_ns(self, cost: int) -> int:
        """When the store allowed a request of *cost* of which the node has heard just now."""
        for place in range(len(self.granted) - 1, -1, -1):
            if self.granted[place][0] == cost:
                return self.granted.pop(place)[1]
        raise AssertionError(f"a request of {cost} was allowed that the store never allowed")

    def _delay_ns(self) -> int:
        weather, draw = self._world.weather, self._world.draw
        most = weather.slow_ms if draw.random() < weather.slow else weather.usual_ms
        return round(draw.uniform(0, most) * MILLISECOND)

    async def _time_out(self, deadline_ns: int) -> None:
        await asyncio.sleep(max(0, deadline_ns - self._world.loop.time_ns()) / SECOND)
        await self._wake()
        raise StoreError("no answer", reason="timeout")

    async def _wake(self) -> None:
        """A paused node notices nothing, not even that its deadline has passed."""
        left_ns = self.paused_until_ns - self._world.loop.time_ns()
        if left_ns > 0:
            await asyncio.sleep(left_ns / SECOND)


def _granted(operation: Operation[Any], result: Any) -> int:
    """What the store allowed at once, not what it grant."""
    if isinstance(operation, GrantLease):
        return operation.check.cost if result.outcome.allowed else 0
    if isinstance(operation, Take):
        (check,), (outcome,) = operation.checks, result
        return check.cost if operation.consume and outcome.allowed else 0
    return 0
