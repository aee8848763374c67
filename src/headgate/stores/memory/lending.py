"""Lending out of counters, pots, and what was used elsewhere: the verbs of stores that lend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.stores.memory.ledger import Account, Ledger, kept_for
from headgate.stores.memory.margin import Margin
from headgate.stores.memory.pots import Pot
from headgate.stores.memory.totals import Totals
from headgate.stores.operations import Absorb, Check, Draw, Lend, Lent, Pour

if TYPE_CHECKING:
    from headgate.stores.memory.opened import Opened


class Lending:
    """What stands beside the counters of a store, at most *most* of a kind. The caller has the
    store's turn."""

    __slots__ = ("ledgers", "pots", "totals")

    def __init__(self, most: int) -> None:
        self.ledgers = Margin(Ledger, most)
        self.pots = Margin(Pot, most)
        self.totals = Margin(Totals, most)

    def __len__(self) -> int:
        return len(self.ledgers) + len(self.pots) + len(self.totals)

    def forget(self, check: Check) -> None:
        """Forget all loans of the counter of *check*. What was told of it from elsewhere stays
        known: it will be told again, and must not be charged again."""
        self.ledgers.forget((check.group, check.key))

    def pour(self, operation: Pour, now: int) -> int:
        """Carry *operation* out. When there is no room for another pot, it is poured away."""
        pot = self.pots.open((operation.group, operation.key), now)
        return 0 if pot is None else pot.pour(operation.amount, operation.ttl_ns, now)

    def draw(self, operation: Draw, now: int) -> int | None:
        pot = self.pots.look((operation.group, operation.key)) or Pot()
        return pot.draw(operation.amount, now)

    def absorb(self, operation: Absorb, check: Check, now: int) -> int:
        """How much is to be charged of what *operation* tells of *check*.

        Nothing, if there is no room to remember that it was.
        """
        totals = self.totals.open((check.group, check.key), now)
        if totals is None:
            return 0
        until = now + operation.ttl_ns
        return totals.absorb(operation.origin, operation.window, check.cost, until=until, now=now)

    def lend(self, operation: Lend, counter: Opened, now: int) -> Lent:
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
        return Lent(outcome, account.amount, lasts_ns, ledger.holders, ledger.lent, wait_ns)


def _lend(
    operation: Lend, counter: Opened, ledger: Ledger, account: Account, *, now: int, least: int
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
