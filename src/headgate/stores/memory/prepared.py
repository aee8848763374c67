"""Decisions about one key from tables that exist: the fast path of the memory store.

Each function returns a closure for the same limits and many keys. It takes one lock, decides each
limit by one call of `quick_take`, and makes the decision at once. With the figures read, a hit of
one token bucket takes 1.3 us where outcomes that are combined took 1.9, one of two limits 2.0 where
they took 4.0. A new key begins with an untouched counter if there is room for its own. What is not
common (a full store, reservations, a sweep that is due, a cost of 0) is left to *otherwise*.

A table that the sweep has dropped is empty and takes no new key, so a stale one is never used.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.clock import Clock, MonotonicClock
from headgate.decision import Decision, Taken
from headgate.stores.base import LARGEST_AMOUNT, checked_cost, checked_key
from headgate.stores.memory.shard import SHARDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.algorithms import Algorithm
    from headgate.limits import Limit
    from headgate.stores.base import TakeNow
    from headgate.stores.memory.shard import Shard, Sweep, Table
    from headgate.stores.operations import Outcomes

Decide = Callable[[str, int], Decision]

Part = tuple["Table", "Algorithm[Any]", "Limit"]
"""The counters of one limit in a shard, and what decides about them.

(A named tuple takes longer to unpack.)
"""

Figures = tuple[tuple["Limit", ...], list[Taken]]
"""The limits, and what was taken of each: a decision makes its parts of them when they are read."""

ABOVE_ALL: Final = LARGEST_AMOUNT + 1
"""More than any limit leaves."""

MOST_KNOWN: Final = 4096
"""Combinations of shards whose counters are kept, in one prepared take."""

ONE: Final = 1
"""The usual cost. It is compared by identity: what is equal to 1 may be a float or a bool."""

new: Final = tuple.__new__
"""Make a decision of all its fields: 0.15 us, a call of `Decision` 0.24."""


class Counters(NamedTuple):
    """The counters of a store, as far as a decision needs them."""

    shards: Sequence[Shard]
    sweep: Sweep
    clock: Clock


class Kept(NamedTuple):
    """A group of counters and its limit; the arithmetic of that, and of the limit that the counters
    are kept under."""

    group: str
    limit: Limit
    algorithm: Algorithm[Any]
    kept: Algorithm[Any]

    def table(self, shard: Shard) -> Table | None:
        """Return the counters in *shard*; None if there are none."""
        with shard.lock:
            group = shard.groups.get((self.group, False))
            return None if group is None else group.tables.get(self.kept.limit)


def decide_one(counters: Counters, kept: Kept, otherwise: Decide) -> Decide:
    """Return a function that decides the one limit of *kept* for a key and a cost."""
    shards, sweep, clock = counters
    read, offset = reading_of(clock)
    take, limit = kept.algorithm.quick_take, kept.limit
    tables: list[Table | None] = [None] * SHARDS

    def decide(key: str, cost: int) -> Decision:
        if cost is not ONE or type(key) is not str:
            key, cost = checked_key(key), checked_cost(cost)
        number = hash(key) % SHARDS
        table = tables[number]
        if table is not None and cost:
            with shards[number].lock:
                now = read() + offset
                live = table.live
                state = live.get(key)
                if sweep.since <= now < sweep.due and (
                    table.begin(key, cost) if state is None else not table.holds
                ):
                    live[key], wait, remaining, reset = take(state, cost, now)
                    return new(
                        Decision, (key, limit, wait == 0, remaining, wait, reset, 0, 0, "store", ())
                    )
        decision = otherwise(checked_key(key), cost)
        tables[number] = kept.table(shards[number])
        return decision

    return decide


def decide_several(counters: Counters, several: Sequence[Kept], otherwise: Decide) -> Decide:
    """Return a function that decides all limits of *several* for a key and a cost."""
    shards, sweep, clock = counters
    read, offset = reading_of(clock)
    limits = tuple([kept.limit for kept in several])
    known: list[list[Part]] = [[] for _ in range(SHARDS)]

    def decide(key: str, cost: int) -> Decision:
        if cost is not ONE or type(key) is not str:
            key, cost = checked_key(key), checked_cost(cost)
        number = hash(key) % SHARDS
        parts = known[number]
        if parts and cost:
            with shards[number].lock:
                now = read() + offset
                if sweep.since <= now < sweep.due:
                    decision = _decide_known(parts, limits, key, cost, now)
                    if decision is not None:
                        return decision
        decision = otherwise(checked_key(key), cost)
        known[number] = _parts(several, [shards[number]] * len(several))
        return decision

    return decide


def take_several(counters: Counters, several: Sequence[Kept], otherwise: TakeNow) -> TakeNow:
    """Return a function that takes all limits of *several* for keys and costs."""
    shards, sweep, clock = counters
    read, offset = reading_of(clock)
    known: dict[tuple[int, ...], tuple[list[int], list[Part]]] = {}
    """The shards to lock, in their order, and the counters, by the shard of each key."""

    def take(keys: Sequence[str], costs: Sequence[int]) -> Outcomes:
        numbers = tuple([hash(key) % SHARDS for key in keys])
        found = known.get(numbers)
        if found is not None and 0 not in costs:
            outcomes = locked(*found, keys, costs)
            if outcomes is not None:
                return outcomes
        taken = otherwise(keys, costs)
        known.pop(numbers, None)  # a table may be stale
        parts = _parts(several, [shards[number] for number in numbers])
        if parts and len(known) < MOST_KNOWN:
            known[numbers] = sorted(set(numbers)), parts
        return taken

    def locked(
        numbers: list[int], parts: list[Part], keys: Sequence[str], costs: Sequence[int]
    ) -> Outcomes | None:
        """Take with the shards *numbers* locked, in their order."""
        with shards[numbers[0]].lock:
            if len(numbers) > 1:
                return locked(numbers[1:], parts, keys, costs)
            now = read() + offset
            is_usual = sweep.since <= now < sweep.due
            return _take_known(parts, keys, costs, now) if is_usual else None

    return take


def _parts(several: Sequence[Kept], shards: Sequence[Shard]) -> list[Part]:
    """Return the counters of each limit in its shard; nothing if one has none."""
    parts = []
    for kept, shard in zip(several, shards, strict=True):
        table = kept.table(shard)
        if table is None:
            return []
        parts.append((table, kept.algorithm, kept.limit))
    return parts


def _begin(parts: list[Part], keys: Sequence[str], costs: Sequence[int]) -> bool:
    """Make room for new counters of all *keys*, which the *costs* fit into; False if one has none,
    or may have a counter."""
    begun: list[Table] = []
    for (table, _, _), key, cost in zip(parts, keys, costs, strict=True):
        if not table.begin(key, cost):
            for one in begun:
                one.give_up()
            return False
        begun.append(table)
    return True


def _take_known(
    parts: list[Part], keys: Sequence[str], costs: Sequence[int], now: int
) -> Outcomes | None:
    """Charge all counters of *keys* if all costs fit, else none.

    Returns None, and changes nothing, if one may be elsewhere.
    """
    taken = []
    is_new = is_denied = False
    for n, (table, algorithm, _) in enumerate(parts):
        state = table.live.get(keys[n])
        if state is None and not is_new:
            is_new = n == 0 and _begin(parts, keys, costs)
            if not is_new:
                return None
        elif table.holds:
            return None
        one = algorithm.take(state, costs[n], now)
        taken.append(one)
        if not one[1][0]:
            is_denied = True
    for n, (table, _, _) in enumerate(parts):
        after, outcome = taken[n]
        if is_denied and outcome[0]:  # it would have fitted, but nothing is charged
            after = table.algorithm.rebase(table.live[keys[n]], now)
            taken[n] = after, table.algorithm.outcome(after, 0, now)
        table.live[keys[n]] = after
    return tuple([outcome for _, outcome in taken])


def _decide_known(
    parts: list[Part], limits: tuple[Limit, ...], key: str, cost: int, now: int
) -> Decision | None:
    """Charge all counters of *key* if *cost* fits in all, else none.

    Returns None, and changes nothing, if one may be elsewhere.
    """
    taken: list[Taken] = []
    is_allowed, least, longest, tightest = True, ABOVE_ALL, 0, limits[0]
    is_new = False
    for table, algorithm, limit in parts:
        state = table.live.get(key)
        if state is None and not is_new:
            is_new = not taken and _begin(parts, (key,) * len(parts), (cost,) * len(parts))
            if not is_new:
                return None
        elif table.holds:
            return None
        one = algorithm.quick_take(state, cost, now)
        taken.append(one)
        _, wait, remaining, reset = one
        if wait != 0:
            is_allowed = False
        if remaining < least:
            least, tightest = remaining, limit
        if reset > longest:
            longest = reset
    if not is_allowed:
        return _deny(parts, (limits, taken), key, now)
    for n, (table, _, _) in enumerate(parts):  # (a strict zip takes 0.3 us more)
        table.live[key] = taken[n][0]
    return new(Decision, (key, tightest, True, least, 0, longest, 0, 0, "store", (limits, taken)))


def _deny(parts: list[Part], figures: Figures, key: str, now: int) -> Decision:
    """Charge nothing: a limit in which the cost would have fitted only reports its figures.

    The longest wait speaks, as in `decision.decide`.
    """
    _, taken = figures
    least, longest, tightest = ABOVE_ALL, 0, parts[0][2]
    latest: int | None = 0
    for n, (table, algorithm, limit) in enumerate(parts):
        one = taken[n]
        if one[1] == 0:
            one = taken[n] = algorithm.quick_take(table.live[key], 0, now)
        table.live[key], wait, remaining, reset = one
        if latest is not None and (wait is None or wait > latest):
            latest, tightest = wait, limit
        if remaining < least:
            least = remaining
        if reset > longest:
            longest = reset
    return new(Decision, (key, tightest, False, least, latest, longest, 0, 0, "store", figures))


def reading_of(clock: Clock) -> tuple[Clock, int]:
    """Return a function and a number whose sum is the time: quicker than a call of the default."""
    if type(clock) is MonotonicClock:
        return time.monotonic_ns, clock.offset
    return clock, 0
