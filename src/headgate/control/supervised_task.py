"""Work that goes on for as long as a service runs, whatever happens to it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

LOG: Final = logging.getLogger("headgate.control")
PAUSE: Final = 5.0


class EndlessTask:
    """Runs *work* in a task. What ends by a mistake is told, and begun again after a *pause*.

    *name* says in the log what it is; *on_mistake* hears of the mistake. For one event loop.
    """

    def __init__(
        self,
        work: Callable[[], Coroutine[None, None, None]],
        *,
        name: str,
        pause: float = PAUSE,
        on_mistake: Callable[[BaseException], None] | None = None,
        log: logging.Logger = LOG,
    ) -> None:
        self._work = work
        self._name = name
        self._pause = pause
        self._on_mistake = on_mistake
        self._log = log
        self._task: asyncio.Task[None] | None = None
        self._waiting: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin, if that has not been done yet."""
        if self._task is None:
            self._begin()

    async def aclose(self) -> None:
        """End it, and wait until it has ended."""
        if self._waiting is not None:
            self._waiting.cancel()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._work(), name=self._name)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None or task is not self._task:
            return
        told = "%s has ended because of a mistake; again in %g s"
        self._log.critical(told, self._name, self._pause, exc_info=error)
        self._waiting = asyncio.get_running_loop().call_later(self._pause, self._begin)
        if self._on_mistake is not None:
            self._on_mistake(error)
