"""Clients who wait only for so long for an answer, and then try again."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from headgate.engine.plan import Priority
    from headgate.overload import AsyncFairGate, LoadShedder

T = TypeVar("T")

_FIRST_PAUSE: Final = 0.1


class Front(Protocol):
    """What stands between the clients and a backend: a gate, a shedder, or nothing."""

    @property
    def gate(self) -> AsyncFairGate | None: ...

    @property
    def shedder(self) -> LoadShedder | None: ...

    async def handle(self, priority: Priority) -> bool:
        """Whether there was an answer, at whatever time; False is a refusal."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What clients do: how long they wait, how often they try again, and whether there is a budget
    for that, in retries for each request."""

    timeout: float = 1.0
    retries: int = 3
    budget: float | None = None


@dataclass(slots=True)
class Tally:
    """What became of the requests that began in each second, by class."""

    wanted: Counter[tuple[int, Priority]] = field(default_factory=Counter)
    answered: Counter[tuple[int, Priority]] = field(default_factory=Counter)
    tried: Counter[int] = field(default_factory=Counter)

    def goodput(self, begin: int, end: int, *priorities: Priority) -> float:
        """Answers in time from *begin* to *end*, a second; of all classes if none is said."""
        return _rate(self.answered, begin, end, priorities)

    def demand(self, begin: int, end: int, *priorities: Priority) -> float:
        """Requests a second, retries not counted."""
        return _rate(self.wanted, begin, end, priorities)


def _rate(
    counts: Counter[tuple[int, Priority]], begin: int, end: int, priorities: tuple[Priority, ...]
) -> float:
    found = sum(
        count
        for (second, priority), count in counts.items()
        if begin <= second < end and (not priorities or priority in priorities)
    )
    return found / (end - begin)


class Clients:
    """Many of them: requests come at random, at *rate* a second, of classes by *mix*."""

    def __init__(
        self,
        front: Front,
        *,
        rate: float,
        mix: Mapping[Priority, float],
        habits: Habits,
        seed: int,
    ) -> None:
        self.rate = rate
        self.tally = Tally()
        self._front = front
        self._mix = mix
        self._habits = habits
        self._chance = random.Random(seed)
        self._saved = 0.0
        self._tasks: set[asyncio.Task[object]] = set()

    async def come(self, until: float) -> None:
        """Begin requests until then; what has begun goes on."""
        loop = asyncio.get_running_loop()
        kinds, weights = tuple(self._mix), tuple(self._mix.values())
        at = loop.time()
        while (at := at + self._chance.expovariate(self.rate)) < until:
            await asyncio.sleep(at - loop.time())
            self._start(self._want(self._chance.choices(kinds, weights)[0]))

    async def _want(self, priority: Priority) -> None:
        loop = asyncio.get_running_loop()
        self.tally.wanted[int(loop.time()), priority] += 1
        if self._habits.budget is not None:
            self._saved = min(self._saved + self._habits.budget, 10.0)
        for attempt in range(1 + self._habits.retries):
            if attempt:
                if not self._may_retry():
                    return
                await asyncio.sleep(_FIRST_PAUSE * 2**attempt * self._chance.random())
            self.tally.tried[int(loop.time())] += 1
            if await self._is_answered(priority):
                self.tally.answered[int(loop.time()), priority] += 1
                return

    def _may_retry(self) -> bool:
        if self._habits.budget is None:
            return True
        if self._saved < 1:
            return False
        self._saved -= 1
        return True

    async def _is_answered(self, priority: Priority) -> bool:
        """Who has waited for too long leaves; nobody tells the backend."""
        handled = self._start(self._front.handle(priority))
        done, _ = await asyncio.wait({handled}, timeout=self._habits.timeout)
        return bool(done) and bool(handled.result())

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
