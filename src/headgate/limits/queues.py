"""The leaky bucket as a queue: requests above the rate wait for their place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Final

from headgate.limits.model import LARGEST_QUOTA, Limit, Pace, check_whole, checked_rate, rate_text
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
        check_whole(self.queue, "queue", least=0, most=LONGEST_QUEUE)
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
        return self if self.max_wait is None else _with_max_wait(self, None)

    def within(self, timeout_ns: int | None) -> LeakyQueue:
        """Return the same queue with a *max_wait* of at most *timeout_ns*, in microseconds."""
        if timeout_ns is None:
            return self
        return _with_max_wait(self, max(timeout_ns // MICROSECOND, 0))

    @property
    def patience(self) -> int:
        """The longest wait of an allowed request, in ticks of the pace."""
        pace = self.pace
        longest = self.queue * pace.ticks_per_unit
        if self.max_wait is None:
            return longest
        most_ns = duration_ns(self.max_wait, "max_wait") if self.max_wait else 0
        return min(longest, most_ns * pace.ticks_per_ns)

    @property
    def patience_ns(self) -> int:
        """The longest wait of an allowed request, in nanoseconds, rounded up."""
        return self.pace.to_ns(self.patience)

    @property
    def quota(self) -> int:
        """The single units that an empty queue takes at once: one leaves, the others wait."""
        return self.patience // self.pace.ticks_per_unit + 1

    @property
    def largest_cost(self) -> int:
        """The largest cost that drains within a hundred years."""
        return min(LARGEST_QUOTA, int(self.per_second * CENTURY / SECOND))

    @property
    def period_ns(self) -> int:
        pace = self.pace
        return pace.to_ns(self.patience + pace.ticks_per_unit)

    def __str__(self) -> str:
        rate = rate_text(self.per_second, self.per_second.numerator)
        wait = "" if self.max_wait is None else f" for at most {self.max_wait} s"
        return f"{rate} in a queue of {self.queue}{wait}"


@lru_cache(maxsize=1024)
def _with_max_wait(limit: LeakyQueue, microseconds: int | None) -> LeakyQueue:
    """Return *limit* without a longest wait, or with one of at most *microseconds*."""
    if microseconds is None:
        return replace(limit, max_wait=None)
    if microseconds * MICROSECOND >= limit.patience_ns:
        return limit
    return replace(limit, max_wait=Fraction(microseconds * MICROSECOND, SECOND))
