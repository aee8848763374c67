"""Who has how much of one counter on loan, and what is known of what they used.

A loan is open until its holder comes again or it lapses. A lease was charged when it was lent, so
that one which lapses needs nothing. A licence was not: when it is seen to have lapsed, all of it is
charged, and remembered as paid. What its holder then tells of is charged only beyond that, once: in
its next call the holder has told all that it used of the lapsed licence, and what it uses from then
on is charged anew. (To let it live on what was paid and not used would allow it, and all that do
the same, to go beyond the limit by any amount.)

A holder is remembered for a while after its last call, so that what it tells twice is charged once.
All that happens by itself, a loan lapsing or a holder being forgotten, is done in `close_lapsed`,
and not before `due`: so most calls look at one holder only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.units import HOUR, MINUTE

if TYPE_CHECKING:
    from headgate.stores.memory.places import Place

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
