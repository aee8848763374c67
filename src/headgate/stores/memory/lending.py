"""Lending out of counters, pots, and what was used elsewhere: the verbs of stores that lend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.stores.memory.tables import Margin
from headgate.stores.operations import Check, GrantLease, LeaseGrant, MergeUsage
from headgate.units import HOUR, MINUTE

if TYPE_CHECKING:
    from headgate.stores.memory.transactions import Opened, Place


# Who has how much of one counter on loan, and what is known of what they used.
#
# A loan is open until its holder comes again or it lapses. A lease was charged when it was lent, so
# that one which lapses needs nothing. A licence was not: when it is seen to have lapsed, all of it
# is charged, and remembered as paid. What its holder then tells of is charged only beyond that,
# once: in its next call the holder has told all that it used of the lapsed licence, and what it
# uses from then on is charged anew. (To let it live on what was paid and not used would allow it,
# and all that do the same, to go beyond the limit by any amount.)
#
# A holder is remembered for a while after its last call, so that what it tells twice is charged
# once. All that happens by itself, a loan lapsing or a holder being forgotten, is done in
# `close_lapsed`, and not before `due`: so most calls look at one holder only.


MOST_HOLDERS: Final = 1000
"""Holders that a ledger knows. Beyond them nothing is lent."""
NEVER: Final = 2**63


def kept_for(ttl_ns: int) -> int:
    """How long a holder is remembered after it came last, or its loan lapsed."""
    return min(max(10 * ttl_ns, MINUTE), HOUR)


@dataclass(slots=True)
class Account:
    """What one holder has, and what is known of it."""

    amount: int = 0
    """Units on loan; 0 if there is no loan."""
    lapses: int = 0
    is_charged: bool = True
    place: Place = ()
    """Where the loan was charged."""
    used: int = 0
    """The most that it said it had used without its being charged."""
    paid: int = 0
    """What of that, beyond *used*, was charged when its licence lapsed."""
    kept_ns: int = 0
    forgotten_at: int = 0

    @property
    def says_nothing(self) -> bool:
        return not (self.amount or self.used or self.paid)


class Ledger:
    """The accounts of one counter."""

    __slots__ = ("_accounts", "due", "holders", "lent")

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self.due = NEVER
        """Before this nothing happens by itself."""
        self.lent = 0
        """Units on loan, all together."""
        self.holders = 0
        """How many have something on loan."""

    def is_over(self, now: int) -> bool:
        """Whether nothing here says anything any more."""
        return all(account.forgotten_at <= now for account in self._accounts.values())

    def close_lapsed(self, now: int) -> int:
        """Close what has lapsed, forget who was not seen for long; how much is to be charged."""
        if now < self.due:
            return 0
        charged = 0
        for holder, account in list(self._accounts.items()):
            if account.forgotten_at <= now:
                self._end(account)
                del self._accounts[holder]
            elif account.amount and account.lapses <= now:
                if not account.is_charged:
                    charged += account.amount
                    account.paid = account.amount
                self._end(account)
                self.keep(holder, account, now)
        self.due = min(map(_due, self._accounts.values()), default=NEVER)
        return charged

    def open(self, holder: str, used: int, told: int) -> tuple[Account, int]:
        """The account of *holder*, and how much of what it *used* is to be charged."""
        account = self._accounts.get(holder)
        if account is None:
            account = Account()
        fresh = used - max(account.used, told) - account.paid
        account.used = max(account.used, used, told)
        account.paid = 0
        return account, max(0, fresh)

    def end(self, account: Account, unused: int) -> tuple[int, int]:
        """End the loan; how much of a lease is to be given back, of a licence to be lent anew."""
        units = min(unused, account.amount)
        self._end(account)
        return (units, 0) if account.is_charged else (0, units)

    def has_room_for(self, holder: str) -> bool:
        return holder in self._accounts or len(self._accounts) < MOST_HOLDERS

    def lend(self, account: Account, amount: int, *, lapses: int, is_charged: bool) -> None:
        """Put down that *amount* was lent to the holder of *account*, which has nothing else."""
        account.amount, account.lapses, account.is_charged = amount, lapses, is_charged
        self.lent += amount
        self.holders += 1

    def keep(self, holder: str, account: Account, now: int) -> None:
        """Put *account* back, if it says anything; an open loan is kept for as long after it."""
        if account.says_nothing:
            self._accounts.pop(holder, None)
        elif self.has_room_for(holder):
            account.forgotten_at = max(now, account.lapses if account.amount else 0)
            account.forgotten_at += account.kept_ns
            self._accounts[holder] = account
            self.due = min(self.due, _due(account))

    def _end(self, account: Account) -> None:
        if account.amount:
            self.lent -= account.amount
            self.holders -= 1
            account.amount = 0


def _due(account: Account) -> int:
    return account.lapses if account.amount else account.forgotten_at


# How much of one counter was used elsewhere, as far as it was told here.
#
# Each origin tells totals of numbered windows that only grow. The largest so far is kept of the
# latest window and of the one before, so what is told twice, late or in another order is counted
# once, and what is told of older windows not at all.


MOST_ORIGINS: Final = 1000
"""Origins that are known of one counter. What further ones tell is not charged."""


@dataclass(slots=True)
class _Told:
    """What one origin has told of *window* and of the one before it."""

    window: int
    total: int
    before: int
    forgotten_at: int


class Totals:
    """What all origins have told of one counter."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}

    def is_over(self, now: int) -> bool:
        """Whether all of it may be forgotten."""
        return all(told.forgotten_at <= now for told in self._told.values())

    def absorb(self, origin: str, window: int, total: int, *, until: int, now: int) -> int:
        """Put down the *total* of *window*; how much of it had not been told before."""
        told = self._told.get(origin)
        if told is None or told.forgotten_at <= now:
            if told is None and not self._make_room(now):
                return 0
            self._told[origin] = _Told(window, total, 0, until)
            return total
        told.forgotten_at = max(told.forgotten_at, until)
        if window > told.window:
            told.before = told.total if window == told.window + 1 else 0
            told.window, told.total = window, 0
        if window == told.window:
            fresh = max(0, total - told.total)
            told.total += fresh
        elif window == told.window - 1:
            fresh = max(0, total - told.before)
            told.before += fresh
        else:
            fresh = 0
        return fresh

    def _make_room(self, now: int) -> bool:
        if len(self._told) >= MOST_ORIGINS:
            self._told = {
                origin: told for origin, told in self._told.items() if told.forgotten_at > now
            }
        return len(self._told) < MOST_ORIGINS


class Lending:
    """What stands beside the counters of a store, at most *most* of a kind. The caller has the
    store's turn."""

    __slots__ = ("ledgers", "totals")

    def __init__(self, most: int) -> None:
        self.ledgers = Margin(Ledger, most)
        self.totals = Margin(Totals, most)

    def __len__(self) -> int:
        return len(self.ledgers) + len(self.totals)

    def forget(self, check: Check) -> None:
        """Forget all loans of the counter of *check*. What was told of it from elsewhere stays
        known: it will be told again, and must not be charged again."""
        self.ledgers.forget((check.group, check.key))

    def absorb(self, operation: MergeUsage, check: Check, now: int) -> int:
        """How much is to be charged of what *operation* tells of *check*.

        Nothing, if there is no room to remember that it was.
        """
        totals = self.totals.open((check.group, check.key), now)
        if totals is None:
            return 0
        until = now + operation.ttl_ns
        return totals.absorb(operation.origin, operation.window, check.cost, until=until, now=now)

    def lend(self, operation: GrantLease, counter: Opened, now: int) -> LeaseGrant:
        """Carry *operation* out on its *counter*."""
        check, holder = operation.check, operation.holder
        known = self.ledgers.open((check.group, check.key), now)
        ledger = Ledger() if known is None else known
        counter.charge(ledger.close_lapsed(now))
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
            lasts_ns = _lend(operation, counter, ledger, account, now=now, least=least)
        ledger.keep(holder, account, now)
        counter.close()
        wait_ns = counter.wait_anew(check.cost + operation.most)
        return LeaseGrant(outcome, account.amount, lasts_ns, ledger.holders, ledger.lent, wait_ns)


def _lend(
    operation: GrantLease,
    counter: Opened,
    ledger: Ledger,
    account: Account,
    *,
    now: int,
    least: int,
) -> int:
    """Lend what can be lent to the holder of *account*, which has nothing; for how long."""
    amount = min(operation.most, counter.remaining)
    if operation.cap is not None:
        amount = min(amount, operation.cap - ledger.lent)
    if not operation.is_charged:
        amount = max(amount, min(least, operation.most))
    if amount <= 0 or operation.ttl_ns <= 0:
        return 0
    ends_in_ns = counter.ends_in(amount)
    lasts_ns = min(operation.ttl_ns, ends_in_ns)
    account.kept_ns = max(account.kept_ns, ends_in_ns)
    ledger.lend(account, amount, lapses=now + lasts_ns, is_charged=operation.is_charged)
    if operation.is_charged:
        counter.charge(amount)
        account.place = counter.place
    return lasts_ns
