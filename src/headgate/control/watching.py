"""Looking at the files of a policy again and again: in a thread, or as a task of an event loop.

Looking, not being told: the kernel's notices (inotify and its kin) need a package, say nothing on
network file systems, and lose track of a file that is replaced, which is how files are changed. A
few calls of `stat` every half second cost next to nothing, and see what is there however it came.
"""

from __future__ import annotations

import asyncio
import logging
import math
import queue
import threading
import time
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from headgate.control.reload import Reload
from headgate.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from headgate.clock import Clock
    from headgate.control.files import Loaded, PolicyFiles
    from headgate.control.state import State
    from headgate.rules.model import Policy

LOG: Final = logging.getLogger("headgate.control")

_Wish: TypeAlias = Literal["check", "stop"]


class _Watching:
    """What both watchers have in common."""

    def __init__(
        self,
        files: PolicyFiles,
        apply: Callable[[Policy], int],
        *,
        interval: float = 0.5,
        in_force: Loaded | None = None,
        on_change: Callable[[State], None] | None = None,
        log: logging.Logger = LOG,
        clock: Clock = time.time_ns,
    ) -> None:
        if not (interval > 0 and math.isfinite(interval)):
            raise OptionError(f"interval: {interval!r} is not a number of seconds above 0")
        self._log = log
        self._turn = threading.RLock()
        self._reload = Reload(
            files,
            apply,
            interval=interval,
            in_force=in_force,
            on_change=on_change,
            log=log,
            clock=clock,
        )

    @property
    def state(self) -> State:
        """How things stand; may be read at any time, from any thread."""
        return self._reload.state


class PolicyWatcher(_Watching):
    """Keeps in force what *files* say, in a thread, while the program does something else.

    *apply* puts a policy in force and says its revision (`RuleEngine.replace`). *in_force* is what
    was loaded already, and is not applied again. *interval* is the time between looks in seconds.
    *on_change* is called with each new `State`. Both are called one at a time, in the thread or in
    that of `check_now`, and must not raise; but a `HeadgateError` of *apply* is told like a bad
    file. After a fork the child has no watcher until it starts one.
    """

    _thread: threading.Thread | None = None
    _wishes: queue.SimpleQueue[_Wish]

    @property
    def is_watching(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def check_now(self) -> State:
        """Read the files now, and put them in force if they are new and good; how things stand."""
        return self._reload.check()

    def check_soon(self) -> None:
        """Have the thread do that at once. For signals (SIGHUP): it does nothing itself."""
        if self.is_watching:
            self._wishes.put("check")

    def start(self, *, is_checked: bool = False) -> None:
        """Check now, then go on watching. Nothing if it is watching already.

        If it *is_checked* that what is in force is what the files say, or soon will be, nothing is
        read here: the thread does it.
        """
        with self._turn:
            if self.is_watching:
                return
            if not is_checked:
                self.check_now()
            self._wishes = queue.SimpleQueue()
            self._thread = threading.Thread(target=self._watch, args=(self._wishes,), daemon=True)
            self._thread.name = "headgate-policy-watcher"
            self._thread.start()

    def stop(self) -> None:
        """Watch no longer; when it returns, the thread has ended. What is in force stays."""
        with self._turn:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            self._wishes.put("stop")
        if thread is not threading.current_thread():
            thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _watch(self, wishes: queue.SimpleQueue[_Wish]) -> None:
        wait = 0.0
        while True:
            try:
                wish = wishes.get(timeout=wait)
            except queue.Empty:
                wait = self._reload.look()
                continue
            if wish == "stop":
                return
            self._reload.check()


class AsyncPolicyWatcher(_Watching):
    """As `PolicyWatcher`, for an event loop, which it never holds up: a task that waits.

    The files are read in a thread, and *apply* (`AsyncRuleEngine.replace`) and *on_change* are
    called there too, one at a time: not in the thread of the loop.
    """

    _task: asyncio.Task[None] | None = None
    _wishes: asyncio.Queue[_Wish]

    @property
    def is_watching(self) -> bool:
        return self._task is not None and not self._task.done()

    async def check_now(self) -> State:
        """As `PolicyWatcher.check_now`."""
        return await asyncio.to_thread(self._reload.check)

    def check_soon(self) -> None:
        """Have the task do that at once. To be called in the loop (`loop.add_signal_handler`)."""
        if self.is_watching:
            self._wishes.put_nowait("check")

    async def start(self) -> None:
        """Check now, then go on watching. Nothing if it is watching already."""
        if not self.is_watching:
            await self.check_now()
        if self.is_watching:
            return
        self._wishes = asyncio.Queue()
        self._task = asyncio.create_task(self._watch(self._wishes), name="headgate-policy-watcher")
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Watch no longer; when it returns, the task has ended. What is in force stays."""
        task, self._task = self._task, None
        if task is None:
            return
        self._wishes.put_nowait("stop")
        await asyncio.wait([task])

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _watch(self, wishes: asyncio.Queue[_Wish]) -> None:
        wait = 0.0
        while True:
            try:
                async with asyncio.timeout(wait):
                    wish = await wishes.get()
            except TimeoutError:
                wait = await asyncio.to_thread(self._reload.look)
                continue
            if wish == "stop":
                return
            await asyncio.to_thread(self._reload.check)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Tell of a task that died; a thread's death is told by the interpreter."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            told = "%s: no longer watched, because of a mistake in what applies it"
            self._log.critical(told, self._reload.place, exc_info=error)
