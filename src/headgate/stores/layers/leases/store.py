"""The store that borrows, for callers that may block."""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from weakref import WeakSet

from headgate.errors import StoreError
from headgate.stores.base import Hitter, Store, checked_cost, checked_key, concluded
from headgate.stores.layers.leases.desk import PATIENCE_NS, Desk, decisions_of
from headgate.stores.layers.leases.pots import Errand
from headgate.stores.layers.leases.taking import taking, taking_each
from headgate.stores.operations import Check, GrantLease, LeaseGrant, Operation, Take, TakeEach
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from headgate.clock import Clock
    from headgate.decision import Decision
    from headgate.limits import Limit
    from headgate.observability.sketches import Heavy
    from headgate.stores.base import Terms
    from headgate.stores.layers.leases.served import Bound


# The thread that gives back and tells what is due, for a store whose callers may block.


LONGEST_NAP: Final = 0.25
SHORTEST_NAP: Final = 0.005


class Keeper:
    """Calls `keep` of its store when something is due. Runs only while something will be, and as
    long as the store lives; it keeps neither the store nor the process alive."""

    def __init__(self, store: LeasedStore) -> None:
        self._store = weakref.ref(store)
        self._is_closed = False
        self.after_fork()
        _keepers.add(self)

    def after_fork(self) -> None:
        """In a forked process no thread is left."""
        self._lock = threading.Lock()
        self._bell = threading.Event()
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0

    def wake(self, due_in_ns: int | None) -> None:
        """Something is due then; None: nothing is."""
        if due_in_ns is None or self._is_closed:
            return
        due_at = time.monotonic() + due_in_ns / 1e9
        if self._thread is not None and due_at >= self._wakes_at:
            return
        with self._lock:
            if self._thread is None:
                name = "headgate-leases"
                self._wakes_at = due_at
                self._thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._thread.start()
            else:
                self._bell.set()

    def close(self) -> None:
        """End it, and wait for what it is doing."""
        self._is_closed = True
        self._bell.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)

    def _work(self) -> None:
        nap: float | None = max(SHORTEST_NAP, self._wakes_at - time.monotonic())
        bell = self._bell
        try:
            while nap is not None:
                nap = min(LONGEST_NAP, max(SHORTEST_NAP, nap))
                self._wakes_at = time.monotonic() + nap
                bell.wait(nap)
                bell.clear()
                nap = self._round()
        finally:
            if nap is not None:  # it failed: who comes next starts another
                self._thread = None

    def _round(self) -> float | None:
        """Do what is due; how long to sleep then, None: for good."""
        store = self._store()
        if store is not None and not self._is_closed:
            self._wakes_at = math.inf
            nap = store.keep()
            if nap is not None:
                return nap
        with self._lock:
            if self._bell.is_set() and not self._is_closed:
                return SHORTEST_NAP
            self._thread = None
        return None


_keepers: WeakSet[Keeper] = WeakSet()


def _after_fork() -> None:
    for keeper in list(_keepers):
        keeper.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


R = TypeVar("R")


class Flight:
    """A loan that one thread asks for and others wait for."""

    __slots__ = ("_under_way", "error")

    def __init__(self) -> None:
        self._under_way = threading.Lock()  # a quarter of the price of an Event
        self._under_way.acquire()
        self.error: StoreError | None = None

    def land(self, error: StoreError | None) -> None:
        """It is there, or could not be had because of *error*."""
        self.error = error
        self._under_way.release()

    def wait(self) -> bool | None:
        """Until it has landed; None: that takes too long."""
        if not self._under_way.acquire(timeout=PATIENCE_NS / SECOND):
            return None
        self._under_way.release()
        if self.error is not None:
            # What the waiting one asks for was never sent.
            raise self.error.copied(is_undone=True) from self.error
        return True


class LeasedStore(Store):
    """*inner*, with units of hot keys taken in advance where `adopt` was told so.

    *clock* is that of the node, which says how long a loan lasts; only differences count. *holder*
    is what *inner* knows this node by. At most *most_loans* counters are borrowed from at a time.
    With `keeps=False` nothing is done in the background: call `keep` now and then.
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
        self.inner = inner
        self.may_fail = inner.may_fail
        self.lends = inner.lends
        self.shares = inner.shares
        if hasattr(inner, "clock"):
            self.clock: Clock = inner.clock
        self._desk: Desk[Flight] = Desk(inner, clock=clock, holder=holder, most_loans=most_loans)
        self._keeper = Keeper(self) if keeps else None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} before {self.inner!r}>"

    def run(self, operation: Operation[R]) -> R:
        if self._desk.is_idle:
            self._desk.notice(operation)
            return self.inner.run(operation)
        if isinstance(operation, Take) and operation.consume:
            if not self._desk.governs(operation.checks):
                self._desk.notice(operation)
                return self.inner.run(cast("Operation[R]", operation))
            served = self._drive(taking(self._desk, operation, Flight))
            return cast("R", tuple([one.told for one in served]))
        if isinstance(operation, TakeEach):
            outcomes = self._drive(taking_each(self._desk, operation))
            self._wake()
            return cast("R", outcomes)
        reply = self.inner.run(operation)
        self._desk.tell(operation)
        return reply

    def take_quickly(self, checks: Sequence[Check]) -> tuple[Decision, ...] | None:
        if not self._desk.governs(checks):
            return self.inner.take_quickly(checks)
        served = self._drive(taking(self._desk, Take(tuple(checks)), Flight))
        return decisions_of(checks, served)

    def hitter(self, places: Sequence[tuple[str, Limit]]) -> Hitter | None:
        if len(places) != 1 or not self._desk.book.governs(places[0][0]):
            if any(self._desk.book.governs(group) for group, _ in places):
                return None
            return self._noticing(places, self.inner.hitter(places))
        group, limit = places[0]
        self.inner.hitter(places)  # which may refuse the limit

        def slowly(key: str, cost: int) -> Decision:
            check = Check(group, checked_key(key), limit, checked_cost(cost))
            taken = self.take_quickly((check,))
            if taken is None:
                outcome = self.inner.run(Take((check,)))[0]
                return concluded(key, limit, outcome)
            self._desk.rebind(group, limit, bind)
            return taken[0]

        hit, bind = self._desk.quick_way(group, limit, slowly)
        return hit

    def _noticing(self, places: Sequence[tuple[str, Limit]], inner: Hitter | None) -> Hitter | None:
        """*inner*, with what is asked of its keys counted."""
        if inner is None:
            return None
        notice, groups, hit_inside = self._desk.notice_hit, [group for group, _ in places], inner

        def hit(key: str, cost: int = 1) -> Decision:
            for group in groups:
                notice(group, key, cost)
            return hit_inside(key, cost)

        return hit

    def adopt(self, terms: Terms) -> None:
        self.inner.adopt(terms)
        self._desk.adopt(terms if self.lends else {})
        self._wake()

    def hot_keys(self, count: int = 10) -> list[Heavy]:
        """The *count* hottest keys that were asked for here."""
        return self._desk.hot_keys(count)

    def bounds(self) -> list[Bound]:
        """By how much each group may overshoot."""
        return self._desk.bounds()

    def keep(self) -> float | None:
        """Give back and tell what is due; in how many seconds to come again, None: when called."""
        self._send(self._desk.due())
        due_in_ns = self._desk.due_in_ns()
        return None if due_in_ns is None else due_in_ns / SECOND

    def close(self) -> None:
        if self._keeper is not None:
            self._keeper.close()
        self._send(self._desk.close())
        self.inner.close()

    def _drive(self, steps: Generator[Any, Any, R]) -> R:
        reply: Any = None
        try:
            while True:
                step = steps.send(reply)
                if isinstance(step, GrantLease):
                    reply = self._exchange(step)
                elif isinstance(step, Errand):
                    reply = self._run_errand(step)
                elif isinstance(step, Flight):
                    reply = step.wait()
                else:
                    reply = self.inner.run(step)
        except StopIteration as end:
            return cast("R", end.value)
        finally:
            steps.close()

    def _run_errand(self, errand: Errand) -> Any:
        try:
            return self.inner.run(errand.operation)
        except StoreError as error:
            return error

    def _exchange(self, lend: GrantLease) -> LeaseGrant:
        """Ask the store, and tell those who wait for it."""
        sent_ns = self._desk.clock()
        lent = failure = None
        try:
            lent = self.inner.run(lend)
        except StoreError as error:
            failure = error
            raise
        finally:
            flight = self._desk.settle(lend, lent, sent_ns)
            if lent is None and failure is None:
                failure = StoreError("the exchange with the store was broken off")
            if flight is not None:
                flight.land(failure)
            self._wake()
        return lent

    def _send(self, lends: list[GrantLease]) -> None:
        """Tell the store; after a failure the rest is taken for lost."""
        is_gone = False
        for lend in lends:
            if is_gone:
                self._desk.settle(lend, None, 0)
                continue
            try:
                self._exchange(lend)
            except StoreError:
                is_gone = True

    def _wake(self) -> None:
        if self._keeper is not None:
            self._keeper.wake(self._desk.due_in_ns())
