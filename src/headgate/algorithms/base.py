"""What every algorithm can say about a counter, and how a check is made of it.

An algorithm is arithmetic on the *state* of one counter. It reads no clock and does no I/O: the
time comes in as integer nanoseconds, and `None` is the state of a counter nobody has touched.
All verbs of the limiter (hit, peek, reserve, charge, refund) are made of the six questions below.

Whatever the algorithm:

- `wait` is exact: a cost that must wait `n` nanoseconds fits after `n` and not after `n - 1`.
- Time that runs backwards makes an answer stricter or leaves it as it was, never looser.
- `charge` records in full. What goes beyond the quota is debt: it is worked off at the pace of
  the limit before anything more fits.
- A state handed to `charge` or `refund` belongs to the algorithm from then on; the state that
  comes back is the one to keep. (The log changes in place, and any question may tidy it.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from headgate.limits import Limit

S = TypeVar("S")

ALLOWED: Final = True


class Outcome(NamedTuple):
    """What one limit says to one cost."""

    allowed: bool
    remaining: int
    """The largest cost that would fit now, after this one if it was taken."""
    retry_after_ns: int | None
    """Nanoseconds until this cost fits: 0 if it did, None if it never can."""
    reset_after_ns: int
    """Nanoseconds until the counter is as if untouched."""
    delay_ns: int = 0
    """Nanoseconds until the turn of what was allowed: more than 0 only where there is a queue."""
    turn_ns: int = 0
    """The time of that turn on the clock of the store; `CancelQueued` takes it."""
    source: str = "store"
    """Who decided: the store, or a layer in front of it by what it knows of the store."""


class Algorithm(ABC, Generic[S]):
    """The arithmetic of one limit."""

    __slots__ = ("limit", "quota")

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.quota = limit.quota

    @abstractmethod
    def wait(self, state: S | None, cost: int, now: int) -> int | None:
        """Nanoseconds from *now* until *cost* (at least 1) fits; None if it never can."""

    @abstractmethod
    def charge(self, state: S | None, amount: int, now: int) -> S:
        """The state after *amount* (at least 1) has been taken, whether it fits or not."""

    @abstractmethod
    def refund(self, state: S, amount: int, now: int) -> S:
        """The state after *amount* has come back, newest first, never beyond as new.

        It is a state even if it is as new: it still knows how late it was, should the clock step
        back.
        """

    def as_new(self, now: int) -> S:
        """A state of which nothing is used, that knows how late it is."""
        return self.refund(self.charge(None, 1, now), 1, now)

    @abstractmethod
    def remaining(self, state: S | None, now: int) -> int:
        """The largest cost that fits now."""

    @abstractmethod
    def fresh_in(self, state: S | None, now: int) -> int:
        """Nanoseconds until *state* is as good as None; 0 if it is now."""

    @abstractmethod
    def used(self, state: S | None, now: int) -> int:
        """How much of the quota is in use, rounded up; more than the quota if there is debt."""

    @abstractmethod
    def adopt(self, state: S, old: Algorithm[S], now: int) -> S | None:
        """A state written under *old* as one of this limit's, if nothing of it gets lost."""

    def take(self, state: S | None, cost: int, now: int) -> tuple[S | None, Outcome]:
        """Charge *cost* if it fits; the new state and what came of it.

        A cost of 0 always fits and changes nothing. A refused cost changes nothing.
        """
        wait = self.wait(state, cost, now) if cost else 0
        if wait == 0 and cost:
            state = self.charge(state, cost, now)
        return state, self.outcome(state, wait, now)

    def outcome(self, state: S | None, wait: int | None, now: int) -> Outcome:
        """The figures of *state*, for a cost that has to wait *wait*."""
        return Outcome(wait == 0, self.remaining(state, now), wait, self.fresh_in(state, now))


def carry(old: Algorithm[S], state: S, new: Algorithm[S], now: int) -> S | None:
    """The state of a counter whose limit changed from *old* to *new*: nothing used is forgotten.

    Where the new limit can go on with the state, it does; otherwise what is in use is charged anew
    at *now*, in full. What a lowered limit cannot hold is debt there, so that nothing is minted
    by a counter that goes back and forth, as it does while a fleet is being updated. Slots are not
    consumption: between concurrency and the rest nothing carries over.
    """
    if (old.limit.algorithm == "concurrency") != (new.limit.algorithm == "concurrency"):
        return None
    adopted = new.adopt(state, old, now)
    if adopted is not None:
        return adopted
    used = old.used(state, now)
    return new.charge(None, used, now) if used else None
