"""Clocks: the time in integer nanoseconds since the epoch."""

from __future__ import annotations

import time
from collections.abc import Callable

from headgate.errors import OptionError

Clock = Callable[[], int]
"""A callable like `time.time_ns`. It may stand still or step back."""


class MonotonicClock:
    """The default: starts at the wall clock's time and from then on never steps.

    The wall clock is read once, when the clock is made, so that windows are aligned to the epoch;
    after that a wall clock set wrong, or right again, changes nothing.
    """

    __slots__ = ("offset",)

    def __init__(self) -> None:
        self.offset = time.time_ns() - time.monotonic_ns()

    def __call__(self) -> int:
        return time.monotonic_ns() + self.offset


def checked_clock(clock: Clock) -> Clock:
    """Return *clock*. Raises `OptionError` unless it is a callable that returns an integer."""
    if not callable(clock):
        raise OptionError(f"the clock is {clock!r}; expected a function like time.time_ns")
    if type(now := clock()) is not int:
        raise OptionError(f"the clock says {now!r}; expected a function like time.time_ns")
    return clock
