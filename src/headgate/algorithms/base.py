"""The interface of algorithms, and `take`, which checks and charges.

An algorithm is arithmetic on the *state* of one counter. It reads no clock and does no I/O: time
comes in as integer nanoseconds, and `None` is the state of an untouched counter. All verbs of a
limiter (hit, peek, reserve, charge, refund) are made of the methods below.

Common to all algorithms:

- `wait` is exact: a cost that must wait `n` nanoseconds fits after `n` and not after `n - 1`.
- `charge` records in full. What exceeds the quota is debt: it is worked off at the pace of the
  limit before anything else fits.
- Only `charge`, `refund` and `give_back` change a counter. They own the state that they are given
  (the log changes in place) and return the one to keep. The other methods change nothing.
- A clock that steps back mints no units and locks no caller out. Times in a state that are later
  than now are moved to now (`rebase`); earlier times and debt stay. Time counts as elapsed only
  while the clock moves forward, so a clock that jitters mints no units, and a caller waits at most
  as long as one that has just used up the limit. Each module states its rule. All figures are
  those of the rebased state. A store keeps the rebased state when it charges or denies, so that
  the wait of a denied caller ends; a peek keeps nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.limits import Limit

S = TypeVar("S")


class Outcome(NamedTuple):
    """The answer of one limit to one cost."""

    allowed: bool
    remaining: int
    """The largest cost that would fit now, after this one if it was charged."""
    retry_after_ns: int | None
    """Nanoseconds until this cost fits: 0 if it did, None if it never can."""
    reset_after_ns: int
    """Nanoseconds until the counter is as if untouched."""
    delay_ns: int = 0
    """Nanoseconds until the place in a queue that was allowed; 0 without a queue."""
    place_ns: int = 0
    """The time of that place on the clock of the store; `CancelQueued` takes it."""
    source: str = "store"
    """The name of what decided: the store, or a layer in front of it."""


Taken = tuple[S | None, int | None, int, int]
"""The result of `quick_take`: the state to keep, and of the outcome `retry_after_ns`, `remaining`
and `reset_after_ns`. It was allowed if there is nothing to wait for."""

Figures = tuple[bool, int, int | None, int, int, int, str]
"""The fields of an `Outcome`, all of them."""

new_outcome: Final[Callable[[Figures], Outcome]] = partial(tuple.__new__, Outcome)
"""Make an outcome of all its fields. A call of `Outcome` takes three times as long: a fifth of a
check in memory."""


class Algorithm(ABC, Generic[S]):
    """The arithmetic of one limit."""

    __slots__ = ("limit", "quota")

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.quota = limit.quota

    @abstractmethod
    def rebase(self, state: S, now: int) -> S:
        """Return *state* with nothing in the future of *now*; *state* itself if nothing is."""

    @abstractmethod
    def wait(self, state: S | None, cost: int, now: int) -> int | None:
        """Return the nanoseconds until *cost* (at least 1) fits; None if it never can."""

    @abstractmethod
    def charge(self, state: S | None, amount: int, now: int) -> S:
        """Record *amount* (at least 1), whether it fits or not."""

    @abstractmethod
    def refund(self, state: S, amount: int, now: int) -> S:
        """Give *amount* back, newest first, never beyond an unused counter."""

    def give_back(self, state: S, amount: int, since: int, now: int) -> S:
        """Give *amount* back of what was charged at *since*, where it was charged.

        What no longer counts is lost: what was refilled since, or is in a window that has passed.
        Slots and places in queues do not come back.
        """
        return state

    def copied(self, state: S) -> S:
        """Return *state* to be charged while the original stays as it is."""
        return state

    @abstractmethod
    def remaining(self, state: S | None, now: int) -> int:
        """Return the largest cost that fits now."""

    @abstractmethod
    def fresh_in(self, state: S | None, now: int) -> int:
        """Return the nanoseconds until *state* is as good as None; 0 if it is now."""

    @abstractmethod
    def used(self, state: S | None, now: int) -> int:
        """Return how much of the quota is in use, rounded up; debt counts."""

    @abstractmethod
    def adopt(self, state: S, old: Algorithm[S], now: int) -> S | None:
        """Convert a state kept under *old*; None unless nothing of it gets lost."""

    def take(self, state: S | None, cost: int, now: int) -> tuple[S | None, Outcome]:
        """Charge *cost* if it fits; return the state to keep, and the outcome.

        A cost of 0 fits and changes nothing. A denial consumes nothing: the state that comes back
        is *state* itself unless the clock has stepped back.
        """
        after, wait, remaining, reset = self.quick_take(state, cost, now)
        outcome = new_outcome((wait == 0, remaining, wait, reset, 0, 0, "store"))
        return after if cost else state, outcome

    def quick_take(self, state: S | None, cost: int, now: int) -> Taken[S]:
        """Take without the parts of an outcome that only a queue has.

        A cost of 0 fits; then the state that comes back is rebased and otherwise unchanged.

        (The fast path: algorithms decide the common case here in one function, without calls, and
        leave all other cases to this one.)
        """
        if state is not None:
            state = self.rebase(state, now)
        wait = self.wait(state, cost, now) if cost else 0
        if wait == 0 and cost:
            state = self.charge(state, cost, now)
        outcome = self.outcome(state, wait, now)
        return state, wait, outcome.remaining, outcome.reset_after_ns

    def outcome(self, state: S | None, wait: int | None, now: int) -> Outcome:
        """Return the figures of *state*, for a cost that fits in *wait* nanoseconds."""
        return Outcome(wait == 0, self.remaining(state, now), wait, self.fresh_in(state, now))


def carry(old: Algorithm[S], state: S, new: Algorithm[S], now: int) -> S | None:
    """Convert the state of a counter whose limit changed from *old* to *new*.

    Where the new limit can keep the state, it does. Otherwise what is in use is charged at *now*,
    in full: what a lowered limit cannot hold is debt, so that a counter that goes back and forth
    while a fleet is updated mints nothing. Slots are not consumption: between concurrency and
    the other algorithms nothing is carried.
    """
    if (old.limit.algorithm == "concurrency") != (new.limit.algorithm == "concurrency"):
        return None
    adopted = new.adopt(state, old, now)
    if adopted is not None:
        return adopted
    used = old.used(state, now)
    return new.charge(None, used, now) if used else None
