"""The store layer that serves hot keys from leases, and denials from memory."""

from __future__ import annotations

import secrets
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from headgate.clock import MonotonicClock
from headgate.errors import StoreError
from headgate.fork import watch_forks
from headgate.observability import MEASURES
from headgate.runtime.drivers import Background, adrive, drive
from headgate.runtime.effects import Close, Interrupted, RunAll, Signal, Wait
from headgate.stores.base import Layer, Prepared, checks_at
from headgate.stores.layers.leases.lease_table import MOST_LOANS, Book
from headgate.stores.operations import (
    Check,
    GrantLease,
    LeaseGrant,
    Refund,
    Reset,
    Settle,
    Take,
    TakeEach,
)
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from headgate.algorithms import Outcome
    from headgate.clock import Clock
    from headgate.observability.sketches import Heavy
    from headgate.runtime.effects import Effects
    from headgate.stores.base import Accuracies, Place, Store
    from headgate.stores.layers.leases.served import Begun, Bound
    from headgate.stores.operations import Operation, Outcomes

R = TypeVar("R")

PATIENCE: Final = 0.1
"""Seconds to wait for a lease that another caller has requested; the store's deadline is sooner."""
SHORTEST_PAUSE: Final = 0.001
"""Seconds between two rounds of upkeep at least."""
MOST_AT_ONCE: Final = 16
"""Exchanges of one round of upkeep that are in flight together."""
LAST_ROUND: Final = 1.0
"""Seconds that a store which is closed waits for its upkeep to end."""
HOT_PER_SECOND: Final = 100
"""Units a second, in this process, from which on a key counts as hot."""
MOST_HOT: Final = 1000

ROUND_TRIPS = MEASURES.counter("lease_round_trips", "Exchanges with the store about leases.")
EXCHANGES = MEASURES.counter("sync_exchanges", "Exchanges with the store about licences.")
SERVED = MEASURES.counter("lease_served", "Units that were admitted from leases and licences.")
CACHED = MEASURES.counter("denials_from_cache", "Requests refused without asking the store.")


class InFlight:
    """A request for a lease that other callers wait for."""

    __slots__ = ("error", "landed")

    def __init__(self) -> None:
        self.landed = Signal()
        self.error: StoreError | None = None


class LeasedStore(Layer):
    """*inner*, with units of hot keys taken in advance where `set_accuracies` allows it.

    *clock* is the clock of the node, which says how long a lease lasts; only differences count.
    *holder* is the name under which *inner* knows this node. At most *most_loans* counters have a
    lease at a time. With `keeps=False` nothing is done in the background: call `keep` now and then.
    """

    def __init__(
        self,
        inner: Store,
        *,
        clock: Clock | None = None,
        holder: str | None = None,
        most_loans: int | None = None,
        keeps: bool = True,
    ) -> None:
        super().__init__(inner)
        found = clock or inner.clock
        is_usual = found is None or type(found) is MonotonicClock
        self._now: Clock = time.monotonic_ns if found is None or is_usual else found
        self._table = Book(holder or _new_holder(), most_loans=most_loans or MOST_LOANS)
        self._is_idle = True
        self._keeps = keeps
        self._counted = 0
        self.after_fork(is_new=True)
        watch_forks(self)
        gauge = MEASURES.gauge
        gauge("leases_held", "Counters of which units are lent to this process.", self._held)
        gauge("lease_units_held", "Units lent to this process.", self._units_held)
        gauge("overshoot_bound", "Units by which limits may be overshot.", self._overshoot)
        gauge("hot_keys", "Keys that much is asked of in this process.", self._hot_count)

    def after_fork(self, *, is_new: bool = False) -> None:
        """Forget the leases of the parent process, and its threads."""
        self._lock = threading.Lock()
        self._in_flight: dict[GrantLease, InFlight] = {}
        self._upkeep: object | None = None
        self._bell = Signal()
        self._wakes_ns = 0
        self._ended = Signal()
        if not is_new:
            self._counted = 0
            self._table.after_fork(_new_holder())

    def set_accuracies(self, accuracies: Accuracies) -> None:
        self.inner.set_accuracies(accuracies)
        known = accuracies if self.grants_leases else {}
        own = {group: how for group, how in known.items() if not how.is_always_asked}
        with self._lock:
            self._table.adopt(own)
            self._is_idle = not own

    def hot_keys(self, count: int = 10) -> list[Heavy]:
        """The *count* hottest keys of this process."""
        return self._table.heavy.top(count, self._now())

    def bounds(self) -> list[Bound]:
        """The overshoot that each group may have."""
        with self._lock:
            return self._table.bounds()

    def keep(self) -> float | None:
        """Return and report what is due; in how many seconds to call again, None: not at all."""
        return drive(self._keep())

    async def akeep(self) -> float | None:
        """Do what `keep` does, in an event loop."""
        return await adrive(self._keep())

    def effects(self, operation: Operation[R]) -> Effects[R]:
        if isinstance(operation, Take) and operation.consume:
            if self._governs(operation.checks):
                return cast("R", (yield from self._take(operation)))
        elif isinstance(operation, TakeEach) and not self._is_idle:
            return cast("R", (yield from self._take_each(operation)))
        self._notice(operation)
        reply = yield from self.inner.effects(operation)
        self._invalidate(operation)
        return reply

    def prepare(self, places: Sequence[Place]) -> Prepared:
        inner, kept = self.inner.prepare(places), tuple(places)
        inner_take, inner_atake = inner.take, inner.atake
        groups = [group for group, _ in kept]
        governs = self._table.governs

        def served_here(keys: Sequence[str], costs: Sequence[int]) -> Outcomes | Take | None:
            """The outcomes; or the take, if the store is needed; None: nothing is leased."""
            if self._is_idle or not any(map(governs, groups)):
                for group, key, cost in zip(groups, keys, costs, strict=True):
                    self._notice_hit(group, key, cost)
                return None
            checks = checks_at(kept, keys, costs)
            with self._lock:
                served = self._table.serve(checks, self._now())
            if served is None:
                return Take(checks)
            outcomes = tuple([one.outcome for one in served])
            if not all(one.allowed for one in outcomes):
                CACHED.add()
            return outcomes

        def take(keys: Sequence[str], costs: Sequence[int]) -> Outcomes:
            found = served_here(keys, costs)
            if found is None:
                return inner_take(keys, costs)
            return drive(self._take(found)) if isinstance(found, Take) else found

        def atake(keys: Sequence[str], costs: Sequence[int]) -> Outcomes | Awaitable[Outcomes]:
            found = served_here(keys, costs)
            if found is None:
                return inner_atake(keys, costs)
            return adrive(self._take(found)) if isinstance(found, Take) else found

        return Prepared(take, atake if self.waits else take)

    def closing(self) -> Effects[None]:
        with self._lock:
            self._is_idle = True
            self._keeps = False
            lends = self._table.close(self._now())
            runs, ended = self._upkeep is not None, self._ended
            self._bell.set()
        if runs:
            yield Wait(ended, LAST_ROUND)
        yield from self._send(lends)
        yield Close(self.inner)

    # Takes.

    def _take(self, take: Take) -> Effects[Outcomes]:
        """Take all checks of *take* or none: here, in part here, or in the store."""
        requested: set[tuple[str, str]] = set()
        is_patient = True
        while True:
            begun = self._begin(take.checks)
            if not begun.rest:
                return tuple([one.outcome for one in begun.served if one is not None])
            if is_patient and not begun.is_refused:
                step = self._request(begun, take.checks, requested)
                if step is not None:
                    self._put_back(begun)
                    if isinstance(step, InFlight):
                        is_patient = yield from _landed(step)
                        continue
                    is_taken = step.check is take.checks[0]
                    try:
                        grant = yield from self._exchange(step)
                    except Interrupted as caught:
                        reply = (caught.reply.outcome,) if caught.reply and is_taken else None
                        raise Interrupted(reply) from caught.__cause__
                    if is_taken:
                        return (grant.outcome,)
                    continue
            return (yield from self._take_rest(take, begun))

    def _take_rest(self, take: Take, begun: Begun) -> Effects[Outcomes]:
        """Take in the store what *begun* left over."""
        rest, sent_ns = _rest(take, begun), self._now()
        interrupt: Interrupted | None = None
        try:
            outcomes = yield from self.inner.effects(rest)
        except Interrupted as caught:
            if caught.reply is None:
                self._put_back(begun)
                raise
            interrupt, outcomes = caught, caught.reply
        except BaseException:
            self._put_back(begun)
            raise
        is_taken = all(one.allowed for one in outcomes)
        if not is_taken:
            self._put_back(begun)
            self._note(rest.checks, outcomes, sent_ns)
        together = _together(begun, outcomes, is_taken=is_taken)
        if interrupt is not None:
            raise Interrupted(together) from interrupt.__cause__
        return together

    def _take_each(self, operation: TakeEach) -> Effects[tuple[Outcomes | StoreError, ...]]:
        """Take each by itself, with one round trip for all that need the store.

        Leases for what is asked for often are requested afterwards, in the background.
        """
        started = [self._begin(one.checks) if one.consume else None for one in operation.takes]
        needed = [
            take if begun is None else _rest(take, begun)
            for take, begun in zip(operation.takes, started, strict=True)
            if begun is None or begun.rest
        ]
        replies: tuple[Outcomes | StoreError, ...] = ()
        sent_ns = self._now()
        try:
            if needed:
                replies = yield from self.inner.effects(TakeEach(tuple(needed)))
        except BaseException:
            for begun in started:
                if begun is not None and begun.rest:
                    self._put_back(begun)
            raise
        pairs = iter(zip(needed, replies, strict=True))
        results = tuple(
            [
                tuple([one.outcome for one in begun.served if one is not None])
                if begun is not None and not begun.rest
                else self._merged(begun, *next(pairs), sent_ns)
                for begun in started
            ]
        )
        yield from self._wake()
        return results

    def _merged(
        self, begun: Begun | None, taken: Take, reply: Outcomes | StoreError, sent_ns: int
    ) -> Outcomes | StoreError:
        """The result of a take of which the store decided *taken*, the rest."""
        if begun is None:
            return reply
        is_taken = not isinstance(reply, StoreError) and all(one.allowed for one in reply)
        if not is_taken:
            self._put_back(begun)
        if isinstance(reply, StoreError):
            return reply
        self._note(taken.checks, reply, sent_ns)
        if is_taken:
            now_ns = self._now()
            with self._lock:
                for check in taken.checks:
                    if check.cost > 0:
                        self._table.borrow_soon(check, now_ns)
        return _together(begun, reply, is_taken=is_taken)

    def _begin(self, checks: Sequence[Check]) -> Begun:
        now_ns = self._now()
        with self._lock:
            begun = self._table.begin(checks, now_ns)
        if begun.is_refused:
            CACHED.add()
        return begun

    def _put_back(self, begun: Begun) -> None:
        with self._lock:
            self._table.put_back(begun.taken)

    def _request(
        self, begun: Begun, checks: Sequence[Check], requested: set[tuple[str, str]]
    ) -> GrantLease | InFlight | None:
        """The lease to request, or to wait for, before the rest of *checks* is taken.

        A check that stands alone is taken with the lease. Of several each gets one request.
        """
        is_alone = len(checks) == 1
        for check in begun.rest:
            place = check.group, check.key
            if check.cost > 0 and place not in requested and self._table.governs(check.group):
                step = self._request_for(check, takes=is_alone)
                if not is_alone and isinstance(step, GrantLease):
                    requested.add(place)
                if step is not None:
                    return step
        return None

    def _request_for(self, check: Check, *, takes: bool) -> GrantLease | InFlight | None:
        now_ns = self._now()
        with self._lock:
            asking = self._table.asking(check)
            if asking is not None:
                return self._in_flight.get(asking)
            lend = self._table.ask(check, now_ns, takes=takes)
            if lend is not None:
                self._in_flight[lend] = InFlight()
            return lend

    # Exchanges with the store.

    def _exchange(self, lend: GrantLease) -> Effects[LeaseGrant]:
        """Request a lease, and wake the callers that wait for it."""
        sent_ns = self._now()
        grant: LeaseGrant | None = None
        failure: StoreError | None = None
        try:
            grant = yield from self.inner.effects(lend)
        except StoreError as error:
            failure = error
            raise
        except Interrupted as interrupt:
            grant = interrupt.reply
            raise
        finally:
            self._settle(lend, grant, failure, sent_ns)
        yield from self._wake()
        return grant

    def _send(self, lends: Sequence[GrantLease]) -> Effects[None]:
        """Make several exchanges; after a failure the rest counts as lost."""
        is_gone = False
        for begin in range(0, len(lends), MOST_AT_ONCE):
            some = lends[begin : begin + MOST_AT_ONCE]
            sent_ns = self._now()
            results: Iterable[Any] = [None] * len(some)
            try:
                if not is_gone:
                    results = yield RunAll(self.inner, some)
            except Interrupted as interrupt:
                results = interrupt.reply or results
                is_gone = True
                raise
            finally:
                for lend, result in zip(some, results, strict=True):
                    is_granted = isinstance(result, LeaseGrant)
                    is_gone = is_gone or not is_granted
                    self._settle(lend, result if is_granted else None, None, sent_ns)

    def _settle(
        self, lend: GrantLease, grant: LeaseGrant | None, failure: StoreError | None, sent_ns: int
    ) -> None:
        """Record the answer to *lend*; None: it was lost because of *failure*."""
        (ROUND_TRIPS if lend.is_charged else EXCHANGES).add()
        now_ns = self._now()
        with self._lock:
            if grant is None:
                self._table.lost(lend, now_ns)
            else:
                self._table.heard(lend, grant, sent_ns, now_ns)
            total = self._table.demand.served
            served, self._counted = total - self._counted, total
            in_flight = self._in_flight.pop(lend, None)
        if served:
            SERVED.add(served)
        if in_flight is not None:
            if grant is None:
                in_flight.error = failure or StoreError("the exchange with the store was cut off")
            in_flight.landed.set()

    # Upkeep in the background.

    def _keep(self) -> Effects[float | None]:
        now_ns = self._now()
        with self._lock:
            lends = self._table.due(now_ns)
        yield from self._send(lends)
        return self._due_in()

    def _due_in(self) -> float | None:
        """Seconds until upkeep is due; None: there is nothing to do."""
        now_ns = self._now()
        with self._lock:
            due_ns = self._table.next_due_ns()
        return None if due_ns is None else max(0, due_ns - now_ns) / SECOND

    def _wake(self) -> Effects[None]:
        """Have upkeep run when it is due."""
        now_ns = self._now()
        with self._lock:
            due_ns = self._table.next_due_ns() if self._keeps else None
            if due_ns is None:
                return
            if self._upkeep is not None:
                if due_ns < self._wakes_ns:
                    self._bell.set()
                return
            token = self._upkeep = object()
            self._ended = Signal()
            self._wakes_ns = max(due_ns, now_ns)
        try:
            yield Background(_upkeep(weakref.ref(self), token), "headgate-leases")
        except RuntimeError:  # no thread to be had: the next exchange tries again
            self._has_ended(token)

    def _pause(self, token: object) -> tuple[float, Signal] | None:
        """The time until the next round of upkeep, and what cuts it short; None: it ends."""
        now_ns = self._now()
        with self._lock:
            due_ns = self._table.next_due_ns() if self._keeps else None
            if due_ns is None or self._upkeep is not token:
                return None
            self._bell = Signal()
            self._wakes_ns = max(due_ns, now_ns + MILLISECOND)
            return (self._wakes_ns - now_ns) / SECOND, self._bell

    def _has_ended(self, token: object) -> None:
        with self._lock:
            if self._upkeep is token:
                self._upkeep = None
                self._ended.set()

    # Hot keys, remembered denials, gauges.

    def _governs(self, checks: Sequence[Check]) -> bool:
        """True if one of *checks* is not simply for the store."""
        governs = self._table.governs
        return not self._is_idle and any(governs(check.group) for check in checks)

    def _notice(self, operation: Operation[Any]) -> None:
        """Count the demand for keys that are exact: they may be hot as well."""
        takes = operation.takes if isinstance(operation, TakeEach) else (operation,)
        for take in takes:
            if isinstance(take, Take) and take.consume:
                for check in take.checks:
                    self._notice_hit(check.group, check.key, check.cost)

    def _notice_hit(self, group: str, key: str, cost: int) -> None:
        if cost > 0:
            self._table.heavy.add(group, key, cost, self._now())

    def _note(self, checks: Sequence[Check], outcomes: Outcomes, sent_ns: int) -> None:
        """Remember the denials of the store."""
        with self._lock:
            for check, outcome in zip(checks, outcomes, strict=True):
                self._table.note(check, outcome, sent_ns)

    def _invalidate(self, operation: Operation[Any]) -> None:
        """Forget what *operation* may have made untrue."""
        if not isinstance(operation, Refund | Reset | Settle):
            return
        change = self._table.forget if isinstance(operation, Reset) else self._table.refunded
        with self._lock:
            for check in operation.checks:
                change(check.group, check.key)

    def _hot_count(self) -> float:
        return sum(one.per_second >= HOT_PER_SECOND for one in self.hot_keys(MOST_HOT))

    def _held(self) -> float:
        return len(self._table)

    def _units_held(self) -> float:
        with self._lock:
            return self._table.units_held()

    def _overshoot(self) -> float:
        return sum(one.bound for one in self.bounds())


def _upkeep(store: weakref.ref[LeasedStore], token: object) -> Effects[None]:
    """Return and report leases when they are due, as long as there are any and the store lives."""
    try:
        while (found := store()) is not None:
            pause = found._pause(token)  # noqa: SLF001 (the store's own work, which must not keep it)
            if pause is None:
                return
            seconds, bell = pause
            del found
            yield Wait(bell, max(SHORTEST_PAUSE, seconds))
            if (found := store()) is None:
                return
            yield from found._keep()  # noqa: SLF001
            del found
    finally:
        if (found := store()) is not None:
            found._has_ended(token)  # noqa: SLF001


def _landed(in_flight: InFlight) -> Effects[bool]:
    """Wait for a lease that another caller has requested; False if that takes too long."""
    has_landed: bool = yield Wait(in_flight.landed, PATIENCE)
    if has_landed and in_flight.error is not None:
        # What this caller asks for was never sent.
        raise in_flight.error.copied(is_undone=True) from in_flight.error
    return has_landed


def _rest(take: Take, begun: Begun) -> Take:
    """The part of *take* that the store decides: all of it if something is known to be denied,
    since only the store has the figures of the others."""
    if begun.is_refused or len(begun.rest) == len(take.checks):
        return take
    return Take(begun.rest, lease=take.lease)


def _together(begun: Begun, outcomes: Outcomes, *, is_taken: bool) -> Outcomes:
    """The outcome of each check, decided here or in the store."""
    if begun.is_refused:
        return outcomes
    decided = iter(outcomes)
    taken = iter(begun.taken)
    together: list[Outcome] = []
    for one in begun.served:
        if one is None:
            together.append(next(decided))
            continue
        cost = 0 if is_taken else next(taken).cost
        together.append(one.outcome._replace(remaining=one.outcome.remaining + cost))
    return tuple(together)


def _new_holder() -> str:
    return secrets.token_hex(6)
