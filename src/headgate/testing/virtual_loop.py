"""An event loop on virtual time: nobody waits, and the same seed gives the same run."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class _Idle(selectors.SelectSelector):
    """Instead of waiting it moves the time on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("the simulation waits for something that will never happen")
        self.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time stands still while anything can be done, and then leaps to what comes next.

    What is given to a thread, as by `asyncio.to_thread`, is done at once, in this one: a thread
    knows nothing of such a time.
    """

    def __init__(self) -> None:
        self._idle = _Idle()
        super().__init__(self._idle)

    def time(self) -> float:
        return self._idle.now

    def run_in_executor(  # type: ignore[override] # none of those who wait for it can tell
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """What *func* says of *args*, whatever the *executor*."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 (whatever it is, it is for who waits)
            future.set_exception(error)
        return future

    def time_ns(self) -> int:
        """The time in nanoseconds, since the loop was made."""
        return round(self._idle.now * 1e9)


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """What *main* comes to, on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
