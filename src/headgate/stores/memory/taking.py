"""Several counters taken from at once, all or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.stores.counting import refuse_slots
from headgate.stores.memory.counters import NO_HOLDS, Counters, Entry
from headgate.stores.memory.opened import Opened

if TYPE_CHECKING:
    from headgate.stores.operations import Outcomes

Costs = list[tuple[Opened, int]]
"""Counters, and what is asked of each."""


def hit_each(tables: list[Counters], key: str, cost: int, now: int) -> Outcomes:
    """Hit *key* in all *tables*, all or nothing: the common case of `take_all`, without detours."""
    asked = []
    fits = True
    for counters in tables:
        state, holds = counters.load(key, now)
        if holds or not cost:
            return take_all([(Opened(table, key, now), cost) for table in tables])
        wait = counters.algorithm.wait(state, cost, now)
        fits = fits and wait == 0
        asked.append((counters, state, wait))
    outcomes = []
    for counters, state, wait in asked:
        after = counters.algorithm.charge(state, cost, now) if fits else state
        if fits:
            counters.save(key, Entry(after, NO_HOLDS), now)
        outcomes.append(counters.algorithm.outcome(after, wait, now))
    return tuple(outcomes)


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
