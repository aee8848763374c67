"""A book behind its turn: what both shells have in common, nothing of which waits."""

from __future__ import annotations

import os
import secrets
import time
from functools import lru_cache, partial
from time import sleep
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast
from weakref import WeakSet

from headgate.clock import MonotonicClock
from headgate.decision import Decision
from headgate.observability import MEASURES
from headgate.stores.base import concluded
from headgate.stores.layers.leases import pots
from headgate.stores.layers.leases.lease import reset_after
from headgate.stores.layers.leases.lease_table import MOST_LOANS, Book
from headgate.stores.layers.leases.pots import Pots, drafted, settled
from headgate.stores.operations import Refund, Reset, Settle, Take, TakeEach

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FunctionType

    from headgate.clock import Clock
    from headgate.limits import Limit
    from headgate.observability.sketches import Heavy
    from headgate.stores.base import AsyncStore, Hitter, Store, Terms
    from headgate.stores.layers.leases.lease import Facts, Loan
    from headgate.stores.layers.leases.pots import Draft, Drawn
    from headgate.stores.layers.leases.served import Begun, Bound, Served, Taken
    from headgate.stores.operations import Check, GrantLease, LeaseGrant, Operation, Outcomes


# The turn of a leased store, and the quick way, which takes it by hand.
#
# As in `stores.memory.fast_path`, which says why: the lock is a variable shared by the functions of
# one scope. Deleting it takes the turn, assigning it gives it back. Nobody sleeps or does I/O while
# having it.


# ruff: noqa: SLF001 (decisions are made by filling their slots: see `decision`)


if TYPE_CHECKING:
    Bind = Callable[[dict[str, Loan]], None]
    """Tells a quick way where the loans are."""

_FREE: Final = True
_ONE: Final = 1


class Turn:
    """To be taken before a book is looked at: `take()`, `try: ... finally: give_back()`."""

    __slots__ = ("give_back", "loan_hitter", "take")

    take: Callable[[], None]
    give_back: Callable[[], None]
    loan_hitter: Callable[[type[LoanDecision], Clock, Hitter], tuple[Hitter, Bind]]
    """The quick way: hits from loans; the last argument takes over where there is none."""

    def __init__(self) -> None:
        self.take, self.loan_hitter = _new_turn()
        (shared_variable,) = cast("FunctionType", self.take).__closure__ or ()
        self.give_back = partial(setattr, shared_variable, "cell_contents", _FREE)


def _new_turn() -> tuple[  # noqa: C901 (functions of one scope)
    Callable[[], None], Callable[[type[LoanDecision], Clock, Hitter], tuple[Hitter, Bind]]
]:
    turn = _FREE

    def take() -> None:
        nonlocal turn
        while True:
            try:
                del turn
            except NameError:
                sleep(0)
            else:
                return

    def loan_hitter(
        admitted: type[LoanDecision], read: Clock, slowly: Hitter
    ) -> tuple[Hitter, Bind]:
        loans: dict[str, Loan] = {}

        def bind(new_loans: dict[str, Loan]) -> None:
            nonlocal loans
            loans = new_loans

        def hit(key: str, cost: int = 1) -> Decision:
            nonlocal turn
            if cost is not _ONE and (type(cost) is not int or cost < _ONE):
                return slowly(key, cost)
            now_ns = read()
            while True:
                try:
                    del turn
                except NameError:
                    sleep(0)
                else:
                    break
            try:
                loan = loans[key]
                left = loan.left - cost
                if left >= 0 and now_ns < loan.lapses_ns:
                    loan.left = left
                    facts = loan.facts
                else:
                    left = -1
            except (KeyError, TypeError):
                left = -1
            finally:
                turn = _FREE
            if left < 0:
                return slowly(key, cost)
            decision = admitted()
            decision._key = key
            decision._left = left
            decision._facts = facts
            decision._now_ns = now_ns
            return decision

        return hit, bind

    return take, loan_hitter


# Decisions that were made from a loan, kept as the few integers they were made of.
#
# As in `decision`: the figures are computed when they are read, each limit has a class of
# its own, and the quick way fills the slots.


class LoanDecision(Decision):
    """A cost that was served from a loan."""

    __slots__ = ("_facts", "_key", "_left", "_now_ns")

    _key: str
    _left: int
    _facts: Facts
    _now_ns: int

    @property
    def allowed(self) -> bool:
        return True

    def __bool__(self) -> bool:
        return True

    @property
    def key(self) -> str:
        return self._key

    @property
    def remaining(self) -> int:
        return self._left + self._facts.elsewhere

    @property
    def retry_after_ns(self) -> int | None:
        return 0

    @property
    def reset_after_ns(self) -> int:
        return reset_after(self.limit, self._facts, self._left, self._now_ns)


@lru_cache(maxsize=1024)
def loan_decisions(the_limit: Limit, the_source: str) -> type[LoanDecision]:
    """The class of the decisions that are made from loans under *the_limit*."""

    class FromLoan(LoanDecision):
        __slots__ = ()

        @property
        def limit(self) -> Limit:
            return the_limit

        @property
        def source(self) -> str:
            return the_source

    return FromLoan


F = TypeVar("F")

HOT_PER_SECOND: Final = 100
"""Units that are asked of a key in this process for it to be counted as hot."""
MOST_HOT: Final = 1000

PATIENCE_NS: Final = 100_000_000
"""How long to wait for a loan that another has asked for; the store's own deadline is shorter."""


class Desk(Generic[F]):
    """The book of one store. *F* is what those wait for who find a loan being asked for."""

    def __init__(
        self,
        inner: Store | AsyncStore,
        *,
        clock: Clock | None,
        holder: str | None,
        most_loans: int | None,
    ) -> None:
        found = clock or getattr(inner, "clock", None)
        is_usual = found is None or type(found) is MonotonicClock
        self.clock: Clock = time.monotonic_ns if found is None or is_usual else found
        self.turn = Turn()
        self.book = Book(holder or _new_holder(), most_loans=most_loans or MOST_LOANS)
        self.pots = Pots(_new_holder(), self.clock)
        self.flights: dict[GrantLease, F] = {}
        self.is_idle = True
        """Whether nothing is to be decided here at all."""
        self._served = 0
        _desks.add(self)
        gauge = MEASURES.gauge
        gauge("leases_held", "Counters of which units are lent to this process.", self.loans_held)
        gauge("lease_units_held", "Units lent to this process.", self.units_held)
        gauge("overshoot_bound", "Units by which limits may be overshot.", self.overshoot_bound)
        gauge("hot_keys", "Keys that much is asked of in this process.", self.hot_count)

    def after_fork(self) -> None:
        """This is a forked process, in which no other thread is left."""
        self.turn.give_back()
        self.flights = {}
        self.pots = Pots(_new_holder(), self.clock)
        self._served = 0
        self.book.after_fork(_new_holder())

    def adopt(self, terms: Terms) -> None:
        own = {group: how for group, how in terms.items() if not how.is_always_asked}
        self.turn.take()
        try:
            self.book.adopt(own)
            self.is_idle = not own
        finally:
            self.turn.give_back()

    def governs(self, checks: Sequence[Check]) -> bool:
        """Whether any of *checks* is not simply for the store."""
        governs = self.book.governs
        return not self.is_idle and any(governs(check.group) for check in checks)

    def begin(self, checks: Sequence[Check]) -> Begun:
        """As `Book.begin`."""
        now_ns = self.clock()
        self.turn.take()
        try:
            begun = self.book.begin(checks, now_ns)
        finally:
            self.turn.give_back()
        if begun.is_refused:
            pots.CACHED.add()
        return begun

    def serve(self, checks: Sequence[Check]) -> list[Served] | None:
        """As `Book.serve`."""
        now_ns = self.clock()
        self.turn.take()
        try:
            served = self.book.serve(checks, now_ns)
        finally:
            self.turn.give_back()
        if served is not None and not all(one.outcome.allowed for one in served):
            pots.CACHED.add()
        return served

    def put_back(self, taken: Sequence[Taken]) -> None:
        """As `Book.put_back`."""
        self.turn.take()
        try:
            self.book.put_back(taken)
        finally:
            self.turn.give_back()

    def ask(self, check: Check, *, takes: bool, flight: F) -> GrantLease | F | None:
        """What to ask of the store; or what to wait for, as another asks already; or None."""
        now_ns = self.clock()
        self.turn.take()
        try:
            asking = self.book.asking(check)
            if asking is not None:
                return self.flights.get(asking)
            lend = self.book.ask(check, now_ns, takes=takes)
            if lend is not None:
                self.flights[lend] = flight
            return lend
        finally:
            self.turn.give_back()

    def borrow_soon(self, checks: Sequence[Check]) -> None:
        """As `Book.borrow_soon`, for each of *checks*."""
        now_ns = self.clock()
        self.turn.take()
        try:
            for check in checks:
                if check.cost > 0:
                    self.book.borrow_soon(check, now_ns)
        finally:
            self.turn.give_back()

    def draft(self, check: Check) -> Draft | None:
        """As `drafted`."""
        now_ns = self.clock()
        self.turn.take()
        try:
            return drafted(self.book, check, now_ns)
        finally:
            self.turn.give_back()

    def settle_draft(self, draft: Draft, drawn: Drawn) -> Served | None:
        """As `settled`."""
        now_ns = self.clock()
        self.turn.take()
        try:
            return settled(self.book, draft, drawn, now_ns)
        finally:
            self.turn.give_back()

    def notice(self, operation: Operation[Any]) -> None:
        """Count what is asked of keys that are kept exactly: they may be hot as well."""
        takes = operation.takes if isinstance(operation, TakeEach) else (operation,)
        for take in takes:
            if isinstance(take, Take) and take.consume:
                for check in take.checks:
                    self.notice_hit(check.group, check.key, check.cost)

    def notice_hit(self, group: str, key: str, cost: int) -> None:
        """The same for one counter."""
        if type(key) is str and type(cost) is int and cost > 0:  # else it is about to be refused
            self.book.heavy.add(group, key, cost, self.clock())

    def hot_keys(self, count: int) -> list[Heavy]:
        """The *count* hottest keys."""
        return self.book.heavy.top(count, self.clock())

    def hot_count(self) -> float:
        """How many keys are hot, up to some thousand."""
        return sum(one.per_second >= HOT_PER_SECOND for one in self.hot_keys(MOST_HOT))

    def note(self, checks: Sequence[Check], outcomes: Outcomes, sent_ns: int) -> None:
        """Remember what the store refused."""
        self.turn.take()
        try:
            for check, outcome in zip(checks, outcomes, strict=True):
                self.book.note(check, outcome, sent_ns)
        finally:
            self.turn.give_back()

    def settle(self, lend: GrantLease, lent: LeaseGrant | None, sent_ns: int) -> F | None:
        """*lend* was answered, or lost; who waits for that is to be told."""
        (pots.ROUND_TRIPS if lend.is_charged else pots.EXCHANGES).add()
        now_ns = self.clock()
        self.turn.take()
        try:
            if lent is None:
                self.book.lost(lend, now_ns)
            else:
                self.book.heard(lend, lent, sent_ns, now_ns)
            served, self._served = self.book.demand.served - self._served, self.book.demand.served
            flight = self.flights.pop(lend, None)
        finally:
            self.turn.give_back()
        if served:
            pots.SERVED.add(served)
        return flight

    def due(self) -> list[GrantLease]:
        """As `Book.due`."""
        now_ns = self.clock()
        self.turn.take()
        try:
            return self.book.due(now_ns)
        finally:
            self.turn.give_back()

    def due_in_ns(self) -> int | None:
        """When to ask `due` again; None: not at all."""
        now_ns = self.clock()
        self.turn.take()
        try:
            due_ns = self.book.next_due_ns()
        finally:
            self.turn.give_back()
        return None if due_ns is None else max(0, due_ns - now_ns)

    def close(self) -> list[GrantLease]:
        """As `Book.close`."""
        now_ns = self.clock()
        self.turn.take()
        try:
            self.is_idle = True
            return self.book.close(now_ns)
        finally:
            self.turn.give_back()

    def tell(self, operation: Operation[Any]) -> None:
        """*operation* was carried out: what is known of its counters may not be true any more."""
        if not isinstance(operation, Refund | Reset | Settle):
            return
        change = self.book.forget if isinstance(operation, Reset) else self.book.refunded
        self.turn.take()
        try:
            for check in operation.checks:
                change(check.group, check.key)
        finally:
            self.turn.give_back()

    def quick_way(self, group: str, limit: Limit, slowly: Hitter) -> tuple[Hitter, Bind]:
        """A hitter that serves from loans; *slowly* where there are none."""
        self.turn.take()
        try:
            table = self.book.table(group, limit)
        finally:
            self.turn.give_back()
        source = "lease" if table is None else table.source
        hit, bind = self.turn.loan_hitter(loan_decisions(limit, source), self.clock, slowly)
        if table is not None:
            bind(table.loans)
        return hit, bind

    def rebind(self, group: str, limit: Limit, bind: Bind) -> None:
        """The loans may be elsewhere since the terms have changed."""
        self.turn.take()
        try:
            table = self.book.table(group, limit)
            bind({} if table is None else table.loans)
        finally:
            self.turn.give_back()

    def bounds(self) -> list[Bound]:
        """As `Book.bounds`."""
        self.turn.take()
        try:
            return self.book.bounds()
        finally:
            self.turn.give_back()

    def loans_held(self) -> float:
        return len(self.book)

    def units_held(self) -> float:
        self.turn.take()
        try:
            return self.book.units_held()
        finally:
            self.turn.give_back()

    def overshoot_bound(self) -> float:
        return sum(one.bound for one in self.bounds())


def decisions_of(checks: Sequence[Check], served: Sequence[Served]) -> tuple[Decision, ...]:
    """What each of *checks* came to."""
    pairs = zip(checks, served, strict=True)
    return tuple(
        [concluded(check.key, check.limit, one.outcome, one.source) for check, one in pairs]
    )


def _new_holder() -> str:
    return secrets.token_hex(6)


_desks: WeakSet[Desk[Any]] = WeakSet()


def _after_fork() -> None:
    for desk in list(_desks):
        desk.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
