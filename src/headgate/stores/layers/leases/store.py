"""The store layer that serves hot keys from leases, and denials from memory."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from headgate.chance import chance
from headgate.clock import MonotonicClock
from headgate.errors import StoreError
from headgate.fork import watch_forks
from headgate.observability import METRICS
from headgate.runtime.background import BackgroundWork
from headgate.runtime.drivers import adrive, drive
from headgate.runtime.effects import Close, Interrupted, RunAll, Signal, Wait
from headgate.stores.base import Layer, Prepared, checks_at
from headgate.stores.layers.leases.lease_table import LeaseTable
from headgate.stores.operations import (
    Charge,
    Check,
    GrantLease,
    Hold,
    LeaseGrant,
    Refund,
    Reset,
    Settle,
    Take,
    TakeEach,
    TakeUpTo,
)
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.algorithms import Outcome
    from headgate.clock import Clock
    from headgate.observability.sketches import Heavy
    from headgate.runtime.effects import Effects
    from headgate.stores.base import Accuracies, Place, Store
    from headgate.stores.layers.leases.lease import Bound, LeaseGroup
    from headgate.stores.layers.leases.lease_table import LocalTake
    from headgate.stores.operations import Operation, Outcomes

    Binding = tuple[object, threading.Lock, LeaseGroup | None, Prepared | None]

R = TypeVar("R")

PATIENCE: Final = 0.1
"""Seconds to wait for a lease that another caller has requested; the store's deadline is sooner."""
MOST_AT_ONCE: Final = 16
"""Requests of one round of upkeep that are in flight together."""
LAST_ROUND: Final = 1.0
"""Seconds that a store which is closed waits for its upkeep to end."""
HOT_PER_SECOND: Final = 100
"""Units a second, in this process, from which on a key counts as hot."""
MOST_HOT: Final = 1000
SPREAD: Final = 15
"""Of prepared takes of exact limits, one of up to so many, at random, counts for the hot keys, and
stands for all since the one before. To count each took 2.6 of 9.5 us of a hit, with 10,000 keys."""

ROUND_TRIPS = METRICS.counter("lease_round_trips", "Requests to the store for prepaid leases.")
EXCHANGES = METRICS.counter("sync_exchanges", "Requests to the store for postpaid leases.")
SERVED = METRICS.counter("lease_served", "Units that were allowed from leases.")


@dataclass(slots=True, eq=False)
class InFlight:
    """A request for a lease that other callers wait for."""

    landed: Signal = field(default_factory=Signal)
    error: StoreError | None = None


class LeasedStore(Layer):
    """*inner*, with units of hot keys taken in advance where `set_accuracies` allows it.

    *clock* is the clock of the node, by which leases expire; only differences count.
    With `keeps=False` nothing is done in the background: call `keep` regularly.
    """

    def __init__(self, inner: Store, *, clock: Clock | None = None, keeps: bool = True) -> None:
        super().__init__(inner)
        found = clock or inner.clock
        is_usual = found is None or type(found) is MonotonicClock
        self._now: Clock = time.monotonic_ns if found is None or is_usual else found
        self._table = LeaseTable(_new_holder())
        self._keeps = keeps
        self._upkeep = BackgroundWork(
            self, "headgate-leases", self._now, LeasedStore._due_ns, LeasedStore._keep
        )
        self._start_over()
        watch_forks(self)
        gauge = METRICS.gauge
        gauge("leases_held", "Counters that this process has a lease of.", self._table.__len__)
        gauge("lease_units_held", "Units that this process has leases of.", self.units_held)
        gauge("overshoot_bound", "Units by which limits may be overshot.", self._overshoot)
        gauge("hot_keys", "Keys with a high demand in this process.", self._hot_count)

    def after_fork(self) -> None:
        """Forget the leases of the parent process, and its threads."""
        self._table.after_fork(_new_holder())
        self._upkeep.after_fork()
        self._start_over()

    def _start_over(self) -> None:
        self._lock = threading.Lock()
        self._in_flight: dict[GrantLease, InFlight] = {}
        self._counted = 0

    def set_accuracies(self, accuracies: Accuracies) -> None:
        self.inner.set_accuracies(accuracies)
        known = accuracies if self.grants_leases else {}
        own = {group: how for group, how in known.items() if not how.is_always_asked}
        with self._lock:
            self._table.set_accuracies(own)

    def hot_keys(self, count: int = 10) -> list[Heavy]:
        """The *count* hottest keys of this process."""
        return self._table.demand.heavy.top(count, self._now())

    def bounds(self) -> list[Bound]:
        """The overshoot that each group may have."""
        with self._lock:
            return self._table.bounds()

    def units_held(self) -> int:
        """The units of all leases that are not used."""
        with self._lock:
            return self._table.units_held()

    def keep(self) -> float | None:
        """Return, report and renew what is due; the seconds until the next time, None: never."""
        return drive(self._keep())

    async def akeep(self) -> float | None:
        """Do what `keep` does, in an event loop."""
        return await adrive(self._keep())

    def effects(self, operation: Operation[R]) -> Effects[R]:
        if self._table.groups.accuracies:
            if isinstance(operation, Take) and operation.consume:
                if any(self._table.manages(check.group) for check in operation.checks):
                    return cast("R", (yield from self._take(operation)))
            elif isinstance(operation, TakeEach):
                return cast("R", (yield from self._take_each(operation)))
        takes = operation.takes if isinstance(operation, TakeEach) else (operation,)
        for take in takes:
            if isinstance(take, TakeUpTo) or (isinstance(take, Take) and take.consume):
                self._count_demand(take.checks)
        try:
            return (yield from self.inner.effects(operation))
        finally:
            self._invalidate(operation)

    def prepare(self, places: Sequence[Place]) -> Prepared:
        kept = tuple(places)
        bound = self._bind(kept)
        groups, clock, decide = self._table.groups, self._now, self._table.decide
        skipped = gap = 0

        def now(keys: Sequence[str], costs: Sequence[int]) -> Outcomes | None:
            nonlocal bound
            if bound[0] is not groups.version:
                bound = self._bind(kept)
            _, lock, group, inner = bound
            if inner is not None:
                return None
            now_ns = clock()
            with lock:
                if group is None:
                    return self._table.serve(checks_at(kept, keys, costs), now_ns)
                outcome = decide(group, keys[0], costs[0], now_ns)
            return None if outcome is None else (outcome,)

        def effects(keys: Sequence[str], costs: Sequence[int]) -> Effects[Outcomes]:
            nonlocal bound, skipped, gap
            if bound[0] is not groups.version:
                bound = self._bind(kept)
            inner = bound[3]
            if inner is None:
                return self._take(Take(checks_at(kept, keys, costs)))
            if skipped < gap:
                skipped += 1
            else:
                self._count_demand(checks_at(kept, keys, costs), hits=skipped + 1)
                skipped, gap = 0, int(chance() * SPREAD)
            return inner.effects(keys, costs)

        # Without a lease, now or later, `effects` decides: a handle of exact limits has no `now`.
        return Prepared(effects, now if bound[3] is None else None)

    def _bind(self, places: tuple[Place, ...]) -> Binding:
        """The parts of a handle for *places*, in one tuple: no thread sees those of two versions.

        The version, the lock, the group if there is one place, and the handle of the inner store
        if nothing is decided here.
        """
        version, lock = self._table.groups.version, self._lock
        inner = self.inner.prepare(places)  # raises if the store cannot keep a limit
        if not any(self._table.manages(name) for name, _ in places):
            return version, lock, None, inner
        if len(places) > 1:
            return version, lock, None, None
        with lock:
            group = self._table.group(*places[0])
        return version, lock, group, None if group else inner

    def closing(self) -> Effects[None]:
        with self._lock:
            self._keeps = False
            requests = self._table.close(self._now())
        yield from self._upkeep.closing(LAST_ROUND)
        yield from self._send(requests)
        yield Close(self.inner)

    # Takes.

    def _take(self, take: Take) -> Effects[Outcomes]:
        """Take all checks of *take* or none: here, in part here, or in the store."""
        requested: set[tuple[str, str]] = set()
        is_patient = True
        while True:
            local = self._begin(take.checks)
            if not local.rest:
                return local.all_outcomes()
            step = None
            if is_patient and not local.is_denied:
                step = self._next_request(local, take.checks, requested)
            if step is None:
                return (yield from self._take_rest(take, local))
            self._put_back(local)
            if isinstance(step, InFlight):
                is_patient = yield from _landed(step)
                continue
            is_taken = step.check is take.checks[0]
            try:
                outcome = yield from self._exchange(step)
            except Interrupted as caught:
                reply = (caught.reply,) if is_taken and caught.reply is not None else None
                raise Interrupted(reply, caught.error) from caught.__cause__
            if is_taken:
                return (outcome,)

    def _take_rest(self, take: Take, local: LocalTake) -> Effects[Outcomes]:
        """Take in the store what *local* left over."""
        rest, sent_ns = _rest(take, local), self._now()
        outcomes, interrupt = yield from self._run(rest, [local])
        together = self._merge(local, rest, outcomes, sent_ns)
        if interrupt is not None:
            raise Interrupted(together) from interrupt.__cause__
        return together

    def _take_each(self, operation: TakeEach) -> Effects[tuple[Outcomes | StoreError, ...]]:
        """Take each by itself, with one round trip for all that need the store.

        Leases for keys with a high demand are requested afterwards, in the background.
        """
        started = [self._begin(one.checks) if one.consume else None for one in operation.takes]
        needed = [
            take if local is None else _rest(take, local)
            for take, local in zip(operation.takes, started, strict=True)
            if local is None or local.rest
        ]
        replies: tuple[Outcomes | StoreError, ...] = ()
        interrupt: Interrupted | None = None
        sent_ns = self._now()
        if needed:
            begun = [local for local in started if local is not None]
            replies, interrupt = yield from self._run(TakeEach(tuple(needed)), begun)
        pairs = iter(zip(needed, replies, strict=True))
        results = tuple(
            [
                local.all_outcomes()
                if local is not None and not local.rest
                else self._merge_one(local, *next(pairs), sent_ns)
                for local in started
            ]
        )
        if interrupt is not None:
            raise Interrupted(results) from interrupt.__cause__
        self._schedule_upkeep()
        return results

    def _run(
        self, operation: Operation[R], begun: Sequence[LocalTake]
    ) -> Effects[tuple[R, Interrupted | None]]:
        """The reply of the store, and the interruption that came with it.

        Without a reply what was *begun* here is undone.
        """
        try:
            return (yield from self.inner.effects(operation)), None
        except BaseException as caught:
            if isinstance(caught, Interrupted) and caught.reply is not None:
                return caught.reply, caught
            for local in begun:
                self._put_back(local)
            raise

    def _merge_one(
        self, local: LocalTake | None, rest: Take, reply: Outcomes | StoreError, sent_ns: int
    ) -> Outcomes | StoreError:
        """The result of one take of several, of which the store decided *rest*."""
        if local is None:
            return reply
        if isinstance(reply, StoreError):
            self._put_back(local)
            return reply
        if all(one.allowed for one in reply):
            now_ns = self._now()
            with self._lock:
                for check in rest.checks:
                    self._table.request_later(check, now_ns)
        return self._merge(local, rest, reply, sent_ns)

    def _merge(self, local: LocalTake, rest: Take, outcomes: Outcomes, sent_ns: int) -> Outcomes:
        """The outcomes of a take of which the store decided *rest*."""
        now_ns = self._now()
        with self._lock:
            return self._table.merge(local, rest.checks, outcomes, sent_ns, now_ns)

    def _begin(self, checks: Sequence[Check]) -> LocalTake:
        now_ns = self._now()
        with self._lock:
            return self._table.begin(checks, now_ns)

    def _put_back(self, local: LocalTake) -> None:
        with self._lock:
            self._table.put_back(local.taken)

    def _next_request(
        self, local: LocalTake, checks: Sequence[Check], requested: set[tuple[str, str]]
    ) -> GrantLease | InFlight | None:
        """The lease to request, or to wait for, before the rest of *checks* is taken.

        A check that stands alone is taken with the lease. Of several each gets one request.
        """
        is_alone = len(checks) == 1
        now_ns = self._now()
        for check in local.rest:
            place = check.group, check.key
            if check.cost <= 0 or place in requested:
                continue
            with self._lock:
                pending = self._table.pending(check)
                if pending is not None:
                    in_flight = self._in_flight.get(pending)
                    if in_flight is not None:
                        return in_flight
                    continue
                request = self._table.request(check, now_ns, takes=is_alone)
                if request is not None:
                    self._in_flight[request] = InFlight()
                    requested.add(place)
                    return request
        return None

    # Requests for leases.

    def _exchange(self, request: GrantLease) -> Effects[Outcome]:
        """Request a lease, and wake the callers that wait for it; the outcome of the check."""
        sent_ns = self._now()
        try:
            grant = yield from self.inner.effects(request)
        except Interrupted as interrupt:
            outcome = self._settle(request, interrupt.reply, sent_ns)
            raise Interrupted(outcome, interrupt.error) from interrupt.__cause__
        except BaseException as error:
            self._settle(request, error, sent_ns)
            raise
        outcome = self._settle(request, grant, sent_ns)
        self._schedule_upkeep()
        return outcome or grant.outcome

    def _send(self, requests: Sequence[GrantLease]) -> Effects[None]:
        """Send several requests; after a failure the rest counts as lost."""
        is_gone = False
        for begin in range(0, len(requests), MOST_AT_ONCE):
            some = requests[begin : begin + MOST_AT_ONCE]
            sent_ns = self._now()
            results: Iterable[Any] = [None] * len(some)
            try:
                if not is_gone:
                    results = yield RunAll(self.inner, some)
            except Interrupted as interrupt:
                results = interrupt.reply or results
                for request in requests[begin + MOST_AT_ONCE :]:
                    self._settle(request, None, sent_ns)
                raise
            finally:
                for request, result in zip(some, results, strict=True):
                    is_gone = is_gone or not isinstance(result, LeaseGrant)
                    self._settle(request, result, sent_ns)

    def _settle(
        self, request: GrantLease, result: LeaseGrant | BaseException | None, sent_ns: int
    ) -> Outcome | None:
        """Record the *result* of *request*, which is lost unless it is a grant.

        Returns the outcome of its check, if that is known.
        """
        (ROUND_TRIPS if request.is_charged else EXCHANGES).add()
        now_ns = self._now()
        outcome: Outcome | None = None
        with self._lock:
            if isinstance(result, LeaseGrant):
                outcome = self._table.granted(request, result, sent_ns, now_ns)
            else:
                self._table.lost(request, now_ns)
            total = self._table.demand.served
            served, self._counted = total - self._counted, total
            in_flight = self._in_flight.pop(request, None)
        if served:
            SERVED.add(served)
        if in_flight is not None:
            if not isinstance(result, LeaseGrant):
                cut_off = StoreError("the exchange with the store was cut off")
                in_flight.error = result if isinstance(result, StoreError) else cut_off
            in_flight.landed.set()
        return outcome

    # Upkeep in the background.

    def _keep(self) -> Effects[float | None]:
        now_ns = self._now()
        with self._lock:
            requests = self._table.due(now_ns)
        yield from self._send(requests)
        with self._lock:
            due_ns = self._table.next_due_ns()
        return None if due_ns is None else max(0, due_ns - self._now()) / SECOND

    def _due_ns(self) -> int | None:
        """The time of the next round of upkeep; None: there is none."""
        with self._lock:
            return self._table.next_due_ns() if self._keeps else None

    def _schedule_upkeep(self) -> None:
        """Have upkeep run when it is due."""
        due_ns = self._due_ns()
        if due_ns is not None:
            self._upkeep.start(due_ns)

    # Hot keys, remembered denials, gauges.

    def _count_demand(self, checks: Sequence[Check], *, hits: int = 1) -> None:
        """Count the demand for keys that are exact, which may be hot as well, of a take that stands
        for *hits*."""
        now_ns, add = self._now(), self._table.demand.heavy.add
        for check in checks:
            if check.cost > 0:
                add(check.group, check.key, check.cost * hits, now_ns)

    def _invalidate(self, operation: Operation[Any]) -> None:
        """Forget what *operation* may have made untrue."""
        if not isinstance(operation, Charge | Hold | Refund | Reset | Settle):
            return
        change = self._table.reset if isinstance(operation, Reset) else self._table.invalidate
        with self._lock:
            for check in operation.checks:
                change(check.group, check.key)

    def _hot_count(self) -> float:
        return sum(one.per_second >= HOT_PER_SECOND for one in self.hot_keys(MOST_HOT))

    def _overshoot(self) -> float:
        return sum(one.bound for one in self.bounds())


def _landed(in_flight: InFlight) -> Effects[bool]:
    """Wait for a lease that another caller has requested; False if that takes too long."""
    has_landed: bool = yield Wait(in_flight.landed, PATIENCE)
    if has_landed and in_flight.error is not None:
        # The request of this caller was never sent.
        raise in_flight.error.copied(is_undone=True) from in_flight.error
    return has_landed


def _rest(take: Take, local: LocalTake) -> Take:
    """The part of *take* that the store decides: all of it if a check is denied here, as only the
    store has the figures of the others."""
    if local.is_denied or len(local.rest) == len(take.checks):
        return take
    return Take(local.rest, lease=take.lease)


def _new_holder() -> str:
    return secrets.token_hex(6)
