"""Times as whole numbers, always rounded up: who waits that long has waited long enough."""

from __future__ import annotations

from typing import Final

from headgate.units import MILLISECOND, SECOND

LARGEST_INTEGER: Final = 10**15 - 1
"""The largest integer of a structured field (RFC 9651), and of everything else we send."""


def seconds_up(nanoseconds: int) -> int:
    """*nanoseconds* as whole seconds, from 0 to `LARGEST_INTEGER`."""
    seconds = -(-nanoseconds // SECOND)
    return seconds if 0 <= seconds <= LARGEST_INTEGER else bounded(seconds)


def milliseconds_up(nanoseconds: int) -> int:
    """*nanoseconds* as whole milliseconds, from 0 to `LARGEST_INTEGER`."""
    return bounded(-(-nanoseconds // MILLISECOND))


def bounded(number: int) -> int:
    """*number*, or the nearest that can be sent."""
    if 0 <= number <= LARGEST_INTEGER:
        return number
    return 0 if number < 0 else LARGEST_INTEGER
