"""Decide in this process while the store is gone, and report the usage afterwards."""

from __future__ import annotations

import threading
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakValueDictionary

from headgate.decision import PartialHit, decide_without_store
from headgate.fork import watch_forks
from headgate.limits import TokenBucket
from headgate.runtime.local_share import (
    ELSEWHERE,
    HERE,
    Asked,
    mode_of,
    said,
    scaled,
    shared_checks,
)
from headgate.runtime.outage import (
    BOARD,
    Outage,
    count_decided,
    count_dropped,
    tell_beginning,
    tell_end,
    tell_escalation,
)
from headgate.runtime.reconciliation import Merger, Owing, merging
from headgate.runtime.store_watch import Watch
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import (
    CancelQueued,
    Charge,
    Check,
    Hold,
    Refund,
    ReleaseSlot,
    RenewSlot,
    Reset,
    Settle,
    Take,
    TakeUpTo,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headgate.clock import Clock
    from headgate.decision import Decision, OnFailure
    from headgate.errors import StoreError
    from headgate.runtime.outage import Ended, Stance
    from headgate.stores.base import Store
    from headgate.stores.operations import Outcomes

__all__ = ["ELSEWHERE", "HERE", "Asked", "Fallback", "fallback_of", "scaled"]


MOST_KEYS: Final = 100_000
"""Keys with counters of their own; further keys share some, which makes them stricter."""


_LOOK: Final = Check("headgate!watch", "watch", TokenBucket(1, 1), 1)
"""The counter to peek at if none was asked for."""


class Guard(Protocol):
    """The circuit breaker, which knows first that the store is back."""

    where: str

    @property
    def state(self) -> str: ...

    @property
    def is_open(self) -> bool: ...

    def on_change(self, callback: Callable[..., None], /) -> object: ...


class Fallback:
    """Decide for *store* while it is gone, and report to it afterwards. Safe for threads.

    All users of a store in this process share its fallback: see `Registry`. A limit that fails open
    allows while its share of this process has room and denies beyond; so does one that is `local`.
    Limits that are decided together are charged all or none: if one denies or is closed, none is.

    Counters are kept when the store is back, until they are fresh: if it goes again at once, the
    share still holds.
    """

    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self.local = MemoryStore(clock=clock, max_keys=MOST_KEYS)
        """The counters of this process."""
        self.is_out = False
        """True if the store is gone."""
        self.wants_word = False
        """True if calls that succeed are to be reported here, by `succeed`."""
        self.has_decided = False
        """True if anything was ever decided here."""
        self._store = store  # kept, so that it is the only one of its identity
        self._where = f"the store at {getattr(store, 'where', type(store).__name__)}"
        self._clock: Clock = self.local.clock
        self._random = Random()  # noqa: S311 (it spreads load, and keeps no secret)
        self._outage = Outage()
        self._owing = Owing()
        self._merger = Merger(store)
        self._watch = Watch(store, self)
        self._asked = _LOOK
        self._words = self._looked_at = 0
        self._is_closed = False
        self._lock = threading.Lock()
        self._is_guard_closed: Callable[[], bool] = lambda: True
        self._is_guard_open: Callable[[], bool] = lambda: False
        BOARD.add(self)
        watch_forks(self)

    def listen(self, guard: Guard) -> None:
        """Have *guard* report that the store is back."""
        self._is_guard_closed = lambda: guard.state == "closed"
        self._is_guard_open = lambda: guard.is_open
        self._where = f"the store at {guard.where}"
        guard.on_change(lambda *_: self._guard_changed())

    def join(self, other: Fallback) -> None:
        """Use the counters of *other* from now on."""
        self.local, self._clock = other.local, other.local.clock

    @property
    def out_for_ns(self) -> int | None:
        """The nanoseconds since the store went; None if it is there."""
        began_ns = self._outage.began_ns
        return None if began_ns is None else max(self._clock() - began_ns, 0)

    # ---- the state of the store ------------------------------------------------------------

    def fail(self, error: StoreError) -> None:
        """Record that a call failed."""
        now = self._clock()
        with self._lock:
            begins = self._outage.fail(now)
            self.is_out = self.wants_word = self.has_decided = True
            self._words += 1
            self._is_closed = self._is_closed or error.reason == "closed"
        if not self._is_closed:
            self._watch.begin()
        if begins:
            tell_beginning(self._where, error)

    def succeed(self) -> None:
        """Record that a call succeeded; needed only while `wants_word`."""
        self._words += 1  # one more or less is nothing: it is to be another number
        self._is_closed = False
        if self._is_guard_closed():
            self._end(is_certain=False)
        elif not self._is_guard_open():  # or it was another part of the store that answered
            with self._lock:
                self._outage.hear()

    def _guard_changed(self) -> None:
        if self._is_guard_closed():
            self._end(is_certain=True)

    def _end(self, *, is_certain: bool) -> None:
        with self._lock:
            ended: Ended | None = self._outage.end(self._clock(), is_certain=is_certain)
            self.is_out = self._outage.began_ns is not None
            self.wants_word = self.is_out or len(self._owing) > 0
        if ended is not None:
            tell_end(self._where, ended)
        self.merge()

    @property
    def needs_watch(self) -> bool:
        """True if the store has to be watched, or there is usage to report."""
        return not self._is_closed and (self.is_out or len(self._owing) > 0)

    def next_look(self) -> Take | None:
        """A peek at the store, if no call was made since the last one: at a counter that was asked
        for lately, so that it reaches the part of the store that was gone."""
        words, self._looked_at = self._looked_at, self._words
        if not self.is_out:
            self.merge()
            return None
        return Take((self._asked,), consume=False) if words == self._looked_at else None

    # ---- decide ----------------------------------------------------------------------------

    def decide(
        self,
        asked: Sequence[Asked],
        error: StoreError,
        *,
        consume: bool = True,
        lease: str | None = None,
        is_owed: bool = True,
        is_counted: bool = True,
    ) -> list[Decision]:
        """Decide each of *asked*, all or nothing, as the store has raised *error*.

        With *is_owed* what is allowed is reported to the store later, unless it may know already.
        With `is_counted=False` it is a part of a request, which `count_request` counts.
        """
        self.raise_if_wanted(asked, error)
        self.fail(error)
        if asked:
            self._asked = asked[0].checks[0]
        stances = self._stances(asked)
        is_open = all(stance.mode != "fail_closed" for stance in stances)
        here = [one for one, at in zip(asked, stances, strict=True) if at.mode != "fail_closed"]
        take = Take(shared_checks(here), consume=consume and is_open, lease=lease)
        told: Outcomes = self.local.run(take) if take.checks else ()
        outcomes = iter(told)
        decisions = [
            said(one, stance, tuple(next(outcomes) for _ in one.checks))
            if stance.mode != "fail_closed"
            else decide_without_store("fail_closed", [(c.key, c.limit) for c in one.checks])
            for one, stance in zip(asked, stances, strict=True)
        ]
        if is_counted:
            self._count(stances, decisions)
        if take.consume and is_owed and all(decisions) and error.is_undone:
            self._owe([check for one in here for check in one.checks])
        return decisions

    def raise_if_wanted(self, asked: Iterable[Asked], error: StoreError) -> None:
        """Raise *error* if one of *asked* wants that in place of a decision."""
        if any(one.on_failure.raises for one in asked):
            self.fail(error)
            raise error

    def answer(
        self, operation: Take | Hold | Charge | Refund, on_failure: OnFailure, error: StoreError
    ) -> Decision:
        """Carry out *operation* here, as the store has raised *error*."""
        asked = Asked(operation.checks, on_failure)
        match operation:
            case Take(consume=consume, lease=lease):
                return self.decide([asked], error, consume=consume, lease=lease)[0]
            case Hold(name=name, ttl_ns=ttl_ns):
                return self.hold(asked, error, name, ttl_ns)
            case Charge():
                return self.charge(asked, error)
            case Refund():
                return self.refund(asked, error)

    def take_up_to(self, asked: Asked, error: StoreError) -> PartialHit:
        """Allow as much of the cost as fits here."""
        self.fail(error)
        (stance,) = self._stances([asked])
        if stance.mode == "fail_closed":
            pairs = [(check.key, check.limit) for check in asked.checks]
            part = PartialHit(0, decide_without_store("fail_closed", pairs))
        else:
            granted, outcomes = self.local.run(TakeUpTo(asked.shared))
            rest = tuple([replace(check, cost=check.cost - granted) for check in asked.checks])
            part = PartialHit(granted, said(asked._replace(checks=rest), stance, outcomes))
            if granted and error.is_undone:
                self._owe([replace(check, cost=granted) for check in asked.checks])
        self._count([stance], [part.decision])
        return part

    def hold(self, asked: Asked, error: StoreError, name: str, ttl_ns: int) -> Decision:
        """Decide, with the amounts held here under *name*."""
        return self._verb(asked, error, lambda checks: Hold(checks, name, ttl_ns))

    def charge(self, asked: Asked, error: StoreError, *, is_counted: bool = True) -> Decision:
        """Charge the amounts here; the decision of a peek after it."""
        decision = self._verb(asked, error, Charge, is_counted=is_counted)
        if decision.source != "fail_closed" and error.is_undone:
            self._owe(asked.checks)
        return decision

    def refund(self, asked: Asked, error: StoreError, *, is_counted: bool = True) -> Decision:
        """Refund amounts that were charged here; the decision of a peek after it."""
        decision = self._verb(asked, error, Refund, is_counted=is_counted)
        if decision.source != "fail_closed":
            self._owing.subtract(asked.checks)
        return decision

    def count_request(self, asked: Sequence[Asked], decisions: Sequence[Decision]) -> None:
        """Count one request that was decided in parts: by *decisions*, one for each of *asked*."""
        self._count(self._stances(asked), decisions)

    # ---- change what was decided here ------------------------------------------------------

    def give_back(self, asked: Asked) -> None:
        """Refund what was charged here."""
        if asked.checks:
            self.local.run(Refund(asked.shared))
            self._owing.subtract(asked.checks)

    def correct(self, asked: Asked, more: int) -> None:
        """Charge *more* than the estimate that was charged here; refund, if it is negative."""
        checks = tuple([Check(c.group, c.key, c.limit, abs(more)) for c in asked.shared])
        if checks and more:
            self.local.run(Charge(checks) if more > 0 else Refund(checks))

    def settle(self, asked: Asked, name: str) -> bool:
        """Settle what is held here under *name*; True if anything was."""
        return self.local.run(Settle(asked.shared, name, charge_lapsed=False))

    def owe(self, asked: Asked, error: StoreError) -> None:
        """Report the amounts, which were charged here, to the store later, unless *error*, which it
        has raised, means that it may know them."""
        if error.is_undone:
            self._owe(asked.checks)

    def renew(self, asked: Asked, lease: str) -> bool:
        """Renew slots that were granted here; False if one was lost."""
        return self.local.run(RenewSlot(asked.shared, lease))

    def leave(self, asked: Asked, lease: str) -> bool:
        """Release slots that were granted here; False if one was lost."""
        return self.local.run(ReleaseSlot(asked.shared, lease))

    def vacate(self, asked: Asked, turns_ns: Sequence[int]) -> bool:
        """Give up places in queues that were granted here; False if one has come."""
        return self.local.run(CancelQueued(asked.shared, tuple(turns_ns)))

    def reset(self, asked: Asked) -> None:
        """Forget the counters of *asked*, and do not report them."""
        self.local.run(Reset(asked.shared))
        self._owing.forget(asked.checks)

    # ---- report to the store ---------------------------------------------------------------

    def merge(self) -> None:
        """Report unreported usage to the store, in the background."""
        if len(self._owing) and not self.is_out and not self._is_closed:
            self._merger.start(lambda: merging(self._owing, self.local.used_in, self._random))

    def close(self) -> None:
        """Report nothing more. (A task of an event loop is cancelled.)"""
        self._is_closed = True
        self._merger.stop()

    def after_fork(self) -> None:
        """Begin as a new process: the parent reports its usage itself."""
        self._lock = threading.Lock()
        self._owing.after_fork()
        self._outage = Outage()
        self.is_out = self.wants_word = False
        self._merger, self._watch = Merger(self._store), Watch(self._store, self)

    def _owe(self, checks: Sequence[Check]) -> None:
        if dropped := self._owing.add(checks):
            count_dropped(dropped)
        self.wants_word = True
        self._watch.begin()
        self.merge()

    # ---- helpers ---------------------------------------------------------------------------

    def _stances(self, asked: Sequence[Asked]) -> list[Stance]:
        now = self._clock()
        stances = [self._outage.stance(one.on_failure, now) for one in asked]
        for stance in stances:
            if stance.is_escalated:
                with self._lock:
                    is_new = self._outage.escalate(stance.mode)
                    since_ns = now - (self._outage.began_ns or now)
                if is_new:
                    tell_escalation(self._where, stance.mode, since_ns)
        return stances

    def _verb(
        self,
        asked: Asked,
        error: StoreError,
        verb: Callable[[tuple[Check, ...]], Hold | Charge | Refund],
        *,
        is_counted: bool = True,
    ) -> Decision:
        self.fail(error)
        (stance,) = self._stances([asked])
        if stance.mode == "fail_closed":
            pairs = [(check.key, check.limit) for check in asked.checks]
            decision = decide_without_store("fail_closed", pairs)
        else:
            decision = said(asked, stance, self.local.run(verb(asked.shared)))
        if is_counted:
            self._count([stance], [decision])
        return decision

    def _count(self, stances: Sequence[Stance], decisions: Sequence[Decision]) -> None:
        mode = mode_of(stances, decisions)
        if mode is not None:
            with self._lock:
                self._outage.count(mode)
            count_decided(mode)


class Registry:
    """The fallback of each store, one for all its users in this process.

    A fallback keeps its store, so the identity of a store that has one is not used again.
    """

    def __init__(self) -> None:
        self._known: WeakValueDictionary[int, Fallback] = WeakValueDictionary()
        self.after_fork()
        watch_forks(self)

    def of(self, store: Store, clock: Clock | None, guard: Guard | None) -> Fallback:
        with self._lock:
            found = self._known.get(id(store))
            if found is None:
                found = self._known[id(store)] = Fallback(store, clock)
                if guard is not None:
                    found.listen(guard)
        return found

    def after_fork(self) -> None:
        """Begin as a new process, with one thread."""
        self._lock = threading.Lock()


_registry = Registry()


def fallback_of(store: Store, clock: Clock | None = None, guard: Guard | None = None) -> Fallback:
    """The fallback of *store*; a new one uses *clock*, and learns from *guard* that the store is
    back."""
    return _registry.of(store, clock, guard)
