"""What moves the number of slots of a gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from headgate.errors import OptionError


class Steering(Protocol):
    """How many may be in at the same time, moved by how those fare that were.

    It reads no clock and takes no lock: whoever asks it says what has happened, one at a time.
    """

    @property
    def limit(self) -> int:
        """How many may be in now; at least 1."""

    def observe(self, *, in_flight: int, latency_ns: int, succeeded: bool) -> None:
        """A request that was one of *in_flight*, itself included, when it began has ended.

        Where slots are kept from its class, *in_flight* is told in proportion: all of them are in
        use for it when all are that it may use.
        *latency_ns* is 0 if how long it took says nothing: of a websocket, how long it was open. It
        did not succeed if it failed for want of capacity: a timeout, a 503, a refusal further
        on. Errors that are the request's own fault did succeed in this sense.
        """


# Where a limit that moves begins, and what it never leaves.


_USUAL_START: Final = 20


@dataclass(frozen=True, slots=True)
class Bounds:
    """The lowest and the highest that a limit may be."""

    least: int
    most: int

    def __post_init__(self) -> None:
        for name, value in (("least", self.least), ("most", self.most)):
            if not _is_whole(value) or value < 1:
                raise OptionError(f"{name} is {value!r}; expected a whole number of at least 1")
        if self.most < self.least:
            raise OptionError(f"most is {self.most}, below least, which is {self.least}")

    def start(self, initial: int | None) -> float:
        """Where the limit begins: at *initial*, or at 20 as far as the bounds allow."""
        if initial is None:
            return self.held(_USUAL_START)
        if not _is_whole(initial):
            raise OptionError(f"initial is {initial!r}; expected a whole number")
        if not self.least <= initial <= self.most:
            raise OptionError(f"initial is {initial}; expected from {self.least} to {self.most}")
        return float(initial)

    def held(self, limit: float) -> float:
        """*limit*, or the bound that it has passed."""
        return min(max(limit, self.least), self.most)


def check_share(value: float, what: str, *, above: float = 0.0, up_to: float = 1.0) -> float:
    """*value*, if it is more than *above* and at most *up_to*; else `OptionError`."""
    if not above < value <= up_to:
        raise OptionError(f"{what} is {value!r}; expected more than {above:g}, up to {up_to:g}")
    return float(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# Rounds of requests: the pace at which a limit may move.
#
# What a change of the limit does is seen one round later, when those that were in have been
# replaced by those let in under the new limit. Whoever judged every request for itself would answer
# one bad moment as many times as requests were in it. A round is as long as the limit is high, and
# that needs no clock: when the limit is used, a round takes as long as a request.


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
