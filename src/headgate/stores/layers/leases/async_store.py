"""The store that borrows, for event loops."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any, TypeVar, cast

from headgate.errors import StoreError
from headgate.stores.base import Asker, AsyncStore, Hitter, checked_cost, checked_key, concluded
from headgate.stores.layers.leases.desk import PATIENCE_NS, Desk, decisions_of
from headgate.stores.layers.leases.pots import Errand
from headgate.stores.layers.leases.taking import taking, taking_each
from headgate.stores.operations import (
    Check,
    GrantLease,
    LeaseGrant,
    Operation,
    Take,
    TakeEach,
)
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Generator, Sequence

    from headgate.clock import Clock
    from headgate.decision import Decision
    from headgate.limits import Limit
    from headgate.observability.sketches import Heavy
    from headgate.stores.base import Terms
    from headgate.stores.layers.leases.served import Bound

R = TypeVar("R")


class Flight:
    """A loan that one task asks for and others of its loop wait for."""

    __slots__ = ("landed", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.landed: asyncio.Future[LeaseGrant] = self.loop.create_future()


class AsyncLeasedStore(AsyncStore):
    """As `LeasedStore`, before a store for event loops; several loops may use it."""

    def __init__(
        self,
        inner: AsyncStore,
        *,
        clock: Clock | None = None,
        holder: str | None = None,
        most_loans: int | None = None,
        keeps: bool = True,
    ) -> None:
        self.inner = inner
        self.waits = inner.waits
        self.lends = inner.lends
        self.shares = inner.shares
        if hasattr(inner, "clock"):
            self.clock: Clock = inner.clock
        self._desk: Desk[Flight] = Desk(inner, clock=clock, holder=holder, most_loans=most_loans)
        self._keeps = keeps
        self._under_way: set[asyncio.Task[Any]] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} before {self.inner!r}>"

    async def run(self, operation: Operation[R]) -> R:
        if self._desk.is_idle:
            self._desk.notice(operation)
            return await self.inner.run(operation)
        if isinstance(operation, Take) and operation.consume:
            if not self._desk.governs(operation.checks):
                self._desk.notice(operation)
                return await self.inner.run(cast("Operation[R]", operation))
            served = await self._drive(taking(self._desk, operation, Flight))
            return cast("R", tuple([one.told for one in served]))
        if isinstance(operation, TakeEach):
            outcomes = await self._drive(taking_each(self._desk, operation))
            self._set_alarm()
            return cast("R", outcomes)
        reply = await self.inner.run(operation)
        self._desk.tell(operation)
        return reply

    def take_quickly(self, checks: Sequence[Check]) -> tuple[Decision, ...] | None:
        if not self._desk.governs(checks):
            return self.inner.take_quickly(checks)
        served = self._desk.serve(checks)
        return None if served is None else decisions_of(checks, served)

    def hitter(self, places: Sequence[tuple[str, Limit]]) -> Hitter | None:
        if any(self._desk.book.governs(group) for group, _ in places):
            return None
        return self.inner.hitter(places)

    def asker(self, places: Sequence[tuple[str, Limit]]) -> Asker | None:
        governs = self._desk.book.governs
        if not any(governs(group) for group, _ in places):
            return self._noticing(places, self.inner.asker(places))
        if len(places) != 1:
            return None
        group, limit = places[0]
        self.inner.asker(places)  # which may refuse the limit

        async def slowly(key: str, cost: int) -> Decision:
            check = Check(group, checked_key(key), limit, checked_cost(cost))
            take = Take((check,))
            if not governs(group):
                return concluded(key, limit, (await self.inner.run(take))[0])
            (served,) = await self._drive(taking(self._desk, take, Flight))
            self._desk.rebind(group, limit, bind)
            return concluded(key, limit, served.outcome, served.source)

        quickly, bind = self._desk.quick_way(group, limit, _not_here)

        async def ask(key: str, cost: int = 1) -> Decision:
            try:
                return quickly(key, cost)
            except _NotHereError:
                return await slowly(key, cost)

        return ask

    def _noticing(self, places: Sequence[tuple[str, Limit]], inner: Asker | None) -> Asker | None:
        """*inner*, with what is asked of its keys counted."""
        if inner is None:
            return None
        notice, groups, ask_inside = self._desk.notice_hit, [group for group, _ in places], inner

        def ask(key: str, cost: int = 1) -> Awaitable[Decision]:
            for group in groups:
                notice(group, key, cost)
            return ask_inside(key, cost)

        return ask

    def adopt(self, terms: Terms) -> None:
        self.inner.adopt(terms)
        self._desk.adopt(terms if self.lends else {})

    def hot_keys(self, count: int = 10) -> list[Heavy]:
        """The *count* hottest keys that were asked for here."""
        return self._desk.hot_keys(count)

    def bounds(self) -> list[Bound]:
        """By how much each group may overshoot."""
        return self._desk.bounds()

    async def keep(self) -> None:
        """Give back and tell what is due."""
        await self._send(self._desk.due())

    async def aclose(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._keeps = False
        loop = asyncio.get_running_loop()
        own = [task for task in self._under_way if task.get_loop() is loop]
        await asyncio.gather(*own, return_exceptions=True)
        await self._send(self._desk.close())
        await self.inner.aclose()

    async def _drive(self, steps: Generator[Any, Any, R]) -> R:
        reply: Any = None
        try:
            while True:
                step = steps.send(reply)
                if isinstance(step, GrantLease):
                    reply = await asyncio.shield(self._begin(self._exchange(step)))
                elif isinstance(step, Errand):
                    reply = await self._run_errand(step)
                elif isinstance(step, Flight):
                    reply = await _wait(step)
                else:
                    reply = await self.inner.run(step)
        except StopIteration as end:
            return cast("R", end.value)
        finally:
            steps.close()

    async def _run_errand(self, errand: Errand) -> Any:
        try:
            return await self.inner.run(errand.operation)
        except StoreError as error:
            return error

    async def _exchange(self, lend: GrantLease) -> LeaseGrant:
        """Ask the store, and tell those who wait for it. In a task of its own: whoever asked may be
        cancelled."""
        sent_ns = self._desk.clock()
        lent, failure = None, StoreError("the exchange with the store was broken off")
        try:
            lent = await self.inner.run(lend)
        except StoreError as error:
            failure = error
            raise
        finally:
            flight = self._desk.settle(lend, lent, sent_ns)
            if flight is not None and not flight.landed.done():
                if lent is None:
                    # What those who wait ask for was never sent.
                    flight.landed.set_exception(failure.copied(is_undone=True))
                    flight.landed.exception()  # looked at, should nobody wait
                else:
                    flight.landed.set_result(lent)
            self._set_alarm()
        return lent

    async def _send(self, lends: list[GrantLease]) -> None:
        await asyncio.gather(*[self._exchange(lend) for lend in lends], return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._is_done)
        return task

    def _is_done(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, should its caller have gone away

    def _set_alarm(self) -> None:
        """Come back when something is due, in this loop."""
        due_in_ns = self._desk.due_in_ns() if self._keeps else None
        if due_in_ns is None:
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + max(0.001, due_in_ns / SECOND)
        if self._alarm is not None and self._alarm_loop is loop:
            if self._alarm.when() <= when:  # or it is about to ring: a busy loop is late
                return
            self._alarm.cancel()
        self._alarm = loop.call_at(when, _ring, weakref.ref(self))
        self._alarm_loop = loop

    def _rung(self) -> None:
        self._alarm = None
        if self._keeps:
            self._begin(self._keep_on())

    async def _keep_on(self) -> None:
        await self.keep()
        self._set_alarm()


class _NotHereError(Exception):
    """The quick way has no loan for a key."""


_NOT_HERE = _NotHereError()


def _not_here(_key: str, _cost: int) -> Decision:
    raise _NOT_HERE


def _ring(store: weakref.ref[AsyncLeasedStore]) -> None:
    found = store()
    if found is not None:
        found._rung()  # noqa: SLF001 (its own alarm)


async def _wait(flight: Flight) -> bool | None:
    """Until the loan is there; None: it takes too long, or another loop asks for it."""
    if flight.loop is not asyncio.get_running_loop():
        return None
    try:
        await asyncio.wait_for(asyncio.shield(flight.landed), PATIENCE_NS / SECOND)
    except TimeoutError:
        return None
    return True
