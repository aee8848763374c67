"""A clock that only the test moves."""

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
        """Advance by *seconds*, which may be negative."""
        self.advance_ns(round(seconds * SECOND))

    def advance_ns(self, nanoseconds: int) -> None:
        """Advance by *nanoseconds*, which may be negative."""
        with self._lock:
            self._now_ns += nanoseconds

    def set(self, seconds: float) -> None:
        """Set the time to *seconds* since the epoch."""
        self._now_ns = round(seconds * SECOND)

    def sleep(self, seconds: float) -> None:
        """Advance by *seconds* instead of sleeping."""
        self.advance(seconds)

    async def asleep(self, seconds: float) -> None:
        """Advance as `sleep` does, and let other tasks run."""
        self.advance(seconds)
        await asyncio.sleep(0)
