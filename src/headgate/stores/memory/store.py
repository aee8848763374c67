"""The store inside the process: exact, thread-safe, bounded."""

from __future__ import annotations

import threading
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from headgate.algorithms import ConcurrencyAlgorithm, LeakyQueueAlgorithm, algorithm_for
from headgate.clock import Clock, MonotonicClock, clock_origin
from headgate.errors import OptionError
from headgate.fork import watch_forks
from headgate.limits import Concurrency, LeakyQueue
from headgate.stores.base import (
    Store,
    refuse_concurrency,
    refuse_undivided,
)
from headgate.stores.counter import outcomes_of, take_all
from headgate.stores.memory.counters import Counters, Group, Room, Sweep
from headgate.stores.memory.lending import Lending
from headgate.stores.memory.tables import Margin, Sharing
from headgate.stores.memory.transactions import Costs, Opened
from headgate.stores.operations import (
    CancelQueued,
    Charge,
    Check,
    GrantLease,
    Hold,
    LeaseGrant,
    MergeUsage,
    Operation,
    Outcomes,
    PublishValue,
    Refund,
    ReleaseSlot,
    RenewSlot,
    Reset,
    Settle,
    Take,
    TakeEach,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.algorithms import Algorithm
    from headgate.limits import Limit


R = TypeVar("R")


# Where queues are kept: one counter, however long each of those who ask would wait.


def queue_under(limit: LeakyQueue, origin: int) -> tuple[LeakyQueueAlgorithm, LeakyQueue]:
    """The arithmetic to ask a queue by, and the limit that it is kept under."""
    patient = limit.patient
    return _kept(patient, origin).asked_under(limit), patient


@lru_cache(maxsize=1024)
def _kept(patient: LeakyQueue, origin: int) -> LeakyQueueAlgorithm:
    return LeakyQueueAlgorithm(patient, origin)


# Where slots are kept: in one place, whichever limit they are asked for under.


@lru_cache(maxsize=4096)
def slots_under(limit: Concurrency) -> tuple[ConcurrencyAlgorithm, Concurrency]:
    """The arithmetic of *limit*, and the limit under which its counters are kept.

    Leases do not depend on how many slots there are and whose they are. Each part of the callers,
    and each class of requests, asks the same counter under a limit of its own; to carry it over
    for each of them would take longer than all the rest.
    """
    return ConcurrencyAlgorithm(limit), Concurrency(1, limit.ttl)


DEFAULT_MAX_KEYS: Final = 1_000_000


class MemoryStore(Store):
    """Counters in this process, shared by all its threads and event loops.

    Idle counters vanish; at most *max_keys* are kept. When that many are in use, further keys
    share a fixed number of counters until some are idle: nobody's counter is ever dropped while
    it says anything.
    """

    waits = False
    may_fail = False
    grants_leases = True
    publishes_values = True

    def __init__(self, *, clock: Clock | None = None, max_keys: int = DEFAULT_MAX_KEYS) -> None:
        if type(max_keys) is not int or max_keys < 1:
            raise OptionError(f"max_keys is {max_keys!r}; expected an integer of at least 1")
        self._clock: Clock = MonotonicClock() if clock is None else clock
        self.clock: Clock = self._clock
        now = self._clock()
        if type(now) is not int:
            raise OptionError(f"the clock says {now!r}; expected a function like time.time_ns")
        self._origin = clock_origin(self._clock)
        self._room = Room(max_keys, now)
        self._groups: dict[str, Group] = {}
        self._sweep = Sweep(self._drop, self._origin)
        self._lending = Lending(max_keys)
        self._sharing = Sharing(max_keys, self._watch)
        self.after_fork()
        watch_forks(self)
        self._verbs: dict[type, Callable[[Any, int], Any]] = {
            Take: self._take,
            TakeEach: self._take_each,
            Hold: self._hold,
            Settle: self._settle,
            Charge: self._charge,
            Refund: self._refund,
            Reset: self._reset,
            RenewSlot: self._renew,
            ReleaseSlot: self._leave,
            CancelQueued: self._vacate,
            GrantLease: self._lend,
            MergeUsage: self._absorb,
            PublishValue: self._sharing.share,
        }

    def after_fork(self) -> None:
        """Replace the lock: a thread of the parent process may have had it."""
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        """How many counters there are, idle ones that no call has swept away yet included."""
        with self._lock:
            groups = list(self._groups.values())
            return sum(len(counters) for group in groups for counters in group.values())

    def beside(self) -> int:
        """How many ledgers, pots, totals and things that are told stand beside the counters."""
        with self._lock:
            return len(self._lending) + len(self._sharing)

    def groups(self) -> list[str]:
        """The names of all groups that have counters."""
        with self._lock:
            return list(self._groups)

    def keys_in(self, group: str, *, most: int) -> list[str]:
        """Up to *most* keys with a counter of their own in *group*, idle ones among them."""
        with self._lock:
            tables = self._groups.get(group, {}).values()
            return list(islice((key for table in tables for key in table.own_keys()), most))

    def used_in(self, group: str, key: str) -> int:
        """What is used and held now of the counter of *key* in *group*; nothing is changed."""
        with self._lock:
            now = self._clock()
            return sum(table.used(key, now) for table in self._groups.get(group, {}).values())

    def run(self, operation: Operation[R]) -> R:
        verb = self._verbs[type(operation)]
        with self._lock:
            return cast("R", verb(operation, self._clock()))

    def _take_each(self, operation: TakeEach, now: int) -> tuple[Outcomes, ...]:
        return tuple(self._take(take, now) for take in operation.takes)

    def _take(self, operation: Take, now: int) -> Outcomes:
        opened = self._open(operation.checks, now)
        return take_all(opened, consume=operation.consume, lease=operation.lease)

    def _hold(self, operation: Hold, now: int) -> Outcomes:
        opened = self._open(operation.checks, now)
        refuse_concurrency([check.limit for check in operation.checks], "reserve")
        waits = [counter.wait(cost) for counter, cost in opened]
        if waits.count(0) == len(waits):
            for counter, cost in opened:
                counter.hold(operation.name, cost, operation.ttl_ns)
                counter.close()
        return outcomes_of(opened, waits)

    def _settle(self, operation: Settle, now: int) -> bool:
        was_open = True
        for counter, cost in self._open(operation.checks, now):
            late = operation.charge_lapsed
            was_open &= counter.settle(operation.name, cost, charge_lapsed=late)
            counter.close()
        return was_open

    def _charge(self, operation: Charge, now: int) -> Outcomes:
        opened = self._open(operation.checks, now)
        refuse_concurrency([check.limit for check in operation.checks], "charge")
        for counter, cost in opened:
            counter.charge(cost)
            counter.close()
        return tuple(counter.outcome_of_one() for counter, _ in opened)

    def _refund(self, operation: Refund, now: int) -> Outcomes:
        opened = self._open(operation.checks, now)
        refuse_concurrency([check.limit for check in operation.checks], "refund")
        for counter, cost in opened:
            counter.refund(cost)
            counter.close()
        return tuple(counter.outcome_of_one() for counter, _ in opened)

    def _reset(self, operation: Reset, now: int) -> None:
        for check in operation.checks:
            limit = check.limit.patient if isinstance(check.limit, LeakyQueue) else check.limit
            self._counters(check.group, limit, now).forget(check.key)
            self._lending.forget(check)

    def _renew(self, operation: RenewSlot, now: int) -> bool:
        opened = [counter for counter, _ in self._open(operation.checks, now)]
        has_all = all(counter.has_slot(operation.lease) for counter in opened)
        if has_all:
            for counter in opened:
                counter.renew(operation.lease)
                counter.close()
        return has_all

    def _leave(self, operation: ReleaseSlot, now: int) -> bool:
        had_all = True
        for counter, _ in self._open(operation.checks, now):
            had_all &= counter.has_slot(operation.lease)
            counter.leave(operation.lease)
            counter.close()
        return had_all

    def _vacate(self, operation: CancelQueued, now: int) -> bool:
        opened = self._open(operation.checks, now)
        had_all = True
        for (counter, cost), turn_ns in zip(opened, operation.turns_ns, strict=True):
            had_all &= counter.vacate(turn_ns, cost)
            counter.close()
        return had_all

    def _lend(self, operation: GrantLease, now: int) -> LeaseGrant:
        ((counter, _),) = self._open((operation.check,), now)
        refuse_undivided([operation.check.limit], "lend")
        self._watch(self._lending.ledgers, now)
        return self._lending.lend(operation, counter, now)

    def _absorb(self, operation: MergeUsage, now: int) -> Outcomes:
        """Counters that are in use stay under the limit they are kept under, whatever another
        region has by now: to go back and forth would refill them at its pace, or age nothing."""
        refuse_undivided([check.limit for check in operation.checks], "absorb")
        opened = self._open(operation.checks, now, is_kept=True)
        self._watch(self._lending.totals, now)
        for (counter, _), check in zip(opened, operation.checks, strict=True):
            counter.charge(self._lending.absorb(operation, check, now))
            counter.close()
        limits = [check.limit for check in operation.checks]
        return tuple(
            counter.told_as(algorithm_for(limit, self._origin))
            for (counter, _), limit in zip(opened, limits, strict=True)
        )

    def _watch(self, margin: Margin[Any], now: int) -> None:
        """Have what stands beside counters gone through as they are."""
        if not margin.is_watched:
            margin.is_watched = True
            self._sweep.add(margin, now)

    def _open(self, checks: tuple[Check, ...], now: int, *, is_kept: bool = False) -> Costs:
        """The counter of each check and its cost; checks of one counter share it. If *is_kept*,
        one that is in use stays under the limit that it is kept under."""
        self._sweep.step(now)
        by_place: dict[tuple[str, str | int], Opened] = {}
        opened = []
        for check in checks:
            limit = check.limit
            algorithm: Algorithm[Any] | None = None
            if isinstance(limit, Concurrency):
                algorithm, limit = slots_under(limit)
            elif isinstance(limit, LeakyQueue):
                algorithm, limit = queue_under(limit, self._origin)
            counters = self._counters(check.group, limit, now)
            if is_kept:
                counters = counters.home_of(check.key, now)
            place = (check.group, counters.place_of(check.key))
            counter = by_place.get(place)
            if counter is None:
                counter = by_place[place] = Opened(counters, check.key, now, algorithm)
            opened.append((counter, check.cost))
        return opened

    def _counters(self, name: str, limit: Limit, now: int) -> Counters:
        group = self._groups.get(name)
        counters = None if group is None else group.get(limit)
        if counters is None:
            algorithm = algorithm_for(limit, self._origin)
            group = self._groups.setdefault(name, {})
            counters = group[limit] = Counters(algorithm, name, group, self._room)
            self._sweep.add(counters, now)
        return counters

    def _drop(self, counters: Counters | Margin[Any]) -> None:
        """Forget a table that nobody uses."""
        if isinstance(counters, Margin):
            counters.is_watched = False
            return
        group = self._groups[counters.name]
        del group[counters.algorithm.limit]
        if not group:
            del self._groups[counters.name]
