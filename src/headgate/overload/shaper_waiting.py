"""The two ways in which a thread waits for its turn: in a line of this process, or over a store."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from headgate.errors import StoreError
from headgate.overload.booking import WAITING, AsyncBooking, Booking, count_asked, count_given_up
from headgate.runtime.waiting_lines import nap, naps
from headgate.stores.operations import Take

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from headgate.decision import Decision
    from headgate.overload.leaky_line import Place
    from headgate.overload.shaper_stores import LocalLines, Stored
    from headgate.stores.base import Store
    from headgate.stores.operations import Check


class LoopEvent(asyncio.Event):
    """An event that may be set from another thread, or another event loop, than waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting_in = asyncio.get_running_loop()

    def set(self) -> None:
        try:
            is_here = asyncio.get_running_loop() is self._waiting_in
        except RuntimeError:
            is_here = False
        if is_here:
            super().set()
        else:
            with suppress(RuntimeError):  # that loop is closed: nobody waits there any more
                self._waiting_in.call_soon_threadsafe(super().set)


class Way(Protocol):
    """What a `Shaper` needs. *timeout_ns* None: as long as the queue says."""

    def acquire(self, key: str, cost: int, timeout_ns: int | None) -> Decision: ...
    def look(self, key: str, cost: int, timeout_ns: int | None) -> Decision: ...
    def book(self, key: str, cost: int, timeout_ns: int | None) -> Booking: ...
    def reset(self, key: str) -> None: ...
    def close(self) -> None: ...


class LocalWay:
    """In this process: those who wait move up when one gives up."""

    def __init__(self, lines: LocalLines) -> None:
        self._lines = lines
        self._sleep: Callable[[float], None] | None = getattr(lines.clock, "sleep", None)

    def acquire(self, key: str, cost: int, timeout_ns: int | None) -> Decision:
        place, bell, decision = self._lines.join(key, cost, timeout_ns, threading.Event)
        count_asked(decision)
        if place is not None and bell is not None:
            WAITING.add(1)
            try:
                self._wait(place, bell)
            except BaseException:  # an interrupt, above all: whatever it is, others go instead
                self._lines.decline(place)
                count_given_up()
                raise
            finally:
                WAITING.add(-1)
        return decision

    def look(self, key: str, cost: int, timeout_ns: int | None) -> Decision:
        return self._lines.look(key, cost, timeout_ns)

    def book(self, key: str, cost: int, timeout_ns: int | None) -> Booking:
        place, _, decision = self._lines.join(key, cost, timeout_ns)
        count_asked(decision)
        at_ns = self._lines.clock() if place is None else decision.turn_ns
        return Booking(decision, cost, at_ns, lambda: self._give_up(place))

    def reset(self, key: str) -> None:
        self._lines.forget(key)

    def close(self) -> None:
        """There is nothing to give back."""

    def _wait(self, place: Place, bell: threading.Event) -> None:
        while (rest := self._lines.rest(place)) is not None:
            if self._sleep is None:
                bell.wait(nap(rest.ns))
            elif rest.is_first:  # a clock that is moved by those who sleep: by one at a time
                self._sleep(nap(rest.ns))
            else:
                bell.wait()

    def _give_up(self, place: Place | None) -> bool:
        given_up = place is not None and self._lines.leave(place)
        if given_up:
            count_given_up()
        return given_up


class StoredWay:
    """Over a store: a turn is told once, and slept for."""

    def __init__(self, store: Store, stored: Stored) -> None:
        self._store = store
        self._stored = stored
        self._sleep: Callable[[float], None]
        self._sleep = getattr(stored.clock, "sleep", time.sleep)

    def acquire(self, key: str, cost: int, timeout_ns: int | None) -> Decision:
        check = self._stored.terms.check(key, cost, timeout_ns)
        decision = self._ask(Take((check,)))
        count_asked(decision)
        if decision.delay_ns:
            WAITING.add(1)
            try:
                for seconds in naps(decision.delay_ns):
                    self._sleep(seconds)
            except BaseException:  # as above
                self._vacate(check, decision)
                raise
            finally:
                WAITING.add(-1)
        return decision

    def look(self, key: str, cost: int, timeout_ns: int | None) -> Decision:
        check = self._stored.terms.check(key, cost, timeout_ns)
        return self._ask(Take((check,), consume=False))

    def book(self, key: str, cost: int, timeout_ns: int | None) -> Booking:
        check = self._stored.terms.check(key, cost, timeout_ns)
        decision = self._ask(Take((check,)))
        count_asked(decision)
        at_ns = self._stored.clock() + decision.delay_ns
        return Booking(decision, cost, at_ns, lambda: self._vacate(check, decision))

    def reset(self, key: str) -> None:
        reset = self._stored.resetting(key)
        self._store.run(reset)
        self._stored.forget(reset)

    def close(self) -> None:
        self._stored.fallback.close()
        self._store.close()

    def _ask(self, take: Take) -> Decision:
        try:
            outcomes = self._store.run(take)
        except StoreError as error:
            return self._stored.decide_without(take, error)
        return self._stored.conclude(take, outcomes)

    def _vacate(self, check: Check, granted: Decision) -> bool:
        """Give a turn up; whether that was in time. If nobody can be told, it is lost."""
        if not granted.delay_ns:
            return False
        if self._stored.is_from_here(granted):
            given_up = self._stored.vacate_here(check, granted)
        else:
            try:
                given_up = self._store.run(self._stored.vacating(check, granted))
            except StoreError:
                return False
        if given_up:
            count_given_up()
        return given_up


# The same two ways for an event loop.


class AsyncWay(Protocol):
    """What an `AsyncShaper` needs; as `ways.Way`."""

    async def acquire(self, key: str, cost: int, timeout_ns: int | None) -> Decision: ...
    async def look(self, key: str, cost: int, timeout_ns: int | None) -> Decision: ...
    async def book(self, key: str, cost: int, timeout_ns: int | None) -> AsyncBooking: ...
    async def reset(self, key: str) -> None: ...
    async def aclose(self) -> None: ...


class AsyncLocalWay:
    """In this process: those who wait move up when one gives up."""

    def __init__(self, lines: LocalLines) -> None:
        self._lines = lines
        self._sleep: Callable[[float], Awaitable[None]] | None
        self._sleep = getattr(lines.clock, "asleep", None)

    async def acquire(self, key: str, cost: int, timeout_ns: int | None) -> Decision:
        place, bell, decision = self._lines.join(key, cost, timeout_ns, LoopEvent)
        count_asked(decision)
        if place is not None and bell is not None:
            WAITING.add(1)
            try:
                await self._wait(place, bell)
            except BaseException:  # a cancellation, above all: whatever it is, others go instead
                self._lines.decline(place)
                count_given_up()
                raise
            finally:
                WAITING.add(-1)
        return decision

    async def look(self, key: str, cost: int, timeout_ns: int | None) -> Decision:
        return self._lines.look(key, cost, timeout_ns)

    async def book(self, key: str, cost: int, timeout_ns: int | None) -> AsyncBooking:
        place, _, decision = self._lines.join(key, cost, timeout_ns)
        count_asked(decision)
        at_ns = self._lines.clock() if place is None else decision.turn_ns

        async def give_up() -> bool:
            return self._give_up(place)

        return AsyncBooking(decision, cost, at_ns, give_up)

    async def reset(self, key: str) -> None:
        self._lines.forget(key)

    async def aclose(self) -> None:
        """There is nothing to give back."""

    async def _wait(self, place: Place, bell: LoopEvent) -> None:
        while (rest := self._lines.rest(place)) is not None:
            if self._sleep is None:
                await _rung(bell, nap(rest.ns))
            elif rest.is_first:  # a clock that is moved by those who sleep: by one at a time
                await self._sleep(nap(rest.ns))
            else:
                await bell.wait()

    def _give_up(self, place: Place | None) -> bool:
        given_up = place is not None and self._lines.leave(place)
        if given_up:
            count_given_up()
        return given_up


class AsyncStoredWay:
    """Over a store: a turn is told once, and slept for."""

    def __init__(self, store: Store, stored: Stored) -> None:
        self._store = store
        self._stored = stored
        self._sleep: Callable[[float], Awaitable[None]]
        self._sleep = getattr(stored.clock, "asleep", asyncio.sleep)
        self._undoing: set[asyncio.Task[bool]] = set()

    async def acquire(self, key: str, cost: int, timeout_ns: int | None) -> Decision:
        check = self._stored.terms.check(key, cost, timeout_ns)
        decision = await self._ask_or_undo(check)
        count_asked(decision)
        if decision.delay_ns:
            WAITING.add(1)
            try:
                for seconds in naps(decision.delay_ns):
                    await self._sleep(seconds)
            except asyncio.CancelledError:
                self._undo(self._vacate(check, decision))
                raise
            finally:
                WAITING.add(-1)
        return decision

    async def look(self, key: str, cost: int, timeout_ns: int | None) -> Decision:
        check = self._stored.terms.check(key, cost, timeout_ns)
        return await self._ask(Take((check,), consume=False))

    async def book(self, key: str, cost: int, timeout_ns: int | None) -> AsyncBooking:
        check = self._stored.terms.check(key, cost, timeout_ns)
        decision = await self._ask_or_undo(check)
        count_asked(decision)
        at_ns = self._stored.clock() + decision.delay_ns
        return AsyncBooking(decision, cost, at_ns, lambda: self._vacate_shielded(check, decision))

    async def reset(self, key: str) -> None:
        reset = self._stored.resetting(key)
        await self._store.arun(reset)
        self._stored.forget(reset)

    async def aclose(self) -> None:
        if self._undoing:
            await asyncio.wait(self._undoing)
        self._stored.fallback.close()
        await self._store.aclose()

    async def _ask(self, take: Take) -> Decision:
        try:
            outcomes = await self._store.arun(take)
        except StoreError as error:
            return self._stored.decide_without(take, error)
        return self._stored.conclude(take, outcomes)

    async def _ask_or_undo(self, check: Check) -> Decision:
        """Ask; if the caller is cancelled meanwhile, give up what the store may yet grant."""
        take = Take((check,))
        if not self._store.waits:
            return await self._ask(take)
        asked = asyncio.ensure_future(self._ask(take))
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            self._undo(self._vacate_granted(check, asked))
            raise

    async def _vacate_granted(self, check: Check, asked: asyncio.Future[Decision]) -> bool:
        return await self._vacate(check, await asked)

    async def _vacate_shielded(self, check: Check, granted: Decision) -> bool:
        return await asyncio.shield(self._undo(self._vacate(check, granted)))

    def _undo(self, undoing: Coroutine[None, None, bool]) -> asyncio.Task[bool]:
        """Have a turn given up to the end, whatever becomes of the caller."""
        task = asyncio.ensure_future(undoing)
        self._undoing.add(task)
        task.add_done_callback(self._undoing.discard)
        return task

    async def _vacate(self, check: Check, granted: Decision) -> bool:
        """Give a turn up; whether that was in time. If nobody can be told, it is lost."""
        if not granted.delay_ns:
            return False
        if self._stored.is_from_here(granted):
            given_up = self._stored.vacate_here(check, granted)
        else:
            try:
                given_up = await self._store.arun(self._stored.vacating(check, granted))
            except StoreError:
                return False
        if given_up:
            count_given_up()
        return given_up


async def _rung(bell: LoopEvent, seconds: float) -> None:
    """Wait for *bell*, at most for *seconds*."""
    try:
        async with asyncio.timeout(seconds):
            await bell.wait()
    except TimeoutError:
        return
