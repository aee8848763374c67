"""From what a script tells of a counter to the figures of a decision.

The scripts decide and keep state; they compute no figures. They tell where a counter stood, in
microseconds, and the pure algorithm computes from that what was left and until when: the same code
that decides in the memory store. Only the log and the slots, whose state is too long to be told,
have their instants computed by the script.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from headgate.algorithms import Algorithm, Outcome
from headgate.algorithms.holds import Hold, Holds, outcome_beside, wait_beside
from headgate.algorithms.turns import Turns
from headgate.units import MICROSECOND

if TYPE_CHECKING:
    from headgate.algorithms import LeakyQueueAlgorithm
    from headgate.algorithms.leaky_queue import Line


class Counter(ABC):
    """A counter as it was told, asked and changed in the same way as the server did."""

    __slots__ = ()

    @abstractmethod
    def wait(self, asked: int) -> int | None:
        """Nanoseconds until *asked* units fit; None if they never can."""

    @abstractmethod
    def charge(self, cost: int) -> None:
        """*cost* units were taken."""

    @abstractmethod
    def outcome(self, wait: int | None) -> Outcome:
        """The figures as they are now, for a cost that has to wait *wait*."""


class Computed(Counter):
    """A counter whose state the pure algorithm can read."""

    __slots__ = ("_algorithm", "_holds", "_now", "_state")

    def __init__(
        self, algorithm: Algorithm[Any], state: Any, holds: list[bytes], now_ns: int
    ) -> None:
        self._algorithm = algorithm
        self._state = state
        self._holds = _read_holds(holds)
        self._now = now_ns

    def wait(self, asked: int) -> int | None:
        if self._holds:
            return wait_beside(self._algorithm, self._state, self._holds, asked, self._now)
        return self._algorithm.wait(self._state, asked, self._now)

    def charge(self, cost: int) -> None:
        self._state = self._algorithm.charge(self._state, cost, self._now)

    def outcome(self, wait: int | None) -> Outcome:
        if self._holds:
            seen = outcome_beside(self._algorithm, self._state, self._holds, wait, self._now)
        else:
            seen = self._algorithm.outcome(self._state, wait, self._now)
        return Outcome(
            seen.allowed,
            seen.remaining,
            None if seen.retry_after_ns is None else rounded_up(seen.retry_after_ns),
            rounded_up(seen.reset_after_ns),
        )


class ToldQueue(Counter):
    """A queue. Checks of it are asked one after the other; each has a turn of its own."""

    __slots__ = ("_algorithm", "_line", "_now", "_turns")

    def __init__(self, algorithm: LeakyQueueAlgorithm, line: Line, now_ns: int) -> None:
        self._algorithm = algorithm
        self._line = line
        self._now = now_ns
        self._turns = Turns(algorithm, line, now_ns)

    def wait(self, asked: int) -> int | None:
        return self._turns.wait(asked)

    def charge(self, cost: int) -> None:
        self._line = self._algorithm.charge(self._line, cost, self._now)

    def outcome(self, wait: int | None) -> Outcome:
        seen = self._turns.told(self._algorithm.outcome(self._line, wait, self._now))
        delay = rounded_up(seen.delay_ns)
        return Outcome(
            seen.allowed,
            seen.remaining,
            None if seen.retry_after_ns is None else rounded_up(seen.retry_after_ns),
            rounded_up(seen.reset_after_ns),
            delay,
            self._now + delay if delay else 0,
        )


class ToldLog(Counter):
    """A sliding window log: its totals, and the instants that the script looked up."""

    __slots__ = ("_ends", "_fits_at", "_held", "_high", "_now", "_quota", "_used", "_window")

    def __init__(self, quota: int, window_ns: int, told: bytes, holds: list[bytes], now: int):
        total, debt, high, ends, fits_at = told.split(b",")
        self._quota = quota
        self._window = window_ns
        self._now = now
        self._used = int(total) + int(debt)
        self._high = int(high) * MICROSECOND
        self._fits_at = int(fits_at) * MICROSECOND if fits_at else None
        open_holds = _read_holds(holds).values()
        self._held = sum(hold.amount for hold in open_holds)
        last = max((hold.expires_ns for hold in open_holds), default=now)
        self._ends = max(int(ends) * MICROSECOND, last)

    def wait(self, asked: int) -> int | None:
        return None if self._fits_at is None else self._fits_at - self._now

    def charge(self, cost: int) -> None:
        self._used += cost
        self._ends = max(self._ends, self._high + self._window)

    def outcome(self, wait: int | None) -> Outcome:
        left = max(0, self._quota - self._used) - self._held
        return Outcome(wait == 0, max(0, left), wait, max(0, self._ends - self._now))


class ToldSlots(Counter):
    """Slots: how many can be taken, when all leases have run out, and when what was asked fits."""

    __slots__ = ("_ends", "_free_at", "_now", "_room")

    def __init__(self, told: bytes, now: int) -> None:
        room, last, free_at = told.split(b",")
        self._now = now
        self._room = int(room)
        self._ends = int(last) * MICROSECOND
        self._free_at = int(free_at) * MICROSECOND if free_at else None

    def wait(self, asked: int) -> int | None:
        return None if self._free_at is None else self._free_at - self._now

    def charge(self, cost: int) -> None:
        """Nothing to do: of slots that were entered it is told how they stand after."""

    def outcome(self, wait: int | None) -> Outcome:
        return Outcome(wait == 0, self._room, wait, max(0, self._ends - self._now))


def rounded_up(nanoseconds: int) -> int:
    """*nanoseconds* as whole microseconds, in nanoseconds."""
    return -(-nanoseconds // MICROSECOND) * MICROSECOND


def _read_holds(told: list[bytes]) -> Holds:
    holds: Holds = {}
    for n, text in enumerate(told):
        expires, amount = text.split(b":")
        holds[str(n)] = Hold(int(amount), int(expires) * MICROSECOND)
    return holds
