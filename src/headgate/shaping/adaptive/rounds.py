"""Rounds of requests: the pace at which a limit may move.

What a change of the limit does is seen one round later, when those that were in have been replaced
by those let in under the new limit. Whoever judged every request for itself would answer one bad
moment as many times as requests were in it. A round is as long as the limit is high, and that needs
no clock: when the limit is used, a round takes as long as a request.
"""

from __future__ import annotations

from typing import Final

SHORTEST: Final = 10
"""Requests in a round, at least: a few of them say nothing."""

_USED: Final = 0.75
"""Not all of it: what comes at random seldom fills it in every round."""

_FELT: Final = 0.5


class Round:
    """The requests that ended since the limit was last judged."""

    __slots__ = ("_timed", "_total_ns", "ended", "failed", "late", "peak")

    def __init__(self) -> None:
        self.ended = 0
        self.failed = 0
        self.late = 0
        self.peak = 0
        self._timed = 0
        self._total_ns = 0.0

    def add(self, in_flight: int, latency_ns: float | None, *, succeeded: bool) -> int:
        """One more has ended; how many by now.

        None as *latency_ns* if what it took says nothing about what it takes.
        """
        self.ended += 1
        if in_flight > self.peak:
            self.peak = in_flight
        if not succeeded:
            self.failed += 1
        elif latency_ns is not None:
            self._timed += 1
            self._total_ns += latency_ns
        return self.ended

    def used(self, limit: int) -> bool:
        """Whether *limit* kept others out, or nearly: else it has not been tried, and must not
        grow."""
        return self.peak + 1 >= _USED * limit

    def blames(self, limit: int) -> bool:
        """Whether *limit* has to do with what went wrong in it: half of it was used, or most went
        wrong. A few errors in an idle night must not take it down."""
        return self.peak >= _FELT * limit or self.is_failing

    @property
    def is_failing(self) -> bool:
        """Whether half of them, and not only a few, failed or were late."""
        return 2 * (self.failed + self.late) >= max(self.ended, SHORTEST)

    @property
    def latency_ns(self) -> float | None:
        """How long they took on average; None if that is not known of any."""
        return self._total_ns / self._timed if self._timed else None


def length(limit: float) -> int:
    """How many requests make a round under *limit*."""
    return max(int(limit), SHORTEST)
