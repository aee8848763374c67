"""Where in a counter units were charged, so that they are given back there and nowhere else.

A refund takes back what was charged last, which is right for a request that has just been made. A
loan is given back later: in the meantime others may have been charged, a window may have ended, the
limit may have changed. What is given back has to come out of the window, the cell or the entry that
it went into; if that is gone, so is the loan. A paced counter has no such places.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from headgate.algorithms import (
    Algorithm,
    FixedWindowAlgorithm,
    Paced,
    SlidingWindowCounterAlgorithm,
    SlidingWindowLogAlgorithm,
)

if TYPE_CHECKING:
    from headgate.algorithms.sliding_window_log import Log

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
