"""The memory store with leases and the usage of other regions: the model of stores that have them.

No process shares a memory store with another, so an application has no use for either there. Tests
compare other stores with it, and run leases and replication on it under a manual clock.

The **ledger** of a counter records which holder has how many units on lease. A lease is open until
its holder comes again or it expires. A charged lease was charged when it was granted, so one that
expires needs nothing. An uncharged lease is charged in full when it is seen to have expired, and
recorded as paid. What its holder then reports is charged only beyond that, once: its next call
reports all that it used of the expired lease, and later usage is charged again. (To let a holder
use up later what was paid and not used would let it exceed the limit by any amount.)

A holder is remembered for a while after its last call, so that usage that is reported twice is
charged once.

**Totals** are the usage of a counter in other regions. Each origin reports totals of numbered
windows that only grow. The largest so far is kept of the latest window and of the one before, so
reports that come twice, late or out of order count once, and older windows not at all.

Clock: a lease that expires later than the TTL of a grant from now was granted before the clock
stepped back, and expires one TTL from now. Too early is safe: a charged lease stays charged, an
uncharged one is charged in full. Totals deny nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from headgate.algorithms import carry
from headgate.algorithms.reservations import outcome_beside, wait_beside
from headgate.limits import FixedWindow, PacedLimit, SlidingWindowCounter, SlidingWindowLog
from headgate.stores.base import reject_undivided
from headgate.stores.memory import MemoryStore
from headgate.stores.memory.shard import SHARDS
from headgate.stores.memory.store import DEFAULT_MAX_KEYS, OpenCounter, arithmetic_of
from headgate.stores.operations import (
    Check,
    GrantLease,
    LeaseGrant,
    MergeUsage,
    Operation,
    Outcomes,
    Reset,
)
from headgate.units import HOUR, MINUTE

if TYPE_CHECKING:
    from fractions import Fraction

    from headgate.algorithms import Algorithm, Outcome
    from headgate.algorithms.sliding_log import Log
    from headgate.clock import Clock
    from headgate.limits import Limit

MOST_HOLDERS: Final = 1000
"""Holders that a ledger knows. Beyond them nothing is granted."""
MOST_ORIGINS: Final = 1000
"""Origins whose usage is known of one counter. The usage of others is not charged."""


Place = tuple[str | int, ...]
"""Where units were charged: the kind of counter, its division of time, the window or entry."""


# A lease is returned later than a refund: others may have been charged since, a window may have
# ended, the limit may have changed. Its units come out of the window, cell or entry that they went
# into; if that is gone, so are they. `refund` of 0 brings a state up to date.


def place_of(limit: Limit, state: Any) -> Place:
    """Return where *state* took up what was charged last."""
    match limit:
        case FixedWindow():
            return "fixed", limit.window_ns, state[0]
        case SlidingWindowCounter():
            return "cells", limit.window_ns, limit.subwindows, state[0]
        case SlidingWindowLog():
            return "log", limit.window_ns, state.high
    return ("paced",)


def _drop_at(log: Log, time: int, units: int) -> None:
    """Take back up to *units* of the entry at *time*, first the debt that would replace it."""
    from_debt = min(units, log.debt)
    log.debt -= from_debt
    if time not in log.times[log.head :]:
        return
    place = log.times.index(time, log.head)
    dropped = min(units - from_debt, log.units[place])
    log.units[place] -= dropped
    log.total -= dropped
    if not log.units[place]:
        del log.times[place], log.units[place]
    if not log.total:
        log.drop(len(log.times), 0)


def refund_at(algorithm: Algorithm[Any], state: Any, amount: int, place: Place, now: int) -> Any:
    """Give up to *amount* back that was charged at *place*; nothing if that is gone."""
    limit, state = algorithm.limit, algorithm.refund(state, 0, now)
    here = place_of(limit, state)
    match limit:
        case SlidingWindowCounter() if place[:-1] == here[:-1]:
            index, counts = state
            cell = len(counts) - 1 - (index - int(place[-1]))
            if not 0 <= cell < len(counts):
                return state
            left = counts[cell] - min(amount, counts[cell])
            return index, (*counts[:cell], left, *counts[cell + 1 :])
        case SlidingWindowLog() if place[:-1] == here[:-1]:
            _drop_at(state, int(place[-1]), amount)
        case PacedLimit() | FixedWindow() if place == here:
            return algorithm.refund(state, amount, now)
    return state


def lasts(algorithm: Algorithm[Any], state: Any, amount: int, now: int) -> int:
    """Return the nanoseconds after which *amount*, charged now, has no effect any more."""
    match algorithm.limit:
        case FixedWindow() as limit:
            return int(algorithm.charge(state, 0, now)[0]) + limit.window_ns - now
        case SlidingWindowCounter():
            return algorithm.fresh_in(algorithm.charge(state, amount, now), now)
    return algorithm.limit.period_ns


class LeasedCounter(OpenCounter):
    """A counter of which units are leased."""

    __slots__ = ()

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

    def room(self, max_debt: Fraction | None, most: int) -> int:
        """Return how much of *most* may be charged until the debt is as large as *max_debt*."""
        if max_debt is None:
            return most
        quota = self._algorithm.limit.quota
        return max(0, quota + int(quota * max_debt) - self._algorithm.used(self._state, self._now))

    @property
    def is_own(self) -> bool:
        """True if no other key shares this counter."""
        return self._group.place(self._key, self._now) == self._key

    @property
    def place(self) -> Place:
        """Where the last charge went."""
        return place_of(self._algorithm.limit, self._state)

    def lasts(self, amount: int) -> int:
        """Return the nanoseconds after which *amount*, charged now, has no effect any more."""
        return lasts(self._algorithm, self._state, amount, self._now)

    def give_back(self, amount: int, place: Place) -> None:
        """Give *amount* back that was charged at *place*."""
        if amount and self._state is not None and self.is_own:
            self._change(refund_at(self._algorithm, self._state, amount, place, self._now))


@dataclass(slots=True)
class Account:
    """The lease of one holder, and the usage that it has reported."""

    amount: int = 0
    """Units on lease; 0 if there is no lease."""
    expires: int = 0
    is_charged: bool = True
    place: Place = ()
    """Where the lease was charged."""
    used: int = 0
    """The most uncharged usage that it has reported."""
    paid: int = 0
    """Units beyond *used* that were charged when its uncharged lease expired."""
    kept_ns: int = 0
    """How long it is remembered after its last call, or after its lease expired."""
    forgotten_at: int = 0

    def report(self, used: int, charged: int) -> int:
        """Record what was *used* so far, *charged* included; return what is to be charged."""
        fresh = used - max(self.used, charged) - self.paid
        self.used = max(self.used, used, charged)
        self.paid = 0
        return max(0, fresh)


class Ledger:
    """The accounts of one counter, by holder."""

    __slots__ = ("accounts",)

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}

    def is_over(self, now: int) -> bool:
        """Return True if nothing here has an effect any more."""
        return all(account.forgotten_at <= now for account in self.accounts.values())

    @property
    def leased(self) -> int:
        """Units on lease, all together."""
        return sum(account.amount for account in self.accounts.values())

    @property
    def holders(self) -> int:
        """Holders that have something on lease."""
        return sum(account.amount > 0 for account in self.accounts.values())

    def close_expired(self, now: int, ttl_ns: int) -> int:
        """Close what has expired, forget idle holders; return how much is to be charged.

        No lease lasts longer than *ttl_ns* from *now*; 0: that is not known.
        """
        charged = 0
        for holder, account in list(self.accounts.items()):
            if account.amount and 0 < ttl_ns < account.expires - now:
                account.expires = now + ttl_ns
                account.forgotten_at = account.expires + account.kept_ns
            if account.forgotten_at <= now:
                del self.accounts[holder]
            elif account.amount and account.expires <= now:
                if not account.is_charged:
                    charged += account.amount
                    account.paid = account.amount
                account.amount = 0
                self.keep(holder, account, now)
        return charged

    def has_room_for(self, holder: str) -> bool:
        """Return True if *holder* can have an account."""
        return holder in self.accounts or len(self.accounts) < MOST_HOLDERS

    def keep(self, holder: str, account: Account, now: int) -> None:
        """Keep *account* unless it is empty; with an open lease, for as long after that."""
        if not (account.amount or account.used or account.paid):
            self.accounts.pop(holder, None)
        elif self.has_room_for(holder):
            last = max(now, account.expires) if account.amount else now
            account.forgotten_at = last + account.kept_ns
            self.accounts[holder] = account


def grant_lease(
    operation: GrantLease, counter: LeasedCounter, known: Ledger | None, now: int
) -> LeaseGrant:
    """Carry *operation* out on its *counter*; *known* is its ledger, if there is room for one."""
    check, holder = operation.check, operation.holder
    ledger = Ledger() if known is None else known
    counter.charge(ledger.close_expired(now, operation.ttl_ns))
    account = ledger.accounts.get(holder) or Account()
    counter.charge(account.report(operation.used, operation.reported))
    unused = min(operation.unused, account.amount)
    account.amount = 0
    if account.is_charged:
        counter.give_back(unused, account.place)
        unused = 0
    wait = counter.wait(check.cost)
    if wait == 0:
        counter.charge(check.cost)
    outcome = counter.outcome(wait)
    account.kept_ns = min(max(10 * operation.ttl_ns, MINUTE), HOUR)
    lasts_ns = 0
    if outcome.allowed and known and counter.is_own and ledger.has_room_for(holder):
        amount = _fitting(operation, counter.remaining, ledger.leased, unused)
        if amount > 0:
            lasts_ns = _grant(operation, counter, account, amount, now)
    ledger.keep(holder, account, now)
    counter.close()
    wait_ns = counter.wait_again(check.cost + operation.most)
    return LeaseGrant(outcome, account.amount, lasts_ns, ledger.holders, ledger.leased, wait_ns)


def _fitting(operation: GrantLease, remaining: int, leased: int, least: int) -> int:
    """Return the units to grant; of an uncharged lease at least *least*, fitting or not."""
    amount = min(operation.most, remaining)
    if operation.cap is not None:
        amount = min(amount, operation.cap - leased)
    if not operation.is_charged:
        amount = max(amount, min(least, operation.most))
    return amount if operation.ttl_ns > 0 else 0


def _grant(
    operation: GrantLease, counter: LeasedCounter, account: Account, amount: int, now: int
) -> int:
    """Grant *amount* to the holder of *account*, which has no lease; return its lifetime."""
    lasts_ns = counter.lasts(amount)
    account.kept_ns = max(account.kept_ns, lasts_ns)
    lasts_ns = min(operation.ttl_ns, lasts_ns)
    account.amount, account.expires = amount, now + lasts_ns
    account.is_charged = operation.is_charged
    if operation.is_charged:
        counter.charge(amount)
        account.place = counter.place
    return lasts_ns


@dataclass(slots=True)
class _Reported:
    """The usage that one origin has reported, of its latest window and of the one before."""

    totals: dict[int, int]
    forgotten_at: int


class Totals:
    """What all origins have reported of one counter."""

    __slots__ = ("_reported",)

    def __init__(self) -> None:
        self._reported: dict[str, _Reported] = {}

    def is_over(self, now: int) -> bool:
        """Return True if all of it may be forgotten."""
        return all(report.forgotten_at <= now for report in self._reported.values())

    def merge(self, origin: str, window: int, total: int, *, until: int, now: int) -> int:
        """Record the *total* of *window*; return how much of it is new."""
        report = self._reported.get(origin)
        if report is None or report.forgotten_at <= now:
            if report is None and not self._make_room(now):
                return 0
            report = self._reported[origin] = _Reported({}, until)
        report.forgotten_at = max(report.forgotten_at, until)
        latest = max([window, *report.totals])
        if window < latest - 1:
            return 0
        before = report.totals.get(window, 0)
        report.totals[window] = max(before, total)
        report.totals = {n: kept for n, kept in report.totals.items() if n >= latest - 1}
        return max(0, total - before)

    def _make_room(self, now: int) -> bool:
        if len(self._reported) >= MOST_ORIGINS:
            live = [(name, one) for name, one in self._reported.items() if one.forgotten_at > now]
            self._reported = dict(live)
        return len(self._reported) < MOST_ORIGINS


Name = tuple[str, str]
"""The group and the key of a counter."""
V = TypeVar("V", Ledger, Totals)


class LeaseGrantingStore(MemoryStore):
    """A `MemoryStore` that knows `GrantLease` and `MergeUsage`."""

    grants_leases = True
    counter = LeasedCounter

    def __init__(self, *, clock: Clock | None = None, max_keys: int = DEFAULT_MAX_KEYS) -> None:
        super().__init__(clock=clock, max_keys=max_keys)
        self._max_keys = max_keys
        self._ledgers: dict[Name, Ledger] = {}
        self._totals: dict[Name, Totals] = {}

    def carry_out(self, operation: Operation[Any], now: int) -> Any:
        match operation:
            case GrantLease():
                return self._grant(operation, now)
            case MergeUsage():
                return self._merge(operation, now)
            case Reset():
                for check in operation.checks:
                    self._ledgers.pop((check.group, check.key), None)
        return super().carry_out(operation, now)

    def _grant(self, operation: GrantLease, now: int) -> LeaseGrant:
        reject_undivided([operation.check.limit], "GrantLease")
        (counter,) = self._opened((operation.check,), now)
        ledger = self._found(self._ledgers, Ledger, operation.check, now)
        return grant_lease(operation, counter, ledger, now)

    def _merge(self, operation: MergeUsage, now: int) -> Outcomes:
        """Charge usage of another region.

        Counters that are in use stay under the limit they are kept under, whichever the other
        region has: to go back and forth would refill them at its pace, or age nothing.
        """
        checks = operation.checks
        reject_undivided([check.limit for check in checks], "MergeUsage")
        opened = self._opened(tuple([self._kept(check, now) for check in checks]), now)
        for counter, check in zip(opened, checks, strict=True):
            totals = self._found(self._totals, Totals, check, now)
            if totals is not None:  # what cannot be remembered is not charged
                until = now + operation.ttl_ns
                fresh = totals.merge(
                    operation.origin, operation.window, check.cost, until=until, now=now
                )
                counter.charge(min(fresh, counter.room(operation.max_debt, fresh)))
            counter.close()
        pairs = zip(opened, checks, strict=True)
        return tuple(
            one.outcome_under(arithmetic_of(check.limit).algorithm) for one, check in pairs
        )

    def _found(self, known: dict[Name, V], kind: type[V], check: Check, now: int) -> V | None:
        """Return what is *known* of the counter of *check*, or begin it; None if it is full."""
        name = check.group, check.key
        if name not in known and len(known) >= self._max_keys:
            for old in [old for old, one in list(known.items()) if one.is_over(now)]:
                known.pop(old, None)
            if len(known) >= self._max_keys:
                return None
        return known.setdefault(name, kind())

    def _kept(self, check: Check, now: int) -> Check:
        """Return *check* under the limit that its counter is kept under, if that is in use."""
        group = self._shards[hash(check.key) % SHARDS].group(check.group)
        home = group.home_of(check.key)
        if home is None or not home.used(check.key, now):
            return check
        return replace(check, limit=home.algorithm.limit)

    def _opened(self, checks: tuple[Check, ...], now: int) -> list[LeasedCounter]:
        return [cast("LeasedCounter", counter) for counter, _ in self._open(checks, now)]
