"""A backend that loses half of its workers for a while, and what stands before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from headgate.testing.virtual_loop import VirtualLoop, run_virtually
from scripts.pictures.overload.backend import Backend, service_times
from scripts.pictures.overload.clients import Clients, Front, Habits, Tally

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.engine.plan import Priority

MakeFront = Callable[[Backend, VirtualLoop], Front]

TAKES: Final = 0.1
"""Seconds that a request takes on average when a worker is free."""

MIX: Final[Mapping[Priority, float]] = MappingProxyType(
    {"critical": 0.2, "default": 0.4, "sheddable": 0.4}
)


@dataclass(frozen=True, slots=True)
class Plot:
    """What happens: so many workers, half of them from *halved* to *restored*, in seconds."""

    workers: int = 20
    rate: float = 150.0
    halved: int = 15
    restored: int = 35
    until: int = 60
    habits: Habits = field(default_factory=Habits)
    mix: Mapping[Priority, float] = field(default_factory=lambda: MIX)
    seed: int = 1

    def capacity(self, second: float) -> float:
        """Requests a second that the backend can do then."""
        whole = self.workers / TAKES
        return whole / 2 if self.halved <= second < self.restored else whole


@dataclass(frozen=True, slots=True)
class Course:
    """What came of it: what clients got, and the limit each tenth of a second."""

    tally: Tally
    limits: list[int]
    levels: list[float]


def play(plot: Plot, make_front: MakeFront) -> Course:
    """The same demand, breakdown and chance each time; only what *make_front* makes differs."""
    return run_virtually(_play(plot, make_front))


async def _play(plot: Plot, make_front: MakeFront) -> Course:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    backend = Backend(plot.workers, service_times(TAKES, seed=plot.seed))
    front = make_front(backend, loop)
    clients = Clients(front, rate=plot.rate, mix=plot.mix, habits=plot.habits, seed=plot.seed + 1)
    loop.call_at(plot.halved, backend.resize, plot.workers // 2)
    loop.call_at(plot.restored, backend.resize, plot.workers)
    course = Course(clients.tally, [], [])

    def look() -> None:
        if front.gate is not None:
            course.limits.append(front.gate.limit or 0)
        if front.shedder is not None:
            course.levels.append(front.shedder.level)
        loop.call_later(0.1, look)

    look()
    await clients.come(plot.until)
    return course
