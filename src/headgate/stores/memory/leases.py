"""Tables beside the counters of a shard: leases, usage of regions, published values.

All three are kept by group and key and vanish when they have no effect any more.

The **ledger** of a counter records which holder has how many units on lease. A lease is open until
its holder comes again or it expires. A charged lease was charged when it was granted, so one that
expires needs nothing. An uncharged lease is charged in full when it is seen to have expired, and
recorded as paid. What its holder then reports is charged only beyond that, once: its next call
reports all that it used of the expired lease, and later usage is charged again. (To let a holder
use up later what was paid and not used would let it exceed the limit by any amount.)

A holder is remembered for a while after its last call, so that usage that is reported twice is
charged once. All that happens by itself, an expiry or the removal of a holder, happens in
`close_expired`, and not before `due`: so most calls look at one holder only.

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
    MOST_ORIGINS as MOST_PUBLISHERS,
)
from headgate.stores.operations import (
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
NEVER: Final = 2**63

Name = tuple[str, str]
"""The group and the key of a counter."""


class Expiring(Protocol):
    """Something that has no effect any more after a while."""

    def is_over(self, now: int) -> bool:
        """Return True if it has no effect any more."""


V = TypeVar("V", bound=Expiring)


class Beside(Aging[Name, V]):
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


def kept_for(ttl_ns: int) -> int:
    """Return how long a holder is remembered after its last call, or after its lease expired."""
    return min(max(10 * ttl_ns, MINUTE), HOUR)


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
    forgotten_at: int = 0

    @property
    def is_empty(self) -> bool:
        """True if nothing has to be remembered of it."""
        return not (self.amount or self.used or self.paid)


class Ledger:
    """The accounts of one counter."""

    __slots__ = ("_accounts", "due", "holders", "leased")

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self.due = NEVER
        """Before this nothing happens by itself."""
        self.leased = 0
        """Units on lease, all together."""
        self.holders = 0
        """Holders that have something on lease."""

    def is_over(self, now: int) -> bool:
        """Return True if nothing here has an effect any more."""
        return all(account.forgotten_at <= now for account in self._accounts.values())

    def rebase(self, now: int, ttl_ns: int) -> None:
        """Let no lease expire later than *ttl_ns* from *now*."""
        for account in self._accounts.values():
            if account.amount and account.expires > now + ttl_ns:
                account.expires = now + ttl_ns
                account.forgotten_at = account.expires + account.kept_ns
                self.due = min(self.due, account.expires)

    def close_expired(self, now: int) -> int:
        """Close what has expired, forget idle holders; return how much is to be charged."""
        if now < self.due:
            return 0
        charged = 0
        for holder, account in list(self._accounts.items()):
            if account.forgotten_at <= now:
                self._end(account)
                del self._accounts[holder]
            elif account.amount and account.expires <= now:
                if not account.is_charged:
                    charged += account.amount
                    account.paid = account.amount
                self._end(account)
                self.keep(holder, account, now)
        self.due = min(map(_due, self._accounts.values()), default=NEVER)
        return charged

    def open(self, holder: str, used: int, told: int) -> tuple[Account, int]:
        """Return the account of *holder*, and how much of what it *used* is to be charged."""
        account = self._accounts.get(holder)
        if account is None:
            account = Account()
        fresh = used - max(account.used, told) - account.paid
        account.used = max(account.used, used, told)
        account.paid = 0
        return account, max(0, fresh)

    def end(self, account: Account, unused: int) -> tuple[int, int]:
        """End the lease; return how much to give back if charged, to grant again if uncharged."""
        units = min(unused, account.amount)
        self._end(account)
        return (units, 0) if account.is_charged else (0, units)

    def has_room_for(self, holder: str) -> bool:
        """Return True if *holder* can have an account."""
        return holder in self._accounts or len(self._accounts) < MOST_HOLDERS

    def grant(self, account: Account, amount: int, *, expires: int, is_charged: bool) -> None:
        """Record a lease of *amount* for the holder of *account*, which has none."""
        account.amount, account.expires, account.is_charged = amount, expires, is_charged
        self.leased += amount
        self.holders += 1

    def keep(self, holder: str, account: Account, now: int) -> None:
        """Keep *account* if it is not empty; with an open lease, for as long after that."""
        if account.is_empty:
            self._accounts.pop(holder, None)
        elif self.has_room_for(holder):
            account.forgotten_at = max(now, account.expires if account.amount else 0)
            account.forgotten_at += account.kept_ns
            self._accounts[holder] = account
            self.due = min(self.due, _due(account))

    def _end(self, account: Account) -> None:
        if account.amount:
            self.leased -= account.amount
            self.holders -= 1
            account.amount = 0


def _due(account: Account) -> int:
    return account.expires if account.amount else account.forgotten_at


def grant_lease(
    operation: GrantLease, counter: Opened, ledgers: Beside[Ledger], now: int
) -> LeaseGrant:
    """Carry *operation* out on its *counter*."""
    check, holder = operation.check, operation.holder
    known = ledgers.open((check.group, check.key), now)
    ledger = Ledger() if known is None else known
    if operation.ttl_ns > 0:
        ledger.rebase(now, operation.ttl_ns)
    counter.charge(ledger.close_expired(now))
    account, used = ledger.open(holder, operation.used, operation.told)
    counter.charge(used)
    back, least = ledger.end(account, operation.unused)
    counter.give_back(back, account.place)
    wait = counter.wait(check.cost)
    if wait == 0:
        counter.charge(check.cost)
    outcome = counter.outcome(wait)
    account.kept_ns = kept_for(operation.ttl_ns)
    lasts_ns = 0
    if outcome.allowed and known and counter.is_own and ledger.has_room_for(holder):
        lasts_ns = _grant(operation, counter, ledger, account, now=now, least=least)
    ledger.keep(holder, account, now)
    counter.close()
    wait_ns = counter.wait_again(check.cost + operation.most)
    return LeaseGrant(outcome, account.amount, lasts_ns, ledger.holders, ledger.leased, wait_ns)


def _grant(
    operation: GrantLease,
    counter: Opened,
    ledger: Ledger,
    account: Account,
    *,
    now: int,
    least: int,
) -> int:
    """Grant what fits to the holder of *account*, which has no lease; return its lifetime."""
    amount = min(operation.most, counter.remaining)
    if operation.cap is not None:
        amount = min(amount, operation.cap - ledger.leased)
    if not operation.is_charged:
        amount = max(amount, min(least, operation.most))
    if amount <= 0 or operation.ttl_ns <= 0:
        return 0
    lasts_ns = counter.lasts(amount)
    account.kept_ns = max(account.kept_ns, lasts_ns)
    lasts_ns = min(operation.ttl_ns, lasts_ns)
    ledger.grant(account, amount, expires=now + lasts_ns, is_charged=operation.is_charged)
    if operation.is_charged:
        counter.charge(amount)
        account.place = counter.place
    return lasts_ns


@dataclass(slots=True)
class _Reported:
    """The usage that one origin has reported of *window* and of the one before it."""

    window: int
    total: int
    before: int
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
            self._reported[origin] = _Reported(window, total, 0, until)
            return total
        report.forgotten_at = max(report.forgotten_at, until)
        if window > report.window:
            report.before = report.total if window == report.window + 1 else 0
            report.window, report.total = window, 0
        if window == report.window:
            fresh = max(0, total - report.total)
            report.total += fresh
        elif window == report.window - 1:
            fresh = max(0, total - report.before)
            report.before += fresh
        else:
            fresh = 0
        return fresh

    def _make_room(self, now: int) -> bool:
        if len(self._reported) >= MOST_ORIGINS:
            self._reported = {
                origin: report
                for origin, report in self._reported.items()
                if report.forgotten_at > now
            }
        return len(self._reported) < MOST_ORIGINS


def new_usage(operation: MergeUsage, check: Check, totals: Beside[Totals], now: int) -> int:
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
        self._by_origin = {
            origin: one for origin, one in self._by_origin.items() if one.counts(now)
        }
        return tuple((origin, one.value, one.weight) for origin, one in self._by_origin.items())

    def publish(self, operation: PublishValue, now: int) -> None:
        """Keep the value of *operation*, if there is room for another origin."""
        origin, lasts = operation.origin, operation.ttl_ns
        if origin not in self._by_origin and len(self._by_origin) >= MOST_PUBLISHERS:
            self.read(now)
        if origin in self._by_origin or len(self._by_origin) < MOST_PUBLISHERS:
            value = Value(operation.value, operation.weight, now + lasts, lasts)
            self._by_origin[origin] = value


def publish(operation: PublishValue, values: Beside[Values], now: int) -> PublishedValues:
    """Carry *operation* out. Nothing is kept or returned if there is no room for the thing."""
    name = (operation.group, operation.key)
    if not operation.weight > 0:
        found = values.look(name)
        return () if found is None else found.read(now)
    found = values.open(name, now)
    if found is None:
        return ()
    found.publish(operation, now)
    return found.read(now)
