"""Whose turn it is: a lock for sections of a few hundred nanoseconds, nearly free of charge.

`threading.Lock` costs as much as the whole arithmetic of a check. Here the lock is a variable that
the functions below share. Deleting it takes the turn: if somebody else has it, the variable is
unbound and Python raises NameError. Assigning it gives the turn back. CPython carries out both in
one step: with the GIL because no thread switch, signal or interrupt can happen inside a bytecode
that calls nothing, without the GIL because a shared variable is a cell, swapped atomically.

A thread that finds the turn taken lets the others run and tries again. Nobody sleeps or does I/O
while having it. It is not reentrant.

The fast path of the store has to be defined here too, since it takes the turn by hand: a shared
variable is shared by the functions of one scope. It is `algorithms.gcra` written out over a dict,
the same two additions and the same comparison, and a property test holds the two together. All
that is out of the ordinary (a key not seen lately, a cost that is 0 or can never fit, reservations,
a sweep that is due) goes the long way through `MemoryStore.run`. It looks as it does because

- constants in the closure need no attribute look-up, and `except KeyError` is free until it raises;
- the clock is read before the turn is taken and the decision made after it is given back, so no
  Python code, not even a signal handler or a finaliser, can run while this thread has the turn.
  (Two threads may thus arrive with their times swapped; GCRA does not mind.)
"""

from __future__ import annotations

import os
import weakref
from functools import partial
from time import sleep
from typing import TYPE_CHECKING, Final, cast

from headgate.clock import clock_reading
from headgate.decisions import Decision, paced_decisions
from headgate.stores.port import checked_cost

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FunctionType

    from headgate.algorithms import Paced
    from headgate.clock import Clock
    from headgate.stores.memory.counters import Counters
    from headgate.stores.memory.sweep import Sweep
    from headgate.stores.port import Hitter

_FREE: Final = True
_ONE: Final = 1
_NOWHERE: Final = ""
"""A key that no counter can have: asking for it is the quickest way to the long way."""


class Turn:
    """The turn of one store. Not a context manager, on purpose:

        turn.take()
        try: ...
        finally: turn.give_back()

    An interrupt may strike on entering any function written in Python, an `__exit__` included, and
    the turn would be lost. `give_back` is not written in Python.
    """

    __slots__ = ("__weakref__", "give_back", "paced_hitter", "take")

    take: Callable[[], None]
    give_back: Callable[[], None]
    paced_hitter: Callable[[Counters, Sweep, Clock, Hitter], Hitter]
    """The fast path: hits on *counters*, which a paced algorithm rules; the last argument takes
    over where it cannot decide."""

    def __init__(self) -> None:
        self.take, self.paced_hitter = _new_turn()
        (shared_variable,) = cast("FunctionType", self.take).__closure__ or ()
        self.give_back = partial(setattr, shared_variable, "cell_contents", _FREE)
        _turns.add(self)


def _new_turn() -> tuple[Callable[[], None], Callable[[Counters, Sweep, Clock, Hitter], Hitter]]:
    turn = _FREE

    def take() -> None:
        nonlocal turn
        while True:
            try:
                del turn
            except NameError:
                sleep(0)
            else:
                return

    def paced_hitter(counters: Counters, sweep: Sweep, clock: Clock, slowly: Hitter) -> Hitter:
        algorithm = cast("Paced", counters.algorithm)
        pace = algorithm.pace
        quota, per_ns, unit, span = pace.quota, pace.ticks_per_ns, pace.ticks_per_unit, pace.span
        admitted, refused = paced_decisions(algorithm.limit, pace)
        read = clock_reading(clock)
        live: dict[str, int] = {}

        def rebind(new_live: dict[str, int]) -> None:
            nonlocal live
            live = new_live

        def hit(key: str, cost: int = 1) -> Decision:
            nonlocal turn
            need = unit
            if cost is not _ONE:
                if not 0 < checked_cost(cost) <= quota:
                    return slowly(key, cost)
                need = unit * cost
            now = read()
            if per_ns is not _ONE:
                now *= per_ns
            while True:
                try:
                    del turn
                except NameError:
                    sleep(0)
                else:
                    break
            try:
                full_at = live[key]
                if full_at < now:
                    full_at = now if now < sweep.due * per_ns else live[_NOWHERE]
                after = full_at + need
                in_use = after - now
                if in_use <= span:
                    live[key] = full_at = after
            except (KeyError, TypeError):
                full_at, after = 0, None
            finally:
                turn = _FREE
            if after is full_at:
                decision = admitted()
                decision._key = key
                decision._in_use = in_use
                return decision
            if after is None or now >= (sweep.due if per_ns is _ONE else sweep.due * per_ns):
                return slowly(key, cost)
            refusal = refused()
            refusal._key = key
            refusal._in_use = in_use
            refusal._need = need
            return refusal

        counters.serve(hit, rebind)
        return hit

    return take, paced_hitter


_turns: weakref.WeakSet[Turn] = weakref.WeakSet()


def _give_all_back() -> None:
    """In a forked child no other thread is left to give a turn back."""
    for turn in _turns:
        turn.give_back()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_give_all_back)
