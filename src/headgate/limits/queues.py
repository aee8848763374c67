"""The leaky bucket as a queue: requests above the rate wait for their turn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Final

from headgate.errors import LimitError
from headgate.limits.model import LARGEST_QUOTA, Limit, Pace, checked_rate, rate_text
from headgate.units import (
    CENTURY,
    MICROSECOND,
    SECOND,
    Rate,
    Seconds,
    duration_ns,
    exact_rate,
    plain_seconds,
)

LONGEST_QUEUE: Final = 1_000_000
"""The most units that may be waiting."""


@dataclass(frozen=True, slots=True)
class LeakyQueue(Limit):
    """A queue that drains at *rate* units a second, in the order of arrival.

    A request is *delayed* until everything before it has drained, so requests leave evenly spaced.
    A request that would wait behind more than *queue* units, or for longer than *max_wait* seconds,
    is denied. With a queue of 0 no request waits: it only spaces them.

    A cost drains at the same rate: the next request waits for all of it. A queue that is short
    enough takes any cost that drains within a hundred years.
    """

    rate: Rate
    queue: int
    max_wait: Seconds | None = None
    algorithm: ClassVar[str] = "leaky_queue"
    is_divisible: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if isinstance(self.queue, bool) or not isinstance(self.queue, int):
            raise LimitError(f"queue is {self.queue!r}; expected a whole number from 0")
        if not 0 <= self.queue <= LONGEST_QUEUE:
            raise LimitError(f"queue is {self.queue}; it must be from 0 to {LONGEST_QUEUE}")
        object.__setattr__(self, "rate", checked_rate(self.rate, "rate", self.queue + 1))
        if self.max_wait is not None and self.max_wait != 0:
            wait = plain_seconds(duration_ns(self.max_wait, "max_wait"))
            object.__setattr__(self, "max_wait", wait)

    @property
    def per_second(self) -> Fraction:
        return exact_rate(self.rate, "rate")

    @property
    def pace(self) -> Pace:
        """The drain rate in exact integers, for the arithmetic."""
        return Pace.of(self.queue + 1, self.per_second)

    @property
    def patient(self) -> LeakyQueue:
        """The same queue without *max_wait*. The counter is kept under it: the state of a queue
        does not depend on how long a caller is willing to wait."""
        return self if self.max_wait is None else _patient(self.rate, self.queue)

    def within(self, timeout_ns: int | None) -> LeakyQueue:
        """Return the same queue with a *max_wait* of at most *timeout_ns*, in microseconds."""
        return self if timeout_ns is None else _within(self, timeout_ns // MICROSECOND)

    @property
    def patience(self) -> int:
        """The longest wait of an allowed request, in ticks of the pace."""
        return self.patience_at(self.pace)

    def patience_at(self, pace: Pace) -> int:
        """Return `patience` for a *pace* that is known already."""
        longest = self.queue * pace.ticks_per_unit
        if self.max_wait is None:
            return longest
        most_ns = duration_ns(self.max_wait, "max_wait") if self.max_wait else 0
        return min(longest, most_ns * pace.ticks_per_ns)

    @property
    def patience_ns(self) -> int:
        """The longest wait of an allowed request, in nanoseconds, rounded up."""
        pace = self.pace
        return pace.to_ns(self.patience_at(pace))

    @property
    def quota(self) -> int:
        """The single units that an empty queue takes at once: one leaves, the others wait."""
        pace = self.pace
        return self.patience_at(pace) // pace.ticks_per_unit + 1

    @property
    def largest_cost(self) -> int:
        """The largest cost that drains within a hundred years."""
        return min(LARGEST_QUOTA, int(self.per_second * CENTURY / SECOND))

    @property
    def period_ns(self) -> int:
        pace = self.pace
        return pace.to_ns(self.patience_at(pace) + pace.ticks_per_unit)

    def __str__(self) -> str:
        rate = rate_text(self.per_second, self.per_second.numerator)
        wait = "" if self.max_wait is None else f" for at most {self.max_wait} s"
        return f"{rate} in a queue of {self.queue}{wait}"


@lru_cache(maxsize=1024)
def _patient(rate: Rate, queue: int) -> LeakyQueue:
    return LeakyQueue(rate, queue)


@lru_cache(maxsize=1024)
def _within(limit: LeakyQueue, microseconds: int) -> LeakyQueue:
    if microseconds * MICROSECOND >= limit.patience_ns:
        return limit
    return replace(limit, max_wait=Fraction(max(microseconds, 0) * MICROSECOND, SECOND))
