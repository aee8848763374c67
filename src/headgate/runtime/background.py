"""Rounds of work in the background: upkeep of leases, reports to other regions, recovery."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import TYPE_CHECKING, Generic, TypeVar

from headgate.runtime.drivers import spawn
from headgate.runtime.effects import Effect, Signal, Wait
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.clock import Clock
    from headgate.runtime.effects import Effects

T = TypeVar("T")


class Rounds:
    """Rounds that follow each other: in an event loop, or in a thread."""

    __slots__ = ("cut_short", "due_ns", "ended", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self.loop = loop
        self.ended = Signal()
        self.cut_short = Signal()
        """Cuts the pause before the next round short."""
        self.due_ns = 0

    @property
    def is_stalled(self) -> bool:
        """True if the event loop does not run."""
        return self.loop is not None and not self.loop.is_running()


class _WaitForEnd(Effect):
    """Wait until *rounds* have ended, at most *seconds*. A caller that blocks the event loop of the
    rounds does not wait: they end when the loop goes on."""

    __slots__ = ("rounds", "seconds")

    def __init__(self, rounds: Rounds, seconds: float) -> None:
        self.rounds = rounds
        self.seconds = seconds

    def perform(self) -> None:
        loop = self.rounds.loop
        if loop is None or loop is not asyncio._get_running_loop():  # noqa: SLF001 (see above)
            Wait(self.rounds.ended, self.seconds).perform()

    async def aperform(self) -> None:
        await Wait(self.rounds.ended, self.seconds).aperform()


class BackgroundWork(Generic[T]):
    """Work for *owner*, done in rounds beside its callers. Safe to share among threads.

    *due* returns the time of the next round on *clock*, None if there is nothing to do: the work
    ends then, until `start` is called. *work* is one round. Both receive the owner, which only a
    round keeps alive. The work is done in the running event loop, or in a thread if there is none
    or *in_thread* is true.
    """

    def __init__(
        self,
        owner: T,
        name: str,
        clock: Clock,
        due: Callable[[T], int | None],
        work: Callable[[T], Effects[object]],
        *,
        in_thread: bool = False,
    ) -> None:
        self._owner = weakref.ref(owner)
        self._name = name
        self._clock = clock
        self._due = due
        self._work = work
        self._in_thread = in_thread
        self._is_closed = False
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the work of the parent process."""
        # Reentrant: rounds may be collected, and end, in a thread that has the lock.
        self._lock = threading.RLock()
        self._current: Rounds | None = None
        self.is_cut_off = False
        """True if the work ended while there was something to do: its event loop has ended, or no
        thread could be started."""

    @property
    def is_running(self) -> bool:
        """True if there are rounds, which wait or work."""
        current = self._current
        return current is not None and not current.is_stalled

    def start(self, due_ns: int | None = None) -> None:
        """Begin the work unless it goes on already.

        If it waits for longer than until *due_ns*, the next round begins now.
        """
        rounds = self._begin(due_ns)
        if rounds is None:
            return
        try:
            spawn(self._perform(rounds), name=self._name, in_loop=rounds.loop is not None)
        except RuntimeError:  # no thread to be had: tried again later
            self._end(rounds)

    def cut_pause(self) -> None:
        """Cut the pause before the next round short."""
        with self._lock:
            if self._current is not None:
                self._current.cut_short.set()

    def closing(self, seconds: float) -> Effects[None]:
        """Begin no more work, and wait up to *seconds* for the rounds that are still due."""
        with self._lock:
            self._is_closed = True
        yield from self.ending(seconds)

    def ending(self, seconds: float) -> Effects[None]:
        """Cut the pause short, and wait up to *seconds* for the rounds to end."""
        self.cut_pause()
        rounds = self._current
        if rounds is not None and not rounds.is_stalled:
            yield _WaitForEnd(rounds, seconds)

    def _begin(self, due_ns: int | None) -> Rounds | None:
        with self._lock:
            current = self._current
            if self._is_closed:
                return None
            if current is not None and not current.is_stalled:
                if due_ns is not None and due_ns < current.due_ns:
                    current.cut_short.set()
                return None
            loop = None if self._in_thread else asyncio._get_running_loop()  # noqa: SLF001 (documented for such checks)
            self._current, self.is_cut_off = Rounds(loop), False
            return self._current

    def _perform(self, rounds: Rounds) -> Effects[None]:
        try:
            while (pause := self._pause(rounds)) is not None:
                yield Wait(rounds.cut_short, pause)
                if (owner := self._owner()) is None:
                    return
                yield from self._work(owner)
                del owner  # a pause must not keep it alive
        finally:
            self._end(rounds)

    def _pause(self, rounds: Rounds) -> float | None:
        """The seconds until the next of *rounds*; None: they end."""
        owner = self._owner()
        with self._lock:
            if owner is None or self._current is not rounds:
                return None
            due_ns = self._due(owner)
            if due_ns is None:
                self._current = None
                return None
            now_ns = self._clock()
            rounds.cut_short = Signal()
            rounds.due_ns = max(due_ns, now_ns + MILLISECOND)
            return (rounds.due_ns - now_ns) / SECOND

    def _end(self, rounds: Rounds) -> None:
        with self._lock:
            if self._current is rounds:
                self._current, self.is_cut_off = None, True
        rounds.ended.set()
