"""The store that borrows, for callers that may block."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar, cast

from headgate.errors import StoreError
from headgate.stores.leased.desk import PATIENCE_NS, Desk, decisions_of
from headgate.stores.leased.drawing import Errand
from headgate.stores.leased.keeper import Keeper
from headgate.stores.leased.taking import taking, taking_each
from headgate.stores.operations import (
    Check,
    Lend,
    Lent,
    Operation,
    Take,
    TakeEach,
)
from headgate.stores.port import Hitter, Store, checked_cost, checked_key, concluded
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from headgate.clock import Clock
    from headgate.decisions import Decision
    from headgate.limits import Limit
    from headgate.observability.sketch import Heavy
    from headgate.stores.leased.served import Bound
    from headgate.stores.port import Terms

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
                if isinstance(step, Lend):
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

    def _exchange(self, lend: Lend) -> Lent:
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

    def _send(self, lends: list[Lend]) -> None:
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
