"""Effects: the things that a generator asks its driver to do.

A store layer or a use case is written once, as a generator. It yields an effect and receives the
result at the `yield`. `drive` performs effects in the calling thread, `adrive` in an event loop:
the generator is the same.

    def peek(store: Store, check: Check) -> Effects[Outcome]:
        outcomes = yield from run(store, Take((check,), consume=False))
        return outcomes[0]

Interruption. A caller may be cancelled, or receive a KeyboardInterrupt, while an operation is in
flight. The operation is not abandoned. Its driver waits for the reply and throws `Interrupted` in
at the `yield`, with the reply, so that the generator can undo what was done. The generator has to
let `Interrupted` pass when it is done; the driver then raises the original exception.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

R = TypeVar("R")


class Interrupted(BaseException):
    """The caller was cancelled or interrupted at this `yield`.

    *reply* is the reply of the operation that was in flight, *error* its error. Both are None if
    there was none, or if its result is unknown.
    """

    def __init__(self, reply: Any = None, error: HeadgateError | None = None) -> None:
        super().__init__()
        self.reply = reply
        self.error = error


class Effect(ABC):
    """Something for a driver to do."""

    __slots__ = ()

    @abstractmethod
    def perform(self) -> Any:
        """Do it in this thread, which may block."""

    @abstractmethod
    async def aperform(self) -> Any:
        """Do it in the running event loop."""


Effects = Generator[Effect, Any, R]
"""A generator of effects that returns an R."""


class Runs(Protocol):
    """The part of a store that effects need."""

    @property
    def waits(self) -> bool: ...
    def run(self, operation: Any) -> Any: ...
    async def arun(self, operation: Any) -> Any: ...
    def close(self) -> None: ...
    async def aclose(self) -> None: ...


class Run(Effect):
    """Run *operation* on *store*."""

    __slots__ = ("operation", "store")

    def __init__(self, store: Runs, operation: Any) -> None:
        self.store = store
        self.operation = operation

    def perform(self) -> Any:
        try:
            return self.store.run(self.operation)
        except KeyboardInterrupt as interrupt:
            raise Interrupted from interrupt

    async def aperform(self) -> Any:
        if not self.store.waits:
            return await self.store.arun(self.operation)
        running = asyncio.ensure_future(self.store.arun(self.operation))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError as cancelled:
            await _finish([running])
            raise _interrupted(running) from cancelled


class RunAll(Effect):
    """Run several operations on *store* at the same time.

    The result is a list with the reply or the error of each, in their order.
    """

    __slots__ = ("operations", "store")

    def __init__(self, store: Runs, operations: Sequence[Any]) -> None:
        self.store = store
        self.operations = operations

    def perform(self) -> list[Any]:
        """Run the first here and the others in threads; all of them here if none waits."""
        results: list[Any] = [None] * len(self.operations)

        def run_one(place: int) -> None:
            try:
                results[place] = self.store.run(self.operations[place])
            except HeadgateError as error:
                results[place] = error

        others = [
            threading.Thread(target=run_one, args=(place,), daemon=True)
            for place in range(1, len(results) if self.store.waits else 0)
        ]
        started = []
        for thread in others:
            try:
                thread.start()
            except RuntimeError:  # no more threads to be had: run the rest here
                break
            started.append(thread)
        for place in (*range(min(1, len(results))), *range(len(started) + 1, len(results))):
            run_one(place)
        for thread in started:
            thread.join()
        return results

    async def aperform(self) -> list[Any]:
        running = [asyncio.ensure_future(self.store.arun(one)) for one in self.operations]
        try:
            if running:
                await asyncio.wait(running)
        except asyncio.CancelledError as cancelled:
            await _finish(running)
            raise Interrupted([_result(one) for one in running]) from cancelled
        return [_result(one) for one in running]


class Sleep(Effect):
    """Wait for *seconds*."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def perform(self) -> None:
        threading.Event().wait(self.seconds)

    async def aperform(self) -> None:
        await asyncio.sleep(self.seconds)


class Signal:
    """An event that happens once. Threads and event loops may wait for it together."""

    __slots__ = ("_lock", "_wakers", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._lock = threading.Lock()
        self._wakers: list[Callable[[], None]] = []

    def set(self) -> None:
        """Wake all that wait now or later."""
        with self._lock:
            self.is_set = True
            wakers, self._wakers = self._wakers, []
        for wake in wakers:
            wake()

    def add(self, wake: Callable[[], None]) -> bool:
        """Call *wake* when the signal is set; False if it is set already."""
        with self._lock:
            if not self.is_set:
                self._wakers.append(wake)
            return not self.is_set

    def discard(self, wake: Callable[[], None]) -> None:
        """Do not call *wake* any more."""
        with self._lock:
            if wake in self._wakers:
                self._wakers.remove(wake)


class Wait(Effect):
    """Wait until *signal* is set, at most *seconds*; the result says if it is."""

    __slots__ = ("seconds", "signal")

    def __init__(self, signal: Signal, seconds: float | None = None) -> None:
        self.signal = signal
        self.seconds = seconds

    def perform(self) -> bool:
        event = threading.Event()
        if self.signal.add(event.set):
            try:
                event.wait(self.seconds)
            except KeyboardInterrupt as interrupt:
                raise Interrupted from interrupt
            finally:
                self.signal.discard(event.set)
        return self.signal.is_set

    async def aperform(self) -> bool:
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if asyncio._get_running_loop() is loop:  # noqa: SLF001 (documented for such checks)
                _set(woken)
            else:
                loop.call_soon_threadsafe(_set, woken)

        if self.signal.add(wake):
            try:
                await asyncio.wait({woken}, timeout=self.seconds)
            except asyncio.CancelledError as cancelled:
                raise Interrupted from cancelled
            finally:
                self.signal.discard(wake)
        return self.signal.is_set


class Close(Effect):
    """Close *store*."""

    __slots__ = ("store",)

    def __init__(self, store: Runs) -> None:
        self.store = store

    def perform(self) -> None:
        self.store.close()

    async def aperform(self) -> None:
        await self.store.aclose()


def run(store: Runs, operation: Any) -> Effects[Any]:
    """Run *operation* on *store*, and return its reply."""
    reply = yield Run(store, operation)
    return reply


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _finish(running: Sequence[asyncio.Future[Any]]) -> None:
    """Wait for operations in flight, which end by themselves at their store's timeout."""
    pending = {one for one in running if not one.done()}
    while pending:
        try:
            _, pending = await asyncio.wait(pending)
        except asyncio.CancelledError:  # a second one changes nothing
            pending = {one for one in pending if not one.done()}


def _interrupted(running: asyncio.Future[Any]) -> Interrupted:
    if running.cancelled():
        return Interrupted()
    error = running.exception()
    if error is None:
        return Interrupted(running.result())
    return Interrupted(error=error if isinstance(error, HeadgateError) else None)


def _result(running: asyncio.Future[Any]) -> Any:
    error = running.exception()
    if error is None:
        return running.result()
    if isinstance(error, HeadgateError):
        return error
    raise error
