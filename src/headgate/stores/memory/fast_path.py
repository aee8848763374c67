"""Several counters at once, all or nothing: the quick way of a `Take`.

Counters under paced limits are `algorithms.gcra` written out over a dict, as the hitter in `turn`
is for a single counter; where there are others, all ask their algorithms, without the detours of
`Opened`. A property test holds both together with the long way. What is out of the ordinary (a
counter that is new or has reservations, two checks of one counter, slots, turns, a cost that is 0
or can never fit, a sweep that is due) is left to that.
"""

from __future__ import annotations

import os
import weakref
from functools import partial
from time import sleep
from typing import TYPE_CHECKING, Any, Final, cast

from headgate.algorithms import Algorithm, Paced
from headgate.clock import clock_reading
from headgate.decision import Decision, paced_decisions
from headgate.stores.base import checked_cost, concluded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FunctionType

    from headgate.clock import Clock
    from headgate.limits import Limit
    from headgate.stores.base import Hitter
    from headgate.stores.memory.counters import Counters, Group, Shelf, State, Sweep
    from headgate.stores.operations import Check


if TYPE_CHECKING:
    Found = dict[Shelf[str, State], tuple["Table", dict[str, State], Check]]
    """By shelf, as equal limits have tables of their own: the table, its live counters, the check
    of one of them."""

MOST_LIMITS: Final = 64
"""How many limits of one group are remembered: policies change."""


class Table:
    """The counters of a group under *limit*, and the numbers of a paced limit."""

    __slots__ = (
        "algorithm",
        "is_paced",
        "limit",
        "new_admitted",
        "new_refused",
        "per_ns",
        "quota",
        "shelf",
        "span",
        "unit",
    )

    def __init__(self, counters: Counters, limit: Limit) -> None:
        self.shelf = counters.plain
        self.limit = limit
        self.algorithm: Algorithm[Any] = counters.algorithm
        self.quota = limit.quota
        self.is_paced = isinstance(counters.algorithm, Paced)
        if isinstance(counters.algorithm, Paced):
            pace = counters.algorithm.pace
            self.per_ns, self.unit, self.span = pace.ticks_per_ns, pace.ticks_per_unit, pace.span
            self.new_admitted, self.new_refused = paced_decisions(counters.algorithm.limit, pace)


class QuickTake:
    """The tables of a store that were asked lately. The caller has the turn."""

    __slots__ = ("_groups", "_origin", "_tables")

    def __init__(self, groups: dict[str, Group], origin: int) -> None:
        self._groups = groups
        self._origin = origin
        # By the identity of limits, which each table keeps: to hash one takes longer than the rest.
        self._tables: dict[str, dict[int, Table]] = {}

    def forget(self, group: str) -> None:
        """A table of *group* is gone."""
        self._tables.pop(group, None)

    def take(self, checks: Sequence[Check], since_origin: int) -> list[Decision] | None:
        """Charge all *checks* if all fit, else none; None, and nothing is done, if it cannot tell
        quickly. The time is counted from the store's origin."""
        found: Found = {}
        is_paced = True
        for check in checks:
            tables = self._tables.get(check.group)
            table = None if tables is None else tables.get(id(check.limit))
            if table is None:
                table = self._known(check)
                if table is None:
                    return None
            shelf = table.shelf
            live = shelf.live
            if check.key not in live and shelf.get(check.key) is None:
                return None
            if shelf in found or not 0 < check.cost <= table.quota:
                return None
            found[shelf] = table, live, check
            is_paced = is_paced and table.is_paced
        return (
            _paced(found, since_origin) if is_paced else _mixed(found, since_origin + self._origin)
        )

    def _known(self, check: Check) -> Table | None:
        """The table for *check*, remembered from now on; None if there is none, or one of slots
        or turns."""
        counters = self._groups.get(check.group, {}).get(check.limit)
        if counters is None or not check.limit.is_divisible:
            return None
        tables = self._tables.setdefault(check.group, {})
        if len(tables) >= MOST_LIMITS:
            tables.clear()
        table = tables[id(check.limit)] = Table(counters, check.limit)
        return table


def _paced(found: Found, since_origin: int) -> list[Decision]:
    """GCRA over whole ticks."""
    fits = True
    asked = []
    for table, live, check in found.values():
        now, need = since_origin * table.per_ns, check.cost * table.unit
        state = live[check.key]
        after = state - now + need if state > now else need
        if after > table.span:
            fits = False
        asked.append((table, live, check.key, now, need, after))
    decisions: list[Decision] = []
    for table, live, key, now, need, after in asked:
        if fits:
            live[key] = now + after
        if after > table.span:
            refusal = table.new_refused()
            refusal._key = key
            refusal._in_use = after
            refusal._need = need
            decisions.append(refusal)
        else:
            admitted = table.new_admitted()
            admitted._key = key
            admitted._in_use = after if fits else after - need
            decisions.append(admitted)
    return decisions


def _mixed(found: Found, now: int) -> list[Decision]:
    """The same with any algorithms."""
    waits = [
        table.algorithm.wait(live[check.key], check.cost, now)
        for table, live, check in found.values()
    ]
    fits = waits.count(0) == len(waits)
    decisions = []
    for wait, (table, live, check) in zip(waits, found.values(), strict=True):
        if fits:
            live[check.key] = table.algorithm.charge(live[check.key], check.cost, now)
        outcome = table.algorithm.outcome(live[check.key], wait, now)
        decisions.append(concluded(check.key, table.limit, outcome))
    return decisions


# Whose turn it is: a lock for sections of a few hundred nanoseconds, nearly free of charge.
#
# `threading.Lock` costs as much as the whole arithmetic of a check. Here the lock is a variable
# that the functions below share. Deleting it takes the turn: if somebody else has it, the variable
# is unbound and Python raises NameError. Assigning it gives the turn back. CPython carries out both
# in one step: with the GIL because no thread switch, signal or interrupt can happen inside a
# bytecode that calls nothing, without the GIL because a shared variable is a cell, swapped
# atomically.
#
# A thread that finds the turn taken lets the others run and tries again. Nobody sleeps or does I/O
# while having it. It is not reentrant.
#
# The fast path of the store has to be defined here too, since it takes the turn by hand: a shared
# variable is shared by the functions of one scope. It is `algorithms.gcra` written out over a dict,
# the same two additions and the same comparison, and a property test holds the two together. All
# that is out of the ordinary (a key not seen lately, a cost that is 0 or can never fit,
# reservations, a sweep that is due) goes the long way through `MemoryStore.run`. It looks as it
# does because
#
# - constants in the closure need no attribute look-up, and `except KeyError` is free until it
# raises; - the clock is read before the turn is taken and the decision made after it is given back,
# so no   Python code, not even a signal handler or a finaliser, can run while this thread has the
# turn.   (Two threads may thus arrive with their times swapped; GCRA does not mind.)


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
