"""A counter of the memory store in the hands of one operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.algorithms import Algorithm, carry
from headgate.algorithms.base import Place
from headgate.algorithms.reservations import outcome_beside, wait_beside
from headgate.stores.counter import CounterTransaction
from headgate.stores.memory.counters import Counters, Entry

if TYPE_CHECKING:
    from headgate.algorithms import Outcome


class Opened(CounterTransaction):
    """The counter of *key*. The caller has the store's turn.

    It is asked by *algorithm*, if that is another that keeps the same state.
    """

    __slots__ = ("_counters", "_key")

    def __init__(
        self, counters: Counters, key: str, now: int, algorithm: Algorithm[Any] | None = None
    ) -> None:
        state, holds = counters.load(key, now)
        super().__init__(algorithm or counters.algorithm, state, holds, now)
        self._counters = counters
        self._key = key

    def told_as(self, algorithm: Algorithm[Any]) -> Outcome:
        """The figures as they are now, for a cost of 1, as *algorithm* would tell them."""
        if algorithm.limit == self._algorithm.limit or self._state is None:
            return self.outcome_of_one()
        state = carry(self._algorithm, self._state, algorithm, self._now)
        wait = wait_beside(algorithm, state, self._holds, 1, self._now)
        return outcome_beside(algorithm, state, self._holds, wait, self._now)

    def wait_anew(self, units: int) -> int | None:
        """Nanoseconds until *units* fit, whatever was asked before; None if never."""
        self._asked = 0
        return self.wait(units)

    @property
    def remaining(self) -> int:
        """The largest cost that fits now."""
        return self.outcome(0).remaining

    @property
    def is_own(self) -> bool:
        """Whether no other key shares this counter."""
        return self._counters.place_of(self._key) == self._key

    @property
    def place(self) -> Place:
        """Where the last charge went."""
        return self._algorithm.place(self._state)

    def ends_in(self, amount: int) -> int:
        """Nanoseconds until *amount*, if charged now, would mean nothing any more."""
        return self._algorithm.lasts(self._state, amount, self._now)

    def give_back(self, amount: int, place: Place) -> None:
        """Give *amount* back that was charged at *place*."""
        if amount and self._state is not None and self.is_own:
            self._state = self._algorithm.refund_at(self._state, amount, place, self._now)
            self._is_changed = True

    def close(self) -> None:
        if self._is_changed:
            self._counters.save(self._key, Entry(self._state, self._holds), self._now)


# Several counters taken from at once, all or nothing.


Costs = list[tuple[Opened, int]]
"""Counters, and what is asked of each."""
