"""The store inside the process: exact, thread-safe, bounded."""

from __future__ import annotations

import threading
from functools import lru_cache, partial
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from headgate.algorithms import ConcurrencyAlgorithm, LeakyQueueAlgorithm, algorithm_for
from headgate.clock import Clock, MonotonicClock, checked_clock
from headgate.decision import Decision, decide
from headgate.errors import OptionError
from headgate.fork import watch_forks
from headgate.limits import Concurrency, ConstantLimit, LeakyQueue, SlidingWindowLog
from headgate.stores.base import Prepared, Store, checks_at
from headgate.stores.counter import CounterTransaction, execute
from headgate.stores.memory.prepared import Counters, Kept, decide_one, decide_several, take_several
from headgate.stores.memory.shard import SHARDS, Entry, Group, Room, Shard, Sweep
from headgate.stores.operations import (
    Check,
    Operation,
    Outcomes,
    Reset,
    Take,
    TakeEach,
    divide,
    keys_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.algorithms import Algorithm
    from headgate.limits import Limit
    from headgate.stores import base

R = TypeVar("R")

DEFAULT_MAX_KEYS: Final = 1_000_000
MOST_LIMITS: Final = 4096
"""Limits whose arithmetic is cached: policies change."""


class OpenCounter(CounterTransaction):
    """The counter of *key* in *group*, kept under the limit of *kept*. The caller has its lock.

    *algorithm* decides, which may be another that has the same state.
    """

    __slots__ = ("_group", "_kept", "_key")

    def __init__(
        self, group: Group, key: str, algorithm: Algorithm[Any], kept: Algorithm[Any], now: int
    ) -> None:
        (state, holds), is_converted = group.load(key, kept, now)
        super().__init__(algorithm, state, holds, now)
        self._is_changed |= is_converted
        self._group = group
        self._key = key
        self._kept = kept

    def close(self) -> None:
        if self._is_changed:
            entry = Entry(self._state, self._holds)
            self._group.save(self._key, self._kept, entry, self._now)


class Arithmetic(NamedTuple):
    """The algorithm of a limit, and the one that its counters are kept under.

    All callers of a queue share one counter, however long each would wait. Slots do not depend on
    how many there are: each part of the callers uses the same counter under a limit of its own.
    """

    algorithm: Algorithm[Any]
    kept: Algorithm[Any]


@lru_cache(MOST_LIMITS)
def arithmetic_of(limit: Limit) -> Arithmetic:
    """Return the arithmetic of *limit*, which has no state."""
    if isinstance(limit, Concurrency):
        kept = Concurrency(1, limit.ttl)
        return Arithmetic(ConcurrencyAlgorithm(limit), ConcurrencyAlgorithm(kept))
    if isinstance(limit, LeakyQueue):
        queue = LeakyQueueAlgorithm(limit.patient)
        return Arithmetic(queue.asked_under(limit), queue)
    algorithm = algorithm_for(limit)
    return Arithmetic(algorithm, algorithm)


class MemoryStore(Store):
    """Counters in this process, shared by all its threads and event loops.

    Idle counters vanish; at most *max_keys* are kept. When that many are in use, further keys
    share a fixed number of counters until some are idle: no counter is dropped while it is in use.
    Unless *sweeps_idle*, idle ones stay until the store is full: for clocks that run fast.
    """

    waits = False
    may_fail = False
    publishes_values = True
    counter: type[OpenCounter] = OpenCounter

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        max_keys: int = DEFAULT_MAX_KEYS,
        sweeps_idle: bool = True,
    ) -> None:
        if type(max_keys) is not int or max_keys < 1:
            raise OptionError(f"max_keys is {max_keys!r}; expected an integer of at least 1")
        self.clock: Clock = MonotonicClock() if clock is None else checked_clock(clock)
        self._room = Room(max_keys)
        self._shards = [Shard(self._room) for _ in range(SHARDS)]
        self._sweep = Sweep(self._shards, self.clock(), is_timed=sweeps_idle)
        watch_forks(self)

    def after_fork(self) -> None:
        """Replace the locks, which threads of the parent may have held."""
        self._room.after_fork()
        self._sweep.after_fork()
        for shard in self._shards:
            shard.lock = threading.Lock()

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        """Count the counters, idle ones that no call has swept yet included."""
        total = 0
        for shard in self._shards:
            with shard.lock:
                total += sum(len(group) for group in shard.groups.values())
        return total

    def groups(self) -> list[str]:
        """Return the names of all groups that have counters."""
        names: dict[str, None] = {}
        for shard in self._shards:
            with shard.lock:
                names.update(dict.fromkeys(name for name, _ in shard.groups))
        return list(names)

    def keys_in(self, group: str, *, most: int) -> list[str]:
        """Return the first *most* keys, in their order, with a counter of their own in *group*.

        Idle ones are included.
        """
        keys: list[str] = []
        for shard in self._shards:
            with shard.lock:
                tables = [t for each in shard.groups_of(group) for t in each.tables.values()]
                keys += nsmallest(most, (key for table in tables for key in table))
        return nsmallest(most, keys)

    def used_in(self, group: str, key: str) -> int:
        """Return what is used and held now of the counter of *key* in *group*."""
        shard = self._shards[hash(key) % SHARDS]
        with shard.lock:
            now = self.clock()
            homes = [each.home_of(key) for each in shard.groups_of(group)]
            return sum(table.used(key, now) for table in homes if table is not None)

    def run(self, operation: Operation[R]) -> R:
        divided = divide(operation)
        if divided is not None:
            rest = divided.rest
            return cast("R", divided.join(None if rest is None else self.run(rest)))
        if isinstance(operation, TakeEach):
            return cast("R", tuple([self.run(take) for take in operation.takes]))
        if not isinstance(operation, Take) or operation.consume:
            self._sweep.step(self.clock(), is_urgent=self._room.is_full)
        numbers = {hash(key) % SHARDS for key in keys_of(operation)}
        return cast("R", self._locked(operation, sorted(numbers, reverse=True)))

    def _locked(self, operation: Operation[Any], numbers: list[int]) -> Any:
        """Carry *operation* out with the shards *numbers* locked, the last of them first."""
        if numbers:
            with self._shards[numbers[-1]].lock:
                return self._locked(operation, numbers[:-1])
        return self.carry_out(operation, self.clock())

    def carry_out(self, operation: Operation[Any], now: int) -> Any:
        """Carry *operation* out at *now*. The caller has the locks of its shards."""
        if not isinstance(operation, Reset):
            return execute(operation, partial(self._open, now=now))
        for check in operation.checks:
            for group in self._shards[hash(check.key) % SHARDS].groups_of(check.group):
                group.reset(check.key, now)
        return None

    def _open(self, checks: tuple[Check, ...], now: int) -> list[tuple[OpenCounter, int]]:
        """Open the counter of each check; checks of one counter share it."""
        by_place: dict[tuple[str, bool, str | int], OpenCounter] = {}
        opened = []
        for check in checks:
            key, has_slots = check.key, isinstance(check.limit, Concurrency)
            group = self._shards[hash(key) % SHARDS].group(check.group, has_slots=has_slots)
            place = (check.group, has_slots, group.place(key, now))
            counter = by_place.get(place)
            if counter is None:
                arithmetic = arithmetic_of(check.limit)
                counter = by_place[place] = self.counter(group, key, *arithmetic, now)
            opened.append((counter, check.cost))
        return opened

    def prepare(self, places: Sequence[base.Place]) -> Prepared:
        kept = tuple(places)
        odd: tuple[type[Limit], ...] = (Concurrency, ConstantLimit)
        if len(kept) > 1:  # the log changes in place, a place in a queue depends on what is denied
            odd = (*odd, SlidingWindowLog, LeakyQueue)
        has_twins = len({group for group, _ in kept}) < len(kept)
        if has_twins or any(isinstance(limit, odd) for _, limit in kept):
            return super().prepare(kept)
        limits, count, run = tuple([limit for _, limit in kept]), len(kept), self.run

        def take(keys: Sequence[str], costs: Sequence[int]) -> Outcomes:
            return run(Take(checks_at(kept, keys, costs)))

        def decide_slowly(key: str, cost: int) -> Decision:
            return decide(key, limits, take((key,) * count, (cost,) * count))

        counters = Counters(self._shards, self._sweep, self.clock)
        several = [Kept(name, limit, *arithmetic_of(limit)) for name, limit in kept]
        take_quickly = take_several(counters, several, take)
        if any(isinstance(limit, LeakyQueue) for limit in limits):
            return Prepared.at_once(take_quickly)
        if count == 1:
            return Prepared.at_once(take_quickly, decide_one(counters, several[0], decide_slowly))
        return Prepared.at_once(take_quickly, decide_several(counters, several, decide_slowly))
