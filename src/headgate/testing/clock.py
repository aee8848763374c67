"""A clock that stands still until it is told to move."""

from __future__ import annotations

import asyncio
import threading

from headgate.units import SECOND


class ManualClock:
    """A clock for tests: `clock()` is the time in nanoseconds, `advance(seconds)` moves it.

    A limiter on this clock does not really sleep: `acquire` moves the clock instead. Safe to share
    among threads.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now_ns = round(start * SECOND)
        self._lock = threading.Lock()

    def __call__(self) -> int:
        return self._now_ns

    def __repr__(self) -> str:
        return f"ManualClock({self.now})"

    @property
    def now(self) -> float:
        """The time in seconds."""
        return self._now_ns / SECOND

    def advance(self, seconds: float) -> None:
        """Move on by *seconds*; back, if they are negative."""
        self.advance_ns(round(seconds * SECOND))

    def advance_ns(self, nanoseconds: int) -> None:
        """Move on by *nanoseconds*."""
        with self._lock:
            self._now_ns += nanoseconds

    def set(self, seconds: float) -> None:
        """Make it *seconds* since the epoch."""
        self._now_ns = round(seconds * SECOND)

    def sleep(self, seconds: float) -> None:
        """Sleep without sleeping: move on by *seconds*."""
        self.advance(seconds)

    async def asleep(self, seconds: float) -> None:
        """The same for an event loop; others get a turn."""
        self.advance(seconds)
        await asyncio.sleep(0)
