"""Effects: requests of a generator to its driver.

A store layer or a use case is written once, as a generator. It yields an effect and receives the
result at the `yield`. `drive` performs effects in the calling thread, `adrive` in an event loop:
the generator is the same.

    def peek(store: Store, check: Check) -> Effects[Outcome]:
        outcomes = yield from store.effects(Take((check,), consume=False))
        return outcomes[0]

Interruption. A caller may be cancelled, or receive a KeyboardInterrupt, while an operation is in
flight. The operation is not abandoned: the driver waits for its reply, which takes at most the
store's timeout, and throws `Interrupted` in at the `yield`, with the reply, so
that the generator can undo what was done. A second interruption changes nothing. When the generator
has ended, however it did, the driver raises the original exception.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

from headgate.errors import HeadgateError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

R = TypeVar("R")

CLOSE_TIMEOUT: Final = 5.0
"""Seconds that closing a store waits for interrupted callers. They end by the store's timeout."""


def _nothing() -> None:
    pass


class Interrupted(BaseException):
    """The caller was cancelled or interrupted at this `yield`.

    If *is_known*, the operation in flight has ended: with *error*, or else with *reply*. Otherwise
    there was none, or its result is unknown.
    """

    def __init__(
        self, reply: Any = None, error: HeadgateError | None = None, *, is_known: bool = False
    ) -> None:
        super().__init__()
        self.reply = reply
        self.error = error
        self.is_known = is_known or reply is not None or error is not None
        self.end_undoing: Callable[[], None] = _nothing
        """For drivers, see `begin_undoing`."""


class Effect(ABC):
    """Something for a driver to do."""

    __slots__ = ()

    is_finished = False
    """True if an interruption does not end it before it has its result."""

    @property
    def may_be_held(self) -> bool:
        """True if it takes long enough for an interrupt to come meanwhile."""
        return False

    def begin(self) -> Pending | None:
        """Begin it in the running event loop; None if it has to be performed by `aperform`.

        A driver that awaits the reply itself spares each effect a coroutine.
        """
        return None

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
    def submit(self, operation: Any) -> asyncio.Future[Any]: ...
    def close(self) -> None: ...
    async def aclose(self) -> None: ...


class Pending(Protocol):
    """The part of a future that drivers need.

    It has to be such that a cancelled caller still waits for it, see `Reply`.
    """

    def get_loop(self) -> asyncio.AbstractEventLoop: ...
    def done(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def result(self) -> Any: ...
    def exception(self) -> BaseException | None: ...
    def __await__(self) -> Generator[Any, None, Any]: ...


class Reply(asyncio.Future[R]):
    """A future that a cancelled caller still waits for: `cancel` does nothing.

    The `CancelledError` comes out of the `await` when the future is done.
    """

    __slots__ = ()

    def cancel(self, msg: Any | None = None) -> bool:
        return wait_though_cancelled(self)

    @classmethod
    def of(cls, work: Coroutine[Any, Any, R]) -> Reply[R]:
        """The reply of *work*, which is done in a task of its own."""
        task = asyncio.ensure_future(work)
        reply = cls(loop=task.get_loop())
        task.add_done_callback(reply._end)
        return reply

    def _end(self, task: asyncio.Task[R]) -> None:
        if task.cancelled():  # the event loop ends
            super().cancel()
        elif (error := task.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(task.result())


class StoreEffect(Effect):
    """An effect on *store*, which an interruption does not end before it has its result."""

    __slots__ = ("store",)

    is_finished = True

    def __init__(self, store: Runs) -> None:
        self.store = store

    @property
    def may_be_held(self) -> bool:
        return self.store.waits


class Run(StoreEffect):
    """Run *operation* on *store*."""

    __slots__ = ("operation",)

    def __init__(self, store: Runs, operation: Any) -> None:
        self.store = store
        self.operation = operation

    def perform(self) -> Any:
        return self.store.run(self.operation)

    def begin(self) -> Pending | None:
        return self.store.submit(self.operation) if self.store.waits else None

    async def aperform(self) -> Any:
        return await self.store.arun(self.operation)


class RunAll(StoreEffect):
    """Run several operations on *store* at the same time.

    The result is a list with the reply or the error of each, in their order.
    """

    __slots__ = ("operations",)

    def __init__(self, store: Runs, operations: Sequence[Any]) -> None:
        self.store = store
        self.operations = operations

    def perform(self) -> list[Any]:
        """Run the first here and the others in threads; all of them here if none waits."""
        operations = self.operations
        results: list[Any] = [None] * len(operations)

        def run_one(place: int) -> None:
            try:
                results[place] = self.store.run(operations[place])
            except Exception as error:  # noqa: BLE001 (raised below unless it is a result)
                results[place] = error

        started = []
        for place in range(1, len(operations) if self.store.waits else 0):
            thread = threading.Thread(target=run_one, args=(place,), daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads to be had: run the rest here
                break
            started.append(thread)
        for place in (*range(min(1, len(results))), *range(len(started) + 1, len(results))):
            run_one(place)
        for thread in started:
            thread.join()
        return [_raise_others(one) for one in results]

    def begin(self) -> Pending | None:
        if not self.store.waits or not self.operations:
            return None
        replies = [self.store.submit(one) for one in self.operations]
        together: Reply[list[Any]] = Reply(loop=asyncio.get_running_loop())
        left = len(replies)

        def end(_: asyncio.Future[Any]) -> None:
            nonlocal left
            left -= 1
            if not left:
                try:
                    together.set_result([_result(one) for one in replies])
                except Exception as error:  # noqa: BLE001 (the caller's to handle)
                    together.set_exception(error)

        for reply in replies:
            reply.add_done_callback(end)
        return together

    async def aperform(self) -> list[Any]:
        return self.perform()


class Sleep(Effect):
    """Wait for *seconds*, on a *clock* that can sleep, such as a `ManualClock`, by that."""

    __slots__ = ("clock", "seconds")

    def __init__(self, seconds: float, clock: object = None) -> None:
        self.seconds = seconds
        self.clock = clock

    def perform(self) -> None:
        sleep = getattr(self.clock, "sleep", None) or threading.Event().wait
        sleep(self.seconds)

    async def aperform(self) -> None:
        sleep = getattr(self.clock, "asleep", None) or asyncio.sleep
        await sleep(self.seconds)


class Call(Effect):
    """Call *function*. What it returns is awaited in an event loop, if it is awaitable."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function

    def perform(self) -> Any:
        return self.function()

    async def aperform(self) -> Any:
        result = self.function()
        return await result if isawaitable(result) else result


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
                with suppress(RuntimeError):  # that loop is closed, so no caller waits in it
                    loop.call_soon_threadsafe(_set, woken)

        if self.signal.add(wake):
            try:
                await asyncio.wait({woken}, timeout=self.seconds)
            finally:
                self.signal.discard(wake)
        return self.signal.is_set


class Close(Effect):
    """Close *store*, after the callers that were interrupted have undone what they did there."""

    __slots__ = ("store",)

    def __init__(self, store: Runs) -> None:
        self.store = store

    def perform(self) -> None:
        for ended in list(_undoing.get(self.store, ())):
            Wait(ended, CLOSE_TIMEOUT).perform()
        self.store.close()

    async def aperform(self) -> None:
        loop = asyncio.get_running_loop()
        latest = loop.time() + CLOSE_TIMEOUT
        while (left := _of_cancelled.get(loop, ())) and loop.time() < latest:
            await asyncio.sleep(0.001)
            for reply in [one for one in left if one.done()]:
                left.discard(reply)
        for ended in list(_undoing.get(self.store, ())):
            await Wait(ended, CLOSE_TIMEOUT).aperform()
        await self.store.aclose()


_of_cancelled: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, set[Pending]]] = (
    WeakKeyDictionary()
)
"""Replies to callers that were cancelled and wait for them: in flight, or done of late."""

_MANY: Final = 1024
"""Such replies above which those that are done are dropped."""


def wait_though_cancelled(reply: Pending) -> bool:
    """Have `Close` wait for *reply*, whose caller was cancelled and undoes it; what `cancel` of a
    future returns that is not cancelled."""
    waiting = _of_cancelled.setdefault(reply.get_loop(), set())
    if len(waiting) >= _MANY:
        waiting -= {one for one in waiting if one.done()}
    waiting.add(reply)
    return False


_undoing: Final[WeakKeyDictionary[Runs, set[Signal]]] = WeakKeyDictionary()
"""The callers that were interrupted during an operation and have not ended, by the store."""


def begin_undoing(effect: Effect) -> Callable[[], None]:
    """Have `Close` wait for a caller that was interrupted at *effect*; returns how to end that."""
    if not isinstance(effect, StoreEffect):
        return _nothing
    ended = Signal()
    pending = _undoing.setdefault(effect.store, set())
    pending.add(ended)

    def end() -> None:
        pending.discard(ended)
        ended.set()

    return end


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def interruption(effect: Effect, running: Pending | None) -> Interrupted:
    """The interruption of a caller that was cancelled while *running*, the operation of *effect*,
    was in flight; it has ended since. `Close` waits for what the caller undoes."""
    if running is None or running.cancelled():  # its event loop ends
        return Interrupted()
    error = running.exception()
    if error is not None and not isinstance(error, HeadgateError):
        raise error
    reply = running.result() if error is None else None
    interrupted = Interrupted(reply, error, is_known=True)
    interrupted.end_undoing = begin_undoing(effect)
    return interrupted


def _result(running: Pending) -> Any:
    if running.cancelled():
        return StoreError("the event loop has ended before the store replied", reason="timeout")
    error = running.exception()
    return running.result() if error is None else _raise_others(error)


def _raise_others(result: Any) -> Any:
    """*result*, unless it is an error that is no result of an operation."""
    if isinstance(result, BaseException) and not isinstance(result, HeadgateError):
        raise result
    return result
