"""The leaky bucket as a queue: what does not fit now waits for its turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from headgate.errors import LimitError
from headgate.limits.model import Limit, checked_rate, rate_text
from headgate.limits.pace import Pace
from headgate.units import SECOND, Rate, Seconds, duration_ns, exact_rate, plain_seconds

if TYPE_CHECKING:
    from fractions import Fraction

LONGEST_QUEUE: Final = 1_000_000
"""The most units that may be waiting."""


@dataclass(frozen=True, slots=True)
class LeakyQueue(Limit):
    """A queue that is worked off at *rate* units a second, in the order of arrival.

    A request has its turn when all that came before it has been worked off: it is *delayed*, and
    requests leave evenly spaced. One that would have to wait behind more than *queue* units, or for
    longer than *max_wait* seconds, is refused. A queue of 0 lets nobody wait: it only spaces.
    """

    rate: Rate
    queue: int
    max_wait: Seconds | None = None
    algorithm: ClassVar[str] = "leaky_queue"

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
        """A unit in exact integers, for the arithmetic."""
        return Pace.of(self.queue + 1, self.per_second)

    @property
    def patience_ns(self) -> int:
        """The longest wait that is begun, in nanoseconds."""
        longest = int(self.queue / self.per_second * SECOND)
        if self.max_wait is None:
            return longest
        return min(longest, duration_ns(self.max_wait, "max_wait") if self.max_wait else 0)

    @property
    def quota(self) -> int:
        """How many single units an empty queue takes at once: one goes, the others wait."""
        return int(self.patience_ns * self.per_second / SECOND) + 1

    @property
    def period_ns(self) -> int:
        pace = self.pace
        return self.patience_ns + pace.to_ns(pace.ticks_per_unit)

    def __str__(self) -> str:
        rate = rate_text(self.per_second, int(self.per_second) or 1)
        wait = "" if self.max_wait is None else f" for at most {self.max_wait} s"
        return f"{rate} in a queue of {self.queue}{wait}"
