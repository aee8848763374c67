"""A counter of the memory store in the hands of one operation."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from headgate.algorithms import (
    Algorithm,
    FixedWindowAlgorithm,
    Paced,
    SlidingWindowCounterAlgorithm,
    SlidingWindowLogAlgorithm,
    carry,
)
from headgate.algorithms.reservations import outcome_beside, wait_beside
from headgate.stores.counter import Counting, refuse_slots
from headgate.stores.memory.counters import Counters, Entry

if TYPE_CHECKING:
    from headgate.algorithms import Outcome
    from headgate.algorithms.sliding_log import Log
    from headgate.stores.operations import Outcomes


# Where in a counter units were charged, so that they are given back there and nowhere else.
#
# A refund takes back what was charged last, which is right for a request that has just been made. A
# loan is given back later: in the meantime others may have been charged, a window may have ended,
# the limit may have changed. What is given back has to come out of the window, the cell or the
# entry that it went into; if that is gone, so is the loan. A paced counter has no such places.


Place = tuple[str | int, ...]
"""The kind of a counter, its cut of time, and the number of the window or the time of the entry."""

State = Any


def place_now(algorithm: Algorithm[State], state: State) -> Place:
    """Where the *state*, in which something has just been charged, took it up."""
    match algorithm:
        case FixedWindowAlgorithm():
            return "fixed", algorithm.window_ns, state[0]
        case SlidingWindowCounterAlgorithm():
            return "cells", algorithm.cell, algorithm.subwindows, state[0]
        case SlidingWindowLogAlgorithm():
            return "log", algorithm.window_ns, state.high
        case _:
            return ("paced",)


def give_back(
    algorithm: Algorithm[State], state: State, amount: int, place: Place, now: int
) -> State:
    """The *state* after up to *amount* that was charged at *place* has come back."""
    state = algorithm.refund(state, 0, now)  # as of now: what has ended has left
    match algorithm:
        case Paced() if place == ("paced",):
            return algorithm.refund(state, amount, now)
        case FixedWindowAlgorithm() if place == place_now(algorithm, state):
            return algorithm.refund(state, amount, now)
        case SlidingWindowCounterAlgorithm() if place[:-1] == place_now(algorithm, state)[:-1]:
            return _from_cell(state, amount, int(place[-1]))
        case SlidingWindowLogAlgorithm() if place[:-1] == place_now(algorithm, state)[:-1]:
            _from_entry(state, amount, int(place[-1]))
    return state


def ends_in(algorithm: Algorithm[State], state: State | None, amount: int, now: int) -> int:
    """Nanoseconds until *amount*, if it was charged now, would mean nothing any more."""
    if isinstance(algorithm, SlidingWindowLogAlgorithm):
        high: int = now if state is None else max(now, state.high)
        return high + algorithm.window_ns - now
    if isinstance(algorithm, Paced):  # all that was ever charged has been refilled then
        return -(-algorithm.pace.span // algorithm.pace.ticks_per_ns)
    charged = algorithm.charge(state, amount, now)
    if isinstance(algorithm, FixedWindowAlgorithm):
        index: int = charged[0]
        return (index + 1) * algorithm.window_ns - now
    return algorithm.fresh_in(charged, now)


def _from_cell(state: State, amount: int, cell: int) -> State:
    index, counts = state
    place = len(counts) - 1 - (index - cell)
    if not 0 <= place < len(counts):
        return state
    lowered = list(counts)
    lowered[place] -= min(amount, lowered[place])
    return index, tuple(lowered)


def _from_entry(log: Log, amount: int, time: int) -> None:
    from_debt = min(amount, log.debt)  # it would take the place of what is given back
    log.debt -= from_debt
    place = bisect_left(log.times, time, log.head)
    if place == len(log.times) or log.times[place] != time:
        return
    units = min(amount - from_debt, log.units[place])
    log.units[place] -= units
    log.total -= units
    if not log.units[place]:
        del log.times[place], log.units[place]
    if not log.total:
        del log.times[:], log.units[:]
        log.head = 0


class Opened(Counting):
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
        return place_now(self._algorithm, self._state)

    def ends_in(self, amount: int) -> int:
        """Nanoseconds until *amount*, if charged now, would mean nothing any more."""
        return ends_in(self._algorithm, self._state, amount, self._now)

    def give_back(self, amount: int, place: Place) -> None:
        """Give *amount* back that was charged at *place*."""
        if amount and self._state is not None and self.is_own:
            self._state = give_back(self._algorithm, self._state, amount, place, self._now)
            self._is_changed = True

    def close(self) -> None:
        if self._is_changed:
            self._counters.save(self._key, Entry(self._state, self._holds), self._now)


# Several counters taken from at once, all or nothing.


Costs = list[tuple[Opened, int]]
"""Counters, and what is asked of each."""


def take_all(opened: Costs, *, consume: bool = True, lease: str | None = None) -> Outcomes:
    """Charge all counters if all fit; of slots, enter the one named *lease*.

    If they do not, slots remember which of them were refused.
    """
    waits = [counter.wait(cost) for counter, cost in opened]
    if consume and waits.count(0) == len(waits):
        for counter, cost in opened:
            if lease is not None and counter.has_slots:
                counter.enter(lease)
            else:
                counter.charge(cost)
            counter.close()
    outcomes = outcomes_of(opened, waits)
    if consume and lease is not None:
        refuse_slots(opened, waits)
    return outcomes


def outcomes_of(opened: Costs, waits: list[int | None]) -> Outcomes:
    """The figures of each counter, whose cost has to wait as *waits* say."""
    pairs = zip(opened, waits, strict=True)
    return tuple([counter.outcome(wait) for (counter, _), wait in pairs])
