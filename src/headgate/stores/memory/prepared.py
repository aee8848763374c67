"""Decisions about one key from counters that exist: the fast path of the memory store.

Each function returns a closure for the same limits and many keys. It takes one lock, decides each
limit by one call of `quick_take`, and makes the decision at once: half the time of a `Take` whose
outcomes are combined. What is not common (a new key, reservations, a sweep that is due, a cost of
0) is left to *otherwise*.

A table that the sweep has dropped is empty, so a stale one is never used.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate.clock import Clock, MonotonicClock
from headgate.decision import Decision, decide_taken
from headgate.stores.memory.shard import SHARDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.algorithms import Algorithm
    from headgate.limits import Limit
    from headgate.stores.memory.shard import Shard, Sweep, Table

Decide = Callable[[str, int], Decision]


class Counters(NamedTuple):
    """The counters of a store, as far as a decision needs them."""

    shards: Sequence[Shard]
    sweep: Sweep
    clock: Clock


class Kept(NamedTuple):
    """A group of counters, and the arithmetic of the limit that they are kept under."""

    group: str
    algorithm: Algorithm[Any]


def decide_one(counters: Counters, kept: Kept, otherwise: Decide) -> Decide:
    """Return a function that decides the one limit of *kept* for a key and a cost."""
    shards, sweep, clock = counters
    read, offset = reading_of(clock)
    take, limit = kept.algorithm.quick_take, kept.algorithm.limit
    new = tuple.__new__
    tables: list[Table | None] = [None] * SHARDS

    def decide(key: str, cost: int) -> Decision:
        number = hash(key) % SHARDS
        table = tables[number]
        if table is not None and cost:
            with shards[number].lock:
                now = read() + offset
                live = table.live
                state = live.get(key)
                if state is not None and now < sweep.due and not table.holds:
                    live[key], wait, remaining, reset = take(state, cost, now)
                    return new(
                        Decision,
                        (key, limit, wait == 0, remaining, wait, reset, 0, 0, "store", ()),
                    )
        decision = otherwise(key, cost)
        tables[number] = table_of(shards[number], kept)
        return decision

    return decide


def decide_several(counters: Counters, several: Sequence[Kept], otherwise: Decide) -> Decide:
    """Return a function that decides all limits of *several* for a key and a cost."""
    shards, sweep, clock = counters
    read, offset = reading_of(clock)
    limits: tuple[Limit, ...] = tuple([each.algorithm.limit for each in several])
    takes = [each.algorithm.quick_take for each in several]
    known: list[list[tuple[Table, Any]] | None] = [None] * SHARDS

    def decide(key: str, cost: int) -> Decision:
        number = hash(key) % SHARDS
        tables = known[number]
        if tables is not None and cost:
            with shards[number].lock:
                now = read() + offset
                taken = _take(tables, key, cost, now) if now < sweep.due else None
            if taken is not None:
                return decide_taken(key, limits, taken)
        decision = otherwise(key, cost)
        found = [table_of(shards[number], each) for each in several]
        pairs = zip(found, takes, strict=True)
        tables = [(table, take) for table, take in pairs if table is not None]
        known[number] = tables if len(tables) == len(takes) else None
        return decision

    return decide


def _take(
    tables: Sequence[tuple[Table, Any]], key: str, cost: int, now: int
) -> list[tuple[Any, int | None, int, int]] | None:
    """Charge all counters of *key* if *cost* fits in all, else none; None if one is not here."""
    taken = []
    is_allowed = True
    for table, take in tables:
        state = table.live.get(key)
        if state is None or table.holds:
            return None
        one = take(state, cost, now)
        if one[1] != 0:
            is_allowed = False
        taken.append(one)
    for n, (table, take) in enumerate(tables):
        if not is_allowed and taken[n][1] == 0:  # it would have fitted, but nothing is charged
            taken[n] = take(table.live[key], 0, now)
        table.live[key] = taken[n][0]
    return taken


def table_of(shard: Shard, kept: Kept) -> Table | None:
    """Return the table of *kept* in *shard*; None if there is none."""
    with shard.lock:
        group = shard.groups.get((kept.group, False))
        return None if group is None else group.tables.get(kept.algorithm.limit)


def reading_of(clock: Clock) -> tuple[Clock, int]:
    """Return a function and a number whose sum is the time: quicker than a call of the default."""
    if type(clock) is MonotonicClock:
        return time.monotonic_ns, clock.offset
    return clock, 0
