"""The store inside the process: exact, thread-safe, bounded."""

from __future__ import annotations

import threading
from functools import lru_cache, partial
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from headgate.algorithms import ConcurrencyAlgorithm, LeakyQueueAlgorithm, algorithm_for, carry
from headgate.algorithms.reservations import outcome_beside, wait_beside
from headgate.clock import Clock, MonotonicClock, checked_clock
from headgate.decision import Decision, decide
from headgate.errors import OptionError
from headgate.fork import watch_forks
from headgate.limits import Concurrency, ConstantLimit, LeakyQueue, SlidingWindowLog
from headgate.stores.base import Prepared, Store, checks_at, refuse_undivided
from headgate.stores.constants import divide
from headgate.stores.counter import CounterTransaction, execute
from headgate.stores.memory.leases import (
    ExpiringTable,
    Ledger,
    Totals,
    Values,
    grant_lease,
    new_usage,
    publish,
)
from headgate.stores.memory.prepared import (
    Counters,
    Kept,
    decide_one,
    decide_several,
    take_several,
)
from headgate.stores.memory.shard import SHARDS, Entry, Group, Room, Shard, Sweep
from headgate.stores.operations import (
    Check,
    GrantLease,
    LeaseGrant,
    MergeUsage,
    Operation,
    Outcomes,
    PublishValue,
    Reset,
    Take,
    TakeEach,
    keys_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.algorithms import Algorithm, Outcome
    from headgate.algorithms.base import Place
    from headgate.limits import Limit
    from headgate.stores import base

R = TypeVar("R")

DEFAULT_MAX_KEYS: Final = 1_000_000
MOST_LIMITS: Final = 4096
"""Limits whose arithmetic is cached: policies change."""


class Opened(CounterTransaction):
    """The counter of *key* in *group*, kept under the limit of *kept*. The caller has its lock.

    It is asked by *algorithm*, which may be another that has the same state.
    """

    __slots__ = ("_group", "_kept", "_key")

    def __init__(
        self,
        group: Group,
        key: str,
        algorithm: Algorithm[Any],
        kept: Algorithm[Any],
        now: int,
    ) -> None:
        (state, holds), is_converted = group.load(key, kept, now)
        super().__init__(algorithm, state, holds, now)
        self._is_changed |= is_converted
        self._group = group
        self._key = key
        self._kept = kept

    def outcome_under(self, algorithm: Algorithm[Any]) -> Outcome:
        """Return the figures as they are now, for a cost of 1, under another limit."""
        if algorithm.limit == self._algorithm.limit or self._state is None:
            return self.outcome_of_one()
        state = carry(self._algorithm, self._state, algorithm, self._now)
        wait = wait_beside(algorithm, state, self._holds, 1, self._now)
        return outcome_beside(algorithm, state, self._holds, wait, self._now)

    def wait_again(self, units: int) -> int | None:
        """Return the nanoseconds until *units* fit, without the checks before; None if never."""
        self._asked = 0
        return self.wait(units)

    @property
    def is_own(self) -> bool:
        """True if no other key shares this counter."""
        return self._group.place(self._key, self._now) == self._key

    @property
    def place(self) -> Place:
        """Where the last charge went."""
        return self._algorithm.place(self._state)

    def lasts(self, amount: int) -> int:
        """Return the nanoseconds after which *amount*, charged now, has no effect any more."""
        return self._algorithm.lasts(self._state, amount, self._now)

    def give_back(self, amount: int, place: Place) -> None:
        """Give *amount* back that was charged at *place*."""
        if amount and self._state is not None and self.is_own:
            self._change(self._algorithm.refund_at(self._state, amount, place, self._now))

    def close(self) -> None:
        if self._is_changed:
            entry = Entry(self._state, self._holds)
            self._group.save(self._key, self._kept, entry, self._now)


class Arithmetic(NamedTuple):
    """The algorithm of a limit, and the one that its counters are kept under.

    All callers of a queue share one counter, however long each would wait. Slots do not depend on
    how many there are: each part of the callers asks the same counter under a limit of its own.
    """

    asked: Algorithm[Any]
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
    """

    waits = False
    may_fail = False
    grants_leases = True
    publishes_values = True

    def __init__(self, *, clock: Clock | None = None, max_keys: int = DEFAULT_MAX_KEYS) -> None:
        if type(max_keys) is not int or max_keys < 1:
            raise OptionError(f"max_keys is {max_keys!r}; expected an integer of at least 1")
        self.clock: Clock = MonotonicClock() if clock is None else checked_clock(clock)
        self._room = Room(max_keys)
        self._rooms = [self._room, Room(max_keys), Room(max_keys), Room(max_keys)]
        self._ledgers = [ExpiringTable(Ledger, self._rooms[1]) for _ in range(SHARDS)]
        self._totals = [ExpiringTable(Totals, self._rooms[2]) for _ in range(SHARDS)]
        self._values = [ExpiringTable(Values, self._rooms[3]) for _ in range(SHARDS)]
        beside = zip(self._ledgers, self._totals, self._values, strict=True)
        self._shards = [Shard(self._room, each) for each in beside]
        self._sweep = Sweep(self._shards, self.clock())
        watch_forks(self)

    def after_fork(self) -> None:
        """Replace the locks, which threads of the parent may have held."""
        for room in self._rooms:
            room.after_fork()
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

    def beside(self) -> int:
        """Count the ledgers, totals and published values beside the counters."""
        return sum(len(each) for shard in self._shards for each in shard.beside)

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
            is_full = any(room.is_full for room in self._rooms)
            self._sweep.step(self.clock(), is_urgent=is_full)
        numbers = {hash(key) % SHARDS for key in keys_of(operation)}
        return cast("R", self._locked(operation, sorted(numbers, reverse=True)))

    def _locked(self, operation: Operation[Any], numbers: list[int]) -> Any:
        """Carry *operation* out with the shards *numbers* locked, the last of them first."""
        if numbers:
            with self._shards[numbers[-1]].lock:
                return self._locked(operation, numbers[:-1])
        now = self.clock()
        match operation:
            case Reset():
                return self._reset(operation)
            case GrantLease():
                return self._grant(operation, now)
            case MergeUsage():
                return self._merge(operation, now)
            case PublishValue():
                return publish(operation, self._values[hash(operation.key) % SHARDS], now)
            case _:
                return execute(operation, partial(self._open, now=now))

    def _reset(self, operation: Reset) -> None:
        for check in operation.checks:
            number = hash(check.key) % SHARDS
            for group in self._shards[number].groups_of(check.group):
                group.drop(check.key)
            self._ledgers[number].forget((check.group, check.key))

    def _grant(self, operation: GrantLease, now: int) -> LeaseGrant:
        refuse_undivided([operation.check.limit], "lend")
        ((counter, _),) = self._open((operation.check,), now)
        ledgers = self._ledgers[hash(operation.check.key) % SHARDS]
        return grant_lease(operation, counter, ledgers, now)

    def _merge(self, operation: MergeUsage, now: int) -> Outcomes:
        """Charge usage of another region.

        Counters that are in use stay under the limit they are kept under, whichever the other
        region has: to go back and forth would refill them at its pace, or age nothing.
        """
        refuse_undivided([check.limit for check in operation.checks], "absorb")
        opened = self._open(operation.checks, now, is_kept=True)
        for (counter, _), check in zip(opened, operation.checks, strict=True):
            totals = self._totals[hash(check.key) % SHARDS]
            counter.charge(new_usage(operation, check, totals, now))
            counter.close()
        pairs = zip(opened, operation.checks, strict=True)
        return tuple(c.outcome_under(arithmetic_of(check.limit).asked) for (c, _), check in pairs)

    def _open(
        self, checks: tuple[Check, ...], now: int, *, is_kept: bool = False
    ) -> list[tuple[Opened, int]]:
        """Open the counter of each check; checks of one counter share it.

        If *is_kept*, one that is in use stays under the limit that it is kept under.
        """
        by_place: dict[tuple[str, bool, str | int], Opened] = {}
        opened = []
        for check in checks:
            key, has_slots = check.key, isinstance(check.limit, Concurrency)
            asked, kept = arithmetic_of(check.limit)
            group = self._shards[hash(key) % SHARDS].group(check.group, has_slots=has_slots)
            place = (check.group, has_slots, group.place(key, now))
            counter = by_place.get(place)
            if counter is None:
                home = group.home_of(key) if is_kept else None
                if home is not None and home.used(key, now):
                    asked = kept = home.algorithm
                counter = by_place[place] = Opened(group, key, asked, kept, now)
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
