"""An event loop on virtual time: no timer really waits, and every run is the same."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class _Idle(selectors.SelectSelector):
    """A selector that advances the time instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("no timer is left: a task waits for a socket, a thread or itself")
        self.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer as soon as no task can run.

    Functions for a thread, as of `asyncio.to_thread`, run at once in the thread of the loop.
    """

    def __init__(self) -> None:
        self._idle = _Idle()
        super().__init__(self._idle)

    def time(self) -> float:
        return self._idle.now

    def run_in_executor(  # type: ignore[override] # callers only await the future
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Call *func* at once, in place of the *executor*."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 (the caller gets it)
            future.set_exception(error)
        return future

    def time_ns(self) -> int:
        """Return the nanoseconds since the loop was created."""
        return round(self._idle.now * 1e9)


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run *main* on a new virtual loop and return its result."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
