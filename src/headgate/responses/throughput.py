"""How many requests a second there are, as of late."""

from __future__ import annotations

from headgate.units import SECOND


class Throughput:
    """Counts requests by the second; times are nanoseconds of any one clock.

    Threads may share one: what they lose to each other now and then does not matter to a rate.
    """

    __slots__ = ("_before", "_count", "_second")

    def __init__(self) -> None:
        self._second = -1
        self._count = 0
        self._before = 0

    def add(self, now_ns: int) -> None:
        """Count a request."""
        self._turn_to(now_ns // SECOND)
        self._count += 1

    def per_second(self, now_ns: int) -> float:
        """Of the second before and this one, by how much of this one has passed."""
        self._turn_to(now_ns // SECOND)
        passed = now_ns % SECOND / SECOND
        return self._before * (1 - passed) + self._count

    def _turn_to(self, second: int) -> None:
        if second == self._second:
            return
        self._before = self._count if second == self._second + 1 else 0
        self._second, self._count = second, 0
