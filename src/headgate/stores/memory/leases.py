"""Tables beside the counters of a shard: leases, usage of regions, published values.

All three are kept by group and key and vanish when they have no effect any more.

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

**Values** are published by several processes, or parts of one, about the same thing.

Clock: a lease that expires later than the TTL of a grant from now was granted before the clock
stepped back, and expires one TTL from now. Too early is safe: a charged lease stays charged, an
uncharged one is charged in full. Totals deny nothing. A value that expires later than twice its TTL
from now does not count, since its publisher may be gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from headgate.stores.memory.shard import Aging, Room
from headgate.stores.operations import (
    MOST_PUBLISHERS,
    Check,
    GrantLease,
    LeaseGrant,
    MergeUsage,
    PublishedValues,
    PublishValue,
)
from headgate.units import HOUR, MINUTE

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.algorithms.base import Place
    from headgate.stores.memory.store import Opened

MOST_HOLDERS: Final = 1000
"""Holders that a ledger knows. Beyond them nothing is granted."""
MOST_ORIGINS: Final = 1000
"""Origins whose usage is known of one counter. The usage of others is not charged."""

Name = tuple[str, str]
"""The group and the key of a counter."""


class Expiring(Protocol):
    """Something that has no effect any more after a while."""

    def is_over(self, now: int) -> bool:
        """Return True if it has no effect any more."""


V = TypeVar("V", bound=Expiring)


class ExpiringTable(Aging[Name, V]):
    """Objects that *make* makes, by the name of a counter."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], V], room: Room) -> None:
        super().__init__(room)
        self._make = make

    def open(self, name: Name, now: int) -> V | None:
        """Return what is there, or a new one; None if there is no room."""
        value = self.look(name)
        if value is None:
            if self.room.is_full:
                self.examine(len(self), now, is_urgent=True)
            if not self.room.reserve():
                return None
            value = self._make()
            self.put(name, value)
        return value

    def forget(self, name: Name) -> None:
        """Drop what is there."""
        if self.look(name) is not None:
            self.pop(name)
            self.room.release()

    def is_over(self, key: Name, value: V, now: int) -> bool:
        return value.is_over(now)


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
    operation: GrantLease, counter: Opened, ledgers: ExpiringTable[Ledger], now: int
) -> LeaseGrant:
    """Carry *operation* out on its *counter*."""
    check, holder = operation.check, operation.holder
    known = ledgers.open((check.group, check.key), now)
    ledger = Ledger() if known is None else known
    counter.charge(ledger.close_expired(now, operation.ttl_ns))
    account = ledger.accounts.get(holder) or Account()
    counter.charge(account.report(operation.used, operation.told))
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


def _grant(operation: GrantLease, counter: Opened, account: Account, amount: int, now: int) -> int:
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


def new_usage(operation: MergeUsage, check: Check, totals: ExpiringTable[Totals], now: int) -> int:
    """Return how much of the usage that *operation* reports of *check* is to be charged.

    Nothing, if there is no room to remember it.
    """
    found = totals.open((check.group, check.key), now)
    if found is None:
        return 0
    until = now + operation.ttl_ns
    return found.merge(operation.origin, operation.window, check.cost, until=until, now=now)


class Value(NamedTuple):
    """What one origin published, until it expires."""

    value: float
    weight: float
    expires: int
    lasts: int

    def counts(self, now: int) -> bool:
        """Return True if it has not expired and was not published before a step back."""
        return now < self.expires <= now + 2 * self.lasts


class Values:
    """What each origin published about one thing."""

    __slots__ = ("_by_origin",)

    def __init__(self) -> None:
        self._by_origin: dict[str, Value] = {}

    def is_over(self, now: int) -> bool:
        """Return True if all have expired."""
        return not any(one.counts(now) for one in self._by_origin.values())

    def read(self, now: int) -> PublishedValues:
        """Return all that have not expired."""
        live = [(origin, one) for origin, one in self._by_origin.items() if one.counts(now)]
        self._by_origin = dict(live)
        return tuple([(origin, one.value, one.weight) for origin, one in live])

    def publish(self, operation: PublishValue, now: int) -> None:
        """Keep the value of *operation*, if there is room for another origin."""
        origin, lasts = operation.origin, operation.ttl_ns
        self.read(now)
        if origin in self._by_origin or len(self._by_origin) < MOST_PUBLISHERS:
            value = Value(operation.value, operation.weight, now + lasts, lasts)
            self._by_origin[origin] = value


def publish(operation: PublishValue, values: ExpiringTable[Values], now: int) -> PublishedValues:
    """Carry *operation* out. Nothing is kept or returned if there is no room for the thing."""
    name, is_published = (operation.group, operation.key), operation.weight > 0
    found = values.open(name, now) if is_published else values.look(name)
    if found is None:
        return ()
    if is_published:
        found.publish(operation, now)
    return found.read(now)
