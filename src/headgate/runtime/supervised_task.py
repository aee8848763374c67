"""A background task of an event loop that is started again after a failure."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

LOG: Final = logging.getLogger("headgate.control")
PAUSE: Final = 5.0


class SupervisedTask:
    """Runs *work* in a task. After an error it is logged and started again, *pause* seconds later.

    *name* names it in the log; *on_mistake* is called with the error. For one event loop.
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
        """Start the task, if it is not started yet."""
        if self._task is None:
            self._begin()

    async def aclose(self) -> None:
        """Cancel the task, and wait for its end."""
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
        message = "%s failed; starting again in %g s"
        self._log.critical(message, self._name, self._pause, exc_info=error)
        self._waiting = asyncio.get_running_loop().call_later(self._pause, self._begin)
        if self._on_mistake is not None:
            self._on_mistake(error)
