"""A fleet before a backend that loses half of its workers for a while, on virtual time.

Several nodes admit the requests of tenants by limits that they share in one store. What is admitted
goes to one backend, with a timeout: the backend does not hear of it, and works for those who have
left as well. With pressure, each node has a control of its own, and all limits are multiplied by
the factor that they agree on.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from headgate.limits import Limit, TokenBucket, scaled
from headgate.overload import AsyncPressureControl
from headgate.policy.model import Pressure
from headgate.stores import MemoryStore
from headgate.stores.operations import Check, Take
from headgate.testing.virtual_loop import VirtualLoop, run_virtually
from headgate.units import MILLISECOND
from scripts.pictures.overload.backend import service_times

if TYPE_CHECKING:
    from collections.abc import Callable

TAKES: Final = 0.1
"""Seconds that a request takes on average when a worker is free."""

PRESSURE: Final = Pressure(latency_ns=400 * MILLISECOND, errors=Fraction(1, 20))


@dataclass(frozen=True, slots=True)
class Tenant:
    """One who may have *rate* requests a second, under pressure no less than *floor* of that."""

    name: str
    rate: int
    floor: Fraction = Fraction(1, 10)


TENANTS: Final = (
    Tenant("gold", 60),
    Tenant("silver", 30),
    Tenant("bronze", 15),
    Tenant("partner", 10, floor=Fraction(9, 10)),
)


@dataclass(frozen=True, slots=True)
class Plot:
    """What happens: so many *workers*, half of them from *halved* to *restored*, in seconds. Each
    tenant wants *wanted* times what it may have."""

    tenants: tuple[Tenant, ...] = TENANTS
    workers: int = 16
    halved: int = 30
    restored: int = 90
    until: int = 150
    wanted: float = 1.2
    timeout: float = 1.0
    nodes: int = 3
    seed: int = 1
    pressure: Pressure | None = PRESSURE

    def capacity(self, second: float) -> float:
        """Requests a second that the backend can do then."""
        whole = self.workers / TAKES
        return whole / 2 if self.halved <= second < self.restored else whole


@dataclass(slots=True)
class Course:
    """What came of it, by second: requests, and the factor in force at each node."""

    offered: Counter[int] = field(default_factory=Counter)
    admitted: Counter[tuple[int, str]] = field(default_factory=Counter)
    answered: Counter[int] = field(default_factory=Counter)
    factors: list[tuple[Fraction, ...]] = field(default_factory=list)

    def goodput(self, begin: int, end: int) -> float:
        """Answers in time from *begin* to *end*, a second."""
        return sum(self.answered[second] for second in range(begin, end)) / (end - begin)

    def rate(self, tenant: str, begin: int, end: int) -> float:
        """Requests of *tenant* that were admitted, a second."""
        return sum(self.admitted[second, tenant] for second in range(begin, end)) / (end - begin)

    def factor(self, begin: int, end: int) -> float:
        """The mean of the factor in force."""
        found = [float(one) for many in self.factors[begin:end] for one in many]
        return sum(found) / len(found)


class Workers:
    """So many workers, and a queue without end in the order of arrival. They do not know who still
    waits for an answer."""

    def __init__(self, count: int, loop: VirtualLoop, seed: int) -> None:
        self._count = count
        self._loop = loop
        self._takes = service_times(TAKES, seed=seed)
        self._busy = 0
        self._waiting: deque[Callable[[], None]] = deque()

    def resize(self, count: int) -> None:
        """There are *count* from now on; who is being served is served to the end."""
        self._count = count
        self._call_next()

    def serve(self, done: Callable[[], None]) -> None:
        """Call *done* when one has had time for it."""
        self._waiting.append(done)
        self._call_next()

    def _call_next(self) -> None:
        while self._waiting and self._busy < self._count:
            self._busy += 1
            self._loop.call_later(self._takes(), self._end, self._waiting.popleft())

    def _end(self, done: Callable[[], None]) -> None:
        self._busy -= 1
        done()
        self._call_next()


class Fleet:
    """Nodes that admit requests, and send what they admit to *workers*."""

    def __init__(self, plot: Plot, workers: Workers, loop: VirtualLoop) -> None:
        self._plot = plot
        self._workers = workers
        self._loop = loop
        self._store = MemoryStore(clock=loop.time_ns)
        self._controls = [
            AsyncPressureControl(
                plot.pressure or Pressure(),
                store=self._store,
                clock=loop.time_ns,
            )
            for _ in range(plot.nodes)
        ]
        self.course = Course()

    def come(self, tenant: Tenant, chance: random.Random) -> None:
        """Have the requests of *tenant* come, each at any of the nodes."""
        at = 0.0

        def request() -> None:
            nonlocal at
            if at:
                self._request(self._controls[chance.randrange(self._plot.nodes)], tenant)
            at += chance.expovariate(tenant.rate * self._plot.wanted)
            self._loop.call_at(at, request)

        request()

    def look(self) -> None:
        """Note the factors, each second."""
        self.course.factors.append(tuple(control.factor for control in self._controls))
        self._loop.call_later(1, self.look)

    def _request(self, control: AsyncPressureControl, tenant: Tenant) -> None:
        second = int(self._loop.time())
        self.course.offered[second] += 1
        limit = _limit(tenant, control.factor)
        (outcome,) = self._store.run(Take((Check("tenants", tenant.name, limit),)))
        if outcome.allowed:
            self.course.admitted[second, tenant.name] += 1
            self._handle(control)

    def _handle(self, control: AsyncPressureControl) -> None:
        loop, began_ns = self._loop, self._loop.time_ns()
        timer: asyncio.TimerHandle | None = None

        def end(*, is_answered: bool) -> None:
            nonlocal timer
            if timer is None:
                return  # it has left already
            timer.cancel()
            timer = None
            if is_answered:
                self.course.answered[int(loop.time())] += 1
            if self._plot.pressure is not None:
                control.record(latency_ns=loop.time_ns() - began_ns, failed=not is_answered)

        timer = loop.call_later(self._plot.timeout, partial(end, is_answered=False))
        self._workers.serve(partial(end, is_answered=True))


@cache
def _limit(tenant: Tenant, factor: Fraction) -> Limit:
    return scaled(TokenBucket(tenant.rate, tenant.rate), max(factor, tenant.floor))


def play(plot: Plot) -> Course:
    """The same demand, breakdown and chance each time; only the plot differs."""
    return run_virtually(_play(plot))


async def _play(plot: Plot) -> Course:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    workers = Workers(plot.workers, loop, plot.seed)
    fleet = Fleet(plot, workers, loop)
    loop.call_at(plot.halved, workers.resize, plot.workers // 2)
    loop.call_at(plot.restored, workers.resize, plot.workers)
    fleet.look()
    for tenant in plot.tenants:
        fleet.come(tenant, random.Random(f"{plot.seed} {tenant.name}"))
    await asyncio.sleep(plot.until)
    return fleet.course
