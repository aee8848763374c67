"""What a node has borrowed of each counter: the whole logic of leases and licences.

No I/O, no clock, no thread: the time of the node comes in as *now_ns*, what the store said as a
`Lent`. A shell asks `begin` for what can be decided here, sends what `ask` and `due` hand out, and
tells `heard` or `lost` of every `Lend`, one of the two, once.

What keeps the bound, whatever is lost, late, repeated or paused:

- Units are used only before the loan lapses, by the node's own clock from before it asked.
- One `Lend` of a counter is under way at a time, and what it reports as unused is gone at once.
- After one was lost, nobody knows if or when the store will carry it out. So this node borrows
  under another name from then on: what arrives late touches only what was given up.
- Of a licence the use until the answer comes is told in advance (`ahead`), so it is charged before
  it happens or covered by the licence before. What was told and not heard is told again, under the
  name of then, until it is.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from headgate.limits import PacedLimit
from headgate.stores.leased.debts import Debts
from headgate.stores.leased.denials import Denials
from headgate.stores.leased.dues import Dues
from headgate.stores.leased.loans import Loan
from headgate.stores.leased.served import Begun, Bound, Served, Taken
from headgate.stores.leased.sketch import HeavyHitters
from headgate.stores.leased.tables import Tables
from headgate.stores.operations import Check
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.algorithms import Outcome
    from headgate.limits import Limit
    from headgate.stores.leased.loans import Table
    from headgate.stores.operations import Lend, Lent
    from headgate.stores.port import Terms

MOST_LOANS: Final = 10_000
MOST_DUE: Final = 256
"""What is handed out at a time of what is due."""
EARLY: Final = 4
"""What is left in the last quarter of a loan's life is given back."""


class Book:
    """The loans of one node, which is known to the store as *holder*. Not safe among threads."""

    def __init__(self, holder: str, *, most_loans: int = MOST_LOANS) -> None:
        self.most_loans = most_loans
        self._tables = Tables()
        self.begin_anew(holder)

    def begin_anew(self, holder: str) -> None:
        """Forget all loans, as they are somebody else's: this is a forked process."""
        for table in self._tables:
            table.loans.clear()
            table.crowded.clear()
            self._tables.number(table)
        self._holder = holder
        self._random = Random(holder)  # noqa: S311 (spreads exchanges over time, nothing more)
        self._names = 0
        self._told = 0
        self._count = 0
        self.served = 0
        """Units served from loans so far, as far as they have been counted."""
        self._dues = Dues()
        self._debts = Debts()
        self._returns: list[Lend] = []
        self.heavy = HeavyHitters()
        self.denials = Denials(self.most_loans)

    def adopt(self, terms: Terms) -> None:
        """Keep the groups as exactly as *terms* say; loans of others are due to be given back."""
        changed, gone = self._tables.adopt(terms)
        for group in changed:
            self.denials.forget_group(group)
        for table in gone:
            self._close_table(table)

    def governs(self, group: str) -> bool:
        """Whether anything but asking the store is to be done for *group*."""
        return group in self._tables.terms

    def table(self, group: str, limit: Limit) -> Table | None:
        """Where the loans of *group* under *limit* are; None if it is kept exactly."""
        table, ousted = self._tables.open(group, limit)
        if ousted is not None:
            self._close_table(ousted)
        return table

    def serve(self, checks: Sequence[Check], now_ns: int) -> list[Served] | None:
        """Take all *checks* if all fit, else none; None, and nothing is done, if only the store can
        tell."""
        begun = self.begin(checks, now_ns)
        if begun.rest:
            self.put_back(begun.taken)
            return None
        return [one for one in begun.served if one is not None]

    def begin(self, checks: Sequence[Check], now_ns: int) -> Begun:
        """Take what can be taken here; the rest is for the store. If anything is refused here
        nothing is taken."""
        served: list[Served | None] = []
        rest, taken = [], []
        is_refused = False
        for check in checks:
            table = self.table(check.group, check.limit)
            found = None if table is None else self._look(table, check, now_ns)
            if isinstance(found, Taken):
                taken.append(found)
                served.append(Served(found.table.outcome(found.loan, now_ns), found.table.source))
                continue
            if found is None:
                rest.append(check)
            else:
                is_refused = True
            served.append(found)
        if is_refused:
            self.put_back(taken)
            taken = []
        return Begun(served, tuple(rest), taken, is_refused)

    def put_back(self, taken: Sequence[Taken]) -> None:
        """Undo what was taken, where the loan is still the same."""
        for one in taken:
            if one.loan.serial == one.serial:
                one.loan.left += one.cost

    def ask(self, check: Check, now_ns: int, *, takes: bool = True) -> Lend | None:
        """What to ask of the store for *check*, which `begin` left over; None: not worth a loan, or
        another is under way: an ordinary take. With `takes=False` it only borrows for it."""
        table = self.table(check.group, check.limit)
        if table is None:
            return None
        loan = table.loans.get(check.key)
        per_second = self._demand(table, check, loan, now_ns)
        most = table.size.most(check.cost if takes else 0, per_second, table.holders)
        if loan is None:
            loan = self._new_loan(table, check) if most else None
        elif loan.flight is not None or (not most and not loan.has(1, now_ns)):
            return None
        if loan is None:
            return None
        asked = check if takes else Check(check.group, check.key, check.limit, 0)
        return self._sent(table, loan, asked, most, now_ns)

    def is_asking(self, check: Check) -> bool:
        """Whether a loan for *check* is under way that is worth waiting for."""
        table = self.table(check.group, check.limit)
        loan = None if table is None else table.loans.get(check.key)
        return loan is not None and loan.flight is not None and loan.flight.most > 0

    def heard(self, lend: Lend, lent: Lent, sent_ns: int, now_ns: int) -> None:
        """The store answered *lend*, which was sent at *sent_ns*."""
        if self._debts.settle(lend):
            return
        table, loan = self._waiting_for(lend)
        if table is None or loan is None:
            return
        check, size = lend.check, table.size
        if used := self._counted(loan):
            self.heavy.add(check.group, check.key, used, now_ns)
        loan.hear(lend, lent, sent_ns, now_ns)
        table.holders = max(1, lent.holders)
        self.note(check, lent.outcome, sent_ns)
        if lend.most == 0 or (not lent.amount and now_ns >= loan.dry_until_ns):
            if lend.most and size.split is not None:
                table.note_crowd(check.key, now_ns + size.life_ns, loan.facts)
            self._drop(table, check.key)
            return
        due_ns = loan.lapses_ns
        if lent.lasts_ns == size.life_ns or not isinstance(check.limit, PacedLimit):
            due_ns -= lent.lasts_ns // EARLY  # else it is as new then: nothing to give back
        if size.sync_ns is not None:
            due_ns = sent_ns + int(size.sync_ns * self._random.uniform(0.8, 1.0))
        if not lent.amount:
            due_ns = loan.dry_until_ns + size.life_ns
        self._dues.add(due_ns, table, check.key, loan)

    def lost(self, lend: Lend, now_ns: int) -> None:
        """Nobody knows what became of *lend*, nor will."""
        self._names += 1
        if lend in self._debts:
            return
        if lend.used > lend.told:
            self._debts.add(lend, now_ns)
        table, loan = self._waiting_for(lend)
        if table is None or loan is None:
            return
        if not loan.has(1, now_ns):
            self._drop(table, lend.check.key)
            return
        # A licence: what was told in advance may be used until it lapses.
        left = table.loans[lend.check.key] = Loan(self._new_name(table), self._told)
        left.left = left.lent = left.counted = left.ahead = loan.left
        left.wanted = loan.wanted
        left.lapses_ns, left.facts, left.sent_ns = loan.lapses_ns, loan.facts, loan.sent_ns
        self._dues.add(left.lapses_ns, table, lend.check.key, left)

    def note(self, check: Check, outcome: Outcome, sent_ns: int) -> None:
        """Remember what the store refused, if the terms say so."""
        if outcome.allowed:
            return
        accuracy = self._tables.terms.get(check.group)
        if accuracy is not None:
            keep_ns = accuracy.remembers_ns
            self.denials.note(check.group, check.key, check.cost, outcome, sent_ns, keep_ns)

    def due(self, now_ns: int, *, most: int = MOST_DUE) -> list[Lend]:
        """What is to be told to the store by now: what is given back, and what licences used."""
        lends = self._returns[:most]
        del self._returns[:most]
        lends += self._debts.due(now_ns)
        while len(lends) < most:
            found = self._dues.pop(now_ns)
            if found is None:
                break
            table, key, loan = found
            if table.loans.get(key) is loan and loan.flight is None:
                lend = self._routine(table, key, loan, now_ns)
                if lend is not None:
                    lends.append(lend)
        return lends

    def next_due_ns(self) -> int | None:
        """When `due` has something to hand out; None: never, as it looks."""
        times = [self._dues.first_ns, self._debts.first_ns, 0 if self._returns else None]
        return min((time for time in times if time is not None), default=None)

    def close(self, now_ns: int) -> list[Lend]:
        """All that is to be given back and told at the end; nothing is lent any more."""
        for table in self._tables.adopt({})[1]:
            self._close_table(table, now_ns)
        lends = self._returns + self._debts.all()
        self._returns = []
        return lends

    def refunded(self, group: str, key: str) -> None:
        """Something was given back to a counter: a refusal may not be true any more."""
        self.denials.forget(group, key)
        for table in self._tables.of_group(group):
            loan = table.loans.get(key)
            if loan is not None:
                loan.dry_until_ns = 0

    def forget(self, group: str, key: str) -> None:
        """A counter was reset: nothing is lent of it any more, nor used."""
        self.denials.forget(group, key)
        for table in self._tables.of_group(group):
            if key in table.loans:
                self._drop(table, key)
                self._names += 1

    def __len__(self) -> int:
        """How many counters something is lent of, or asked for."""
        return self._count

    def units_held(self) -> int:
        """What is lent and not used, lapsed or not."""
        return sum(loan.left for table in self._tables for loan in list(table.loans.values()))

    def bounds(self) -> list[Bound]:
        """The bound of each group that is not kept exactly."""
        return [
            Bound(
                table.group,
                table.holders,
                table.size.cap,
                table.size.batch,
                table.size.bound(table.holders),
            )
            for table in self._tables
            if table.size.lends
        ]

    def _look(self, table: Table, check: Check, now_ns: int) -> Taken | Served | None:
        cost = check.cost
        loan = table.loans.get(check.key)
        if loan is not None and cost > 0:
            if loan.has(cost, now_ns):
                loan.left -= cost
                return Taken(table, loan, loan.serial, cost)
            if loan.refuses(cost, now_ns):
                return Served(table.refusal(loan, now_ns), table.source)
        denial = self.denials.find(check.group, check.key, cost, now_ns)
        return None if denial is None else Served(denial, "cache")

    def _demand(self, table: Table, check: Check, loan: Loan | None, now_ns: int) -> float:
        """Units per second that are asked of a key, *check* included."""
        used = 0
        lately = 0.0
        if loan is not None and loan.flight is None:
            used = self._counted(loan)
            if used and not loan.left:
                lately = used * SECOND / max(1, now_ns - loan.sent_ns)
                lately = min(lately, table.size.growth(loan.wanted))
        per_second = self.heavy.add(check.group, check.key, check.cost + used, now_ns)
        return max(per_second, lately)

    def count(self, group: str, key: str, loan: Loan, now_ns: int) -> None:
        """Count what was used of *loan* so far."""
        self.heavy.add(group, key, self._counted(loan), now_ns)

    def _counted(self, loan: Loan) -> int:
        """What was used of *loan* since it was last counted."""
        used = loan.counted - loan.left
        loan.counted = loan.left
        self.served += used
        return used

    def _new_loan(self, table: Table, check: Check) -> Loan | None:
        if self._count >= self.most_loans:
            self._dues.hasten()
            return None
        self._count += 1
        loan = table.loans[check.key] = Loan(self._new_name(table), self._told)
        return loan

    def _sent(self, table: Table, loan: Loan, check: Check, most: int, now_ns: int) -> Lend:
        """*check* and a loan of *most* units, asked for now."""
        lend = loan.send(table.size, check, most, now_ns)
        self._told = max(self._told, lend.used + most)
        return lend

    def _routine(self, table: Table, key: str, loan: Loan, now_ns: int) -> Lend | None:
        """What is to be told of *loan*, which is due."""
        check = Check(table.group, key, table.limit, 0)
        used = self._counted(loan)
        per_second = self.heavy.add(table.group, key, used, now_ns)
        if table.size.is_charged:
            if loan.has(1, now_ns):
                return self._sent(table, loan, check, 0, now_ns)
            self._drop(table, key)
            return None
        most = 0
        if used:
            most = table.size.most(0, per_second, table.holders)
        if not used and loan.used == loan.told and not loan.has(1, now_ns):
            self._drop(table, key)
            return None
        return self._sent(table, loan, check, most, now_ns)

    def _waiting_for(self, lend: Lend) -> tuple[Table | None, Loan | None]:
        """The loan that *lend* is about, if it still is."""
        table = self._tables.find(lend.check.group, lend.check.limit)
        loan = None if table is None else table.loans.get(lend.check.key)
        if loan is None or loan.flight is not lend:
            return None, None
        return table, loan

    def _drop(self, table: Table, key: str) -> None:
        del table.loans[key]
        self._count -= 1

    def _close_table(self, table: Table, now_ns: int | None = None) -> None:
        """Have all loans of *table*, which is gone, given back."""
        for key, loan in list(table.loans.items()):
            if loan.flight is None and (loan.left or loan.used > loan.told):
                check = Check(table.group, key, table.limit, 0)
                at_ns = loan.sent_ns if now_ns is None else now_ns
                self._returns.append(self._sent(table, loan, check, 0, at_ns))
            loan.left = 0
            self._drop(table, key)

    def _new_name(self, table: Table) -> str:
        return f"{self._holder}.{table.number}.{self._names}"
