"""`AsyncFairGate`: turns by weight, in one event loop."""

from __future__ import annotations

import asyncio
import time
from asyncio import get_running_loop
from functools import partial
from typing import TYPE_CHECKING, Final

from headgate.errors import UsageError
from headgate.limits import LeakyQueue
from headgate.overload.fair_queue import checked_weight
from headgate.overload.gate_options import read_wait
from headgate.overload.gatehouse import Gatehouse
from headgate.overload.shaper import AsyncShaper
from headgate.overload.turns import Turn, read_rate
from headgate.runtime.waiting_lines import nap
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from types import TracebackType
    from typing import Self

    from headgate.decision import FailurePolicy, OnFailure
    from headgate.engine.rule import Priority
    from headgate.limits.model import PacedLimit
    from headgate.overload.gatehouse import Standing
    from headgate.overload.turns import Entered, FetchedBudget, Place
    from headgate.stores.base import Store
    from headgate.units import Rate, Seconds


class AsyncFairGate(Gatehouse):
    """Lets in as many as may be, and has the others wait in an order that is fair by weight.

        gate = AsyncFairGate(slots=50, weights={"acme": 4}, max_wait=2)
        async with gate.turn("acme") as turn:
            if turn:
                ...

    Its options are those of `Gatehouse`. It belongs to one event loop at a time: to use it in
    another is a `UsageError` unless the former is closed, or nobody is in and nobody waits. On a
    clock that can sleep, such as a `ManualClock`, the wait for a rate moves the clock.
    """

    _loop: asyncio.AbstractEventLoop | None
    _timer: asyncio.TimerHandle | asyncio.Task[None] | None
    _fetched: FetchedBudget | None
    _asleep: Callable[[float], Awaitable[object]] | None

    def try_enter(
        self, tenant: str, cost: int = 1, *, priority: Priority = "default"
    ) -> Turn | None:
        """A turn, if it can be had without waiting; None if not: `enter` would have to wait."""
        if get_running_loop() is not self._loop:
            self._settle_in()
        if self.abandoned:
            self._clear()
        return self._entrance.pass_at_once(tenant, cost, priority, self._now())

    async def enter(
        self,
        tenant: str,
        cost: int = 1,
        *,
        weight: int | None = None,
        priority: Priority = "default",
        timeout: Seconds | None = None,  # noqa: ASYNC109 (a refusal is a value here)
    ) -> Turn:
        """Wait for a turn of *tenant*; check that it is true, and release it.

        It is false at once if it could not be had within *timeout* seconds or the gate's
        `max_wait`, or if too many wait. Whoever is cancelled gives its place up.
        """
        if weight is not None:
            checked_weight(weight)
        patience_ns = None if timeout is None else read_wait(timeout, "timeout")
        turn = self.try_enter(tenant, cost, priority=priority)
        if turn is not None:
            return turn
        now = self._now()
        place = self._entrance.line_up(tenant, cost, weight, priority, patience_ns, now)
        return place if isinstance(place, Turn) else await self._wait(place)

    def standing(
        self, tenant: str, weight: int | None = None, priority: Priority = "default"
    ) -> Standing:
        entrance = self._entrance  # asked of each response: without what only threads need
        wait_ns = entrance.expected_ns(self._now(), tenant, weight, priority)
        return entrance.depth, wait_ns, entrance.in_flight, entrance.limit

    def turn(
        self,
        tenant: str,
        cost: int = 1,
        *,
        weight: int | None = None,
        priority: Priority = "default",
        timeout: Seconds | None = None,
    ) -> AsyncTurning:
        """`enter`, and release at the end: `async with gate.turn(tenant) as turn:`, `if turn:`.

        A block that raises a `TimeoutError` did not succeed, in the sense of `Turn.release`.
        """
        return AsyncTurning(
            self.enter(tenant, cost, weight=weight, priority=priority, timeout=timeout)
        )

    async def aclose(self) -> None:
        """Refuse all who wait, and all who come."""
        self._entrance.close(self._now())
        self._stop()
        if self._terms.fetched is not None:
            await self._terms.fetched.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def left(self, turn: Turn, entered: Entered, *, succeeded: bool) -> None:
        entrance = self._entrance
        if entered is entrance:
            entrance.leave(turn, succeeded=succeeded, now=self._now())

    def given_up(self, turn: Turn, entered: Entered) -> None:
        entrance = self._entrance
        if entered is entrance:
            self._expect(entrance.take_back(turn, self._now()))

    async def _wait(self, place: Place) -> Turn:
        entrance = self._entrance
        called: asyncio.Future[Turn] = get_running_loop().create_future()
        place.wake = partial(_call, called)
        self._expect(entrance.give_out(self._now()))
        timer = _Alarm(self, place)
        turn: Turn | None = None
        try:
            turn = await called
        finally:
            timer.cancel()
            if turn is None:  # cancelled
                self._expect(entrance.withdraw(place, self._now()))
        return entrance.accept(turn)

    def _expect(self, wait_ns: int | None) -> None:
        loop, budget = self._loop, self._terms.fetched
        if budget is not None and budget is self._fetched and wait_ns is not None:
            return  # that is being fetched
        self._stop()
        if wait_ns is None or loop is None or loop.is_closed():
            return
        if budget is not None:
            self._timer = loop.create_task(self._fetch(budget))
            self._fetched = budget
        elif self._asleep is not None:
            self._timer = loop.create_task(self._sleep(nap(wait_ns), self._asleep))
        else:
            self._timer = loop.call_later(nap(wait_ns), self._give_out)

    async def _fetch(self, budget: FetchedBudget) -> None:
        """Have turns fetched as long as anybody waits.

        Should that fail, those who wait go on doing so, and the next one to come has it tried once
        more.
        """
        fetching = asyncio.current_task()
        try:
            while self._entrance.give_out(self._now()) is not None:
                await budget.fetch()
        finally:
            if self._timer is fetching:  # and not stopped
                self._timer = None
                self._stop()

    def _stop(self) -> None:
        """Look for no more."""
        self._fetched = None
        if self._terms.fetched is not None:
            self._terms.fetched.drop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _sleep(self, seconds: float, asleep: Callable[[float], Awaitable[object]]) -> None:
        await asleep(seconds)
        self._timer = None
        self._give_out()

    def _give_out(self) -> None:
        self._expect(self._entrance.give_out(self._now()))

    def _expire(self, place: Place) -> int:
        """The time of *place* should be up; how many nanoseconds it has left."""
        if self.abandoned:
            self._clear()
        entrance, now = self._entrance, self._now()
        wait_ns = entrance.give_out(now)
        left_ns = 0 if place.deadline_ns is None else max(place.deadline_ns - now, 0)
        if not left_ns:
            entrance.expire(place, now)
        self._expect(wait_ns if entrance.depth else None)
        return left_ns

    def _settle_in(self) -> None:
        """Belong to the running loop.

        What is left in the former one, which another thread may be running, is of no account.
        """
        loop, former, entrance = get_running_loop(), self._loop, self._entrance
        now = self._now
        if self._clock is None:  # a loop on virtual time has a clock of its own
            now = getattr(loop, "time_ns", time.monotonic_ns)
        if former is not None:
            if not former.is_closed() and (entrance.in_flight or entrance.depth):
                raise UsageError(
                    f"the gate {self.name!r} is in use in another event loop: make one for each"
                )
            if now != self._now:  # what was taken of a rate was so at times that mean nothing here
                self._terms = self._read_terms(self._said)
            self._after_fork()
        self._loop, self._now = loop, now

    def _after_fork(self) -> None:
        super()._after_fork()
        self._asleep = getattr(self._clock, "asleep", None)
        self._loop = None
        self._timer = None
        self._fetched = None


def _call(called: asyncio.Future[Turn], turn: Turn | None) -> None:
    if turn is not None and not called.done():
        called.set_result(turn)


class _Alarm:
    """Has a place expire when its time is up."""

    __slots__ = ("_gate", "_handle", "_place")

    def __init__(self, gate: AsyncFairGate, place: Place) -> None:
        self._gate = gate
        self._place = place
        self._handle: asyncio.TimerHandle | None = None
        if place.deadline_ns is not None:
            self._set(place.deadline_ns - place.asked_ns)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _set(self, wait_ns: int) -> None:
        self._handle = get_running_loop().call_later(nap(wait_ns), self._ring)

    def _ring(self) -> None:
        left_ns = self._gate._expire(self._place)  # noqa: SLF001 (a part of it)
        if left_ns and self._place.turn is None:  # timers may be early, and naps are short
            self._set(left_ns)


class AsyncTurning:
    """A turn for the time of a block."""

    __slots__ = ("_entering", "_turn")

    def __init__(self, entering: Coroutine[None, None, Turn]) -> None:
        self._entering = entering
        self._turn: Turn | None = None

    async def __aenter__(self) -> Turn:
        turn = self._turn = await self._entering
        return turn

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._turn is not None:
            self._turn.release(succeeded=not isinstance(error, TimeoutError))


# The rate of a whole fleet as the budget of a gate, kept in a store.
#
# A gate whose requests wait has one turn in the store's queue (a `LeakyQueue`) at a time. When it
# comes, whoever is next by then has it: the order is decided here, and late. So nobody who gives up
# takes a turn along, and one that comes later may still go first if that is fair.
#
# What is fair then: among the requests of one process all that a gate promises. Among processes
# each that has requests waiting gets the same number of turns, whatever the weights of those who
# wait there. Where requests are spread evenly over the processes, that comes to the weights as
# well; where they are not, a tenant alone on a quiet process is better off than on a busy one.


_LONGEST: Final = 100_000
"""Units that the whole fleet may have outstanding: a turn of each process."""

_PAUSE: Final = 1.0
"""Seconds until the store is asked again, if it refused and did not say when."""

_MEMORY: Final = 8
"""About how many turns the time between them is taken over."""


class FleetRate:
    """So many units a second for all gates, in any process, that name the same *key* and store.

        exports = FleetRate("100/s", store="redis://localhost:6379/0", key="exports")
        gate = AsyncFairGate(rate=exports)

    A turn takes a round trip at least, and a process gets one in a round trip at most. While the
    store cannot be reached it goes as *on_store_failure* says; as for any limit.
    """

    def __init__(
        self,
        rate: str | PacedLimit | Rate,
        *,
        store: str | Store,
        key: str,
        namespace: str = "headgate",
        on_store_failure: FailurePolicy | OnFailure = "fail_open",
    ) -> None:
        self.per_second = read_rate(rate)
        self.key = key
        self._shaper = AsyncShaper(
            LeakyQueue(self.per_second, _LONGEST),
            store=store,
            namespace=namespace,
            on_store_failure=on_store_failure,
        )
        self._held = 0  # units that were fetched and not taken
        self._missing = 0
        self._least_ns = self._unit_ns = round(SECOND / self.per_second)

    def __repr__(self) -> str:
        return f"<FleetRate of {float(self.per_second):g} a second for {self.key!r}>"

    def take(self, cost: int, now: int, *, has_waited: bool) -> int:
        if self._held >= cost:
            self._held -= cost
            return 0
        self._missing = cost - self._held
        return max(self._unit_ns, 1)

    def give_back(self, cost: int) -> None:
        self._held += cost

    def delay(self, ahead: int, now: int) -> int:
        """As long as it takes by how far apart the turns of this process were of late."""
        return ahead * self._unit_ns

    async def fetch(self) -> None:
        missing, asked_ns = self._missing, _now_ns()
        turn = await self._shaper.acquire(self.key, missing)
        if not turn:
            await asyncio.sleep(_PAUSE if turn.retry_after is None else turn.retry_after)
            return
        self._held += missing
        unit_ns = max((_now_ns() - asked_ns) // missing, self._least_ns)
        self._unit_ns += (unit_ns - self._unit_ns) // _MEMORY

    def drop(self) -> None:
        self._held = 0

    async def aclose(self) -> None:
        await self._shaper.aclose()


def _now_ns() -> int:
    loop = asyncio.get_running_loop()
    now: int = getattr(loop, "time_ns", time.monotonic_ns)()
    return now
