"""What was admitted, held against the limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable


def overshoot(admitted: Iterable[int], capacity: int, per_second: int) -> float:
    """The most units in any time t beyond *capacity* + *per_second* t; 0: nowhere beyond.

    *admitted* are times in nanoseconds, a unit each. A bucket that begins full and never refuses:
    how far it goes below empty.
    """
    full = level = capacity * SECOND
    last_ns = lowest = 0
    for when_ns in sorted(admitted):
        level = min(full, level + per_second * (when_ns - last_ns)) - SECOND
        lowest, last_ns = min(lowest, level), when_ns
    return -lowest / SECOND
