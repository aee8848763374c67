"""A turn that was given in advance, for those who see for themselves that they come on time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.decisions import Decision


class Booked:
    """What both kinds of bookings tell: true if there is a turn."""

    __slots__ = ("at_ns", "cost", "decision", "is_open")

    def __init__(self, decision: Decision, cost: int, at_ns: int) -> None:
        self.decision = decision
        """What came of asking."""
        self.cost = cost
        self.at_ns = at_ns
        """`at` in nanoseconds."""
        self.is_open = decision.allowed
        """Whether it has not been given up."""

    @property
    def key(self) -> str:
        """Whose queue it is in."""
        return self.decision.key

    @property
    def delay(self) -> float:
        """Seconds from when it was booked until the turn."""
        return self.decision.delay

    @property
    def at(self) -> float:
        """When the turn is, in seconds since the epoch on the clock of this process."""
        return self.at_ns / SECOND

    @property
    def retry_after(self) -> float | None:
        """If there is no turn: seconds until there would be one; None if never."""
        return self.decision.retry_after

    def __bool__(self) -> bool:
        return self.decision.allowed

    def __repr__(self) -> str:
        if not self:
            return f"{type(self).__name__}({self.key!r}, refused, retry_after={self.retry_after})"
        state = "" if self.is_open else ", given up"
        return f"{type(self).__name__}({self.key!r}, at={self.at}, delay={self.delay}{state})"

    def _close(self) -> bool:
        """Whether there is something to give up, for the first who asks."""
        was_open, self.is_open = self.is_open, False
        return was_open


class Booking(Booked):
    """A turn at a known time. Nobody waits for it: whoever holds it comes when it is `at`."""

    __slots__ = ("_give_up",)

    def __init__(
        self, decision: Decision, cost: int, at_ns: int, give_up: Callable[[], bool]
    ) -> None:
        super().__init__(decision, cost, at_ns)
        self._give_up = give_up

    def cancel(self) -> bool:
        """Give the turn up; whether that was in time to be of use to others."""
        return self._close() and self._give_up()


class AsyncBooking(Booked):
    """As `Booking`, for an event loop."""

    __slots__ = ("_give_up",)

    def __init__(
        self, decision: Decision, cost: int, at_ns: int, give_up: Callable[[], Awaitable[bool]]
    ) -> None:
        super().__init__(decision, cost, at_ns)
        self._give_up = give_up

    async def cancel(self) -> bool:
        """Give the turn up; whether that was in time to be of use to others."""
        return self._close() and await self._give_up()
