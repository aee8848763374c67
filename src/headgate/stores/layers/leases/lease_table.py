"""What a node has borrowed of each counter: the whole logic of leases and licences.

No I/O, no clock, no thread: the time of the node comes in as *now_ns*, what the store said as a
`LeaseGrant`. A shell asks `begin` for what can be decided here, sends what `ask` and `due` hand
out, and tells `heard` or `lost` of every `GrantLease`, one of the two, once.

What keeps the bound, whatever is lost, late, repeated or paused:

- Units are used only before the loan lapses, by the node's own clock from before it asked.
- One `GrantLease` of a counter is under way at a time; what it reports as unused is gone at once.
- After one was lost, nobody knows if or when the store will carry it out. So this node borrows
  under another name from then on: what arrives late touches only what was given up.
- What may be used of a licence until the answer comes is said with it (`unused`), and the next one
  is of as many units at least: they are covered by the one before or by the next. What was told and
  not heard is told again, under the name of then, until it is; with all that might have been used.
"""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Final

from headgate.stores.layers.leases.denials import Denials
from headgate.stores.layers.leases.lease import Loan, Table
from headgate.stores.layers.leases.served import Begun, Bound, Served, Taken
from headgate.stores.layers.leases.usage import Debts, Demand, lasts_at_most
from headgate.stores.operations import Check

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.algorithms import Outcome
    from headgate.limits import Limit
    from headgate.observability.sketches import HeavyHitters
    from headgate.stores.base import Accuracies
    from headgate.stores.operations import GrantLease, LeaseGrant


# Where the loans of each group are, by the limit they are under.


MOST_LIMITS: Final = 64
"""How many limits of one group are remembered: policies change."""


class Tables:
    """The tables of a book, made when they are first asked for, each with a number of its own."""

    def __init__(self) -> None:
        self.terms: Accuracies = {}
        self._groups: dict[str, dict[Limit, Table]] = {}
        # By the identity of limits, which each table keeps: to hash one takes longer than the rest.
        self._lately: dict[tuple[str, int], Table] = {}
        self._numbers = 0

    def __iter__(self) -> Iterator[Table]:
        for tables in list(self._groups.values()):
            yield from list(tables.values())

    def of_group(self, group: str) -> list[Table]:
        """All tables of *group*."""
        return list(self._groups.get(group, {}).values())

    def find(self, group: str, limit: Limit) -> Table | None:
        """The table of *group* under *limit*, if there is one."""
        found = self._lately.get((group, id(limit)))
        return found or self._groups.get(group, {}).get(limit)

    def open(self, group: str, limit: Limit) -> tuple[Table | None, Table | None]:
        """The table of *group* under *limit*, None if it is kept exactly; and one that had to make
        way for it."""
        table = self.find(group, limit)
        accuracy = self.terms.get(group)
        if table is not None or accuracy is None:
            return table, None
        tables = self._groups.setdefault(group, {})
        ousted = None
        if len(tables) >= MOST_LIMITS:
            ousted = next(iter(tables.values()))
            self._forget(ousted)
        table = tables[limit] = Table(group, limit, accuracy, 0)
        self._lately[group, id(limit)] = table
        self.number(table)
        return table, ousted

    def number(self, table: Table) -> None:
        """Give *table* a number that none had before."""
        self._numbers += 1
        table.number = self._numbers
        table.tag = f"{self._numbers}:{table.group}"

    def adopt(self, terms: Accuracies) -> list[Table]:
        """Take *terms* for those in force; the tables of groups that are kept otherwise now."""
        before, self.terms = self.terms, dict(terms)
        changed = {group for group in {*before, *terms} if before.get(group) != terms.get(group)}
        gone = [table for group in changed for table in self.of_group(group)]
        for table in gone:
            self._forget(table)
        return gone

    def _forget(self, table: Table) -> None:
        self._lately.pop((table.group, id(table.limit)), None)
        tables = self._groups[table.group]
        del tables[table.limit]
        if not tables:
            del self._groups[table.group]


# What is to be done about loans, the earliest first.


_Due = tuple[int, int, "Table", str, "Loan", int]


class Dues:
    """Loans and when to look at each again. One that was asked for anew since is passed over."""

    def __init__(self) -> None:
        self._heap: list[_Due] = []
        self._count = 0
        self._hastened = 0

    @property
    def first_ns(self) -> int | None:
        """When something is due; None: never."""
        if not self._heap:
            return None
        return 0 if self._hastened else self._heap[0][0]

    def add(self, due_ns: int, table: Table, key: str, loan: Loan) -> None:
        self._count += 1
        heappush(self._heap, (due_ns, self._count, table, key, loan, loan.serial))

    def hasten(self) -> None:
        """Have the first one be due now: there is no room for more."""
        self._hastened += 1

    def pop(self, now_ns: int) -> tuple[Table, str, Loan, bool] | None:
        """The next one that is due by *now_ns*, and whether it is to make way; None: there is
        none."""
        while self._heap and (self._hastened or self._heap[0][0] <= now_ns):
            _, _, table, key, loan, serial = heappop(self._heap)
            if loan.serial == serial:
                makes_way = self._hastened > 0
                self._hastened -= makes_way
                return table, key, loan, makes_way
        self._hastened = 0
        return None


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
        self.after_fork(holder)

    def after_fork(self, holder: str) -> None:
        """Forget all loans, as they are somebody else's: this is a forked process."""
        for table in self._tables:
            table.loans.clear()
            self._tables.number(table)
        self._holder = holder
        self._random = Random(holder)  # noqa: S311 (spreads exchanges over time, nothing more)
        self._names = 0
        self._told = 0
        self._count = 0
        self.demand = Demand()
        self._dues = Dues()
        self._debts = Debts()
        self._errands: list[GrantLease] = []
        self._wishes: dict[tuple[str, str], Check] = {}
        self.denials = Denials(self.most_loans)

    def adopt(self, terms: Accuracies) -> None:
        """Keep the groups as exactly as *terms* say; loans of others are due to be given back."""
        for table in self._tables.adopt(terms):
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
                served.append(Served(found.table.outcome(found.loan, now_ns)))
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

    def ask(self, check: Check, now_ns: int, *, takes: bool = True) -> GrantLease | None:
        """What to ask of the store for *check*, which `begin` left over; None: not worth a loan, or
        another is under way: an ordinary take. With `takes=False` it only borrows for it."""
        table = self.table(check.group, check.limit)
        if table is None:
            return None
        loan = table.loans.get(check.key)
        per_second = self.demand.of_check(table, check, loan, now_ns)
        lasts_ns = lasts_at_most(table, loan, now_ns)
        cost = check.cost if takes else 0
        sharers = table.holders if loan is None else loan.sharers
        spare = None if loan is None else loan.spare
        most = table.size.most(cost, per_second, sharers, lasts_ns=lasts_ns, spare=spare)
        if loan is None:
            loan = self._new_loan(table, check) if most else None
        elif loan.flight is not None or (not most and not loan.has(1, now_ns)):
            return None
        if loan is None:
            return None
        asked = check if takes else Check(check.group, check.key, check.limit, 0)
        return self._sent(table, loan, asked, most, now_ns)

    def borrow_soon(self, check: Check, now_ns: int) -> None:
        """Have `due` hand out what to ask for, should *check* be worth a loan."""
        table = self.table(check.group, check.limit)
        if table is None or len(self._wishes) >= MOST_DUE:
            return
        loan = table.loans.get(check.key)
        per_second = self.demand.of_check(table, check, loan, now_ns)
        if table.size.most(0, per_second, 1) and (loan is None or loan.flight is None):
            self._wishes[check.group, check.key] = replace(check, cost=0)

    def asking(self, check: Check) -> GrantLease | None:
        """The loan for *check* that is under way, if it is worth waiting for."""
        table = self.table(check.group, check.limit)
        loan = None if table is None else table.loans.get(check.key)
        flight = None if loan is None else loan.flight
        return flight if flight is not None and flight.most > 0 else None

    def heard(self, lend: GrantLease, lent: LeaseGrant, sent_ns: int, now_ns: int) -> None:
        """The store answered *lend*, which was sent at *sent_ns*."""
        if self._debts.settle(lend):
            return
        table, loan = self._waiting_for(lend)
        if table is None or loan is None:
            self._give_back(lend, lent)
            return
        check, size = lend.check, table.size
        self.demand.count(check.group, check.key, loan, now_ns)
        loan.hear(lend, lent, sent_ns, now_ns)
        table.holders = max(1, lent.holders)
        self.note(check, lent.outcome, sent_ns)
        if lend.most == 0 or (not lent.amount and now_ns >= loan.dry_until_ns):
            self._drop(table, check.key)
            return
        due_ns = loan.lapses_ns
        if lent.lasts_ns > size.life_ns // EARLY:  # else the window ends, and nobody could use it
            due_ns -= lent.lasts_ns // EARLY
        if size.sync_ns is not None:
            due_ns = sent_ns + int(size.sync_ns * self._random.uniform(0.8, 1.0))
        if not lent.amount:
            due_ns = loan.dry_until_ns + size.life_ns
        self._dues.add(due_ns, table, check.key, loan)

    def lost(self, lend: GrantLease, now_ns: int) -> None:
        """Nobody knows what became of *lend*, nor will."""
        self._names += 1
        if lend in self._debts:
            return
        table, loan = self._waiting_for(lend)
        is_left = loan is not None and loan.has(1, now_ns)
        kept = 0 if lend.is_charged else lend.unused
        if loan is not None and not is_left:
            kept -= loan.left
        debt = replace(lend, used=lend.used + kept)
        if debt.used > debt.told:
            # That ends the licence, which has to count while anything of it may be used.
            from_ns = loan.lapses_ns if loan is not None and is_left else 0
            self._debts.add(debt, now_ns, from_ns=from_ns)
        if table is None or loan is None:
            return
        if not is_left:
            self._drop(table, lend.check.key)
            return
        # A licence: what was kept may be used until it lapses, and will be told as used.
        left = table.loans[lend.check.key] = Loan(self._new_name(table), self._told, loan.sharers)
        left.left = left.lent = left.counted = left.ahead = loan.left
        left.wanted = loan.wanted
        left.lapses_ns, left.facts, left.sent_ns = loan.lapses_ns, loan.facts, loan.sent_ns
        self._dues.add(left.lapses_ns, table, lend.check.key, left)

    def note(self, check: Check, outcome: Outcome, sent_ns: int) -> None:
        """Remember what the store refused, if the terms say so; not that there was no slot or no
        turn, as one may be given back at any time."""
        if outcome.allowed or not check.limit.is_divisible:
            return
        table = self.table(check.group, check.limit)
        if table is not None:
            keep_ns = table.size.keep_ns
            self.denials.note(table.tag, check.key, check.cost, outcome, sent_ns, keep_ns)

    def due(self, now_ns: int, *, most: int = MOST_DUE) -> list[GrantLease]:
        """What is to be told to the store by now: what is given back, and what licences used."""
        lends = self._errands[:most]
        del self._errands[:most]
        lends += self._debts.due(now_ns)
        while self._wishes and len(lends) < most:
            lend = self.ask(self._wishes.popitem()[1], now_ns, takes=False)
            if lend is not None:
                lends.append(lend)
        while len(lends) < most:
            found = self._dues.pop(now_ns)
            if found is None:
                break
            table, key, loan, makes_way = found
            if table.loans.get(key) is loan and loan.flight is None:
                lend = self._routine(table, key, loan, now_ns, renews=not makes_way)
                if lend is not None:
                    lends.append(lend)
        return lends

    def next_due_ns(self) -> int | None:
        """When `due` has something to hand out; None: never, as it looks."""
        times = [
            self._dues.first_ns,
            self._debts.first_ns,
            0 if self._errands or self._wishes else None,
        ]
        return min((time for time in times if time is not None), default=None)

    def close(self, now_ns: int) -> list[GrantLease]:
        """All that is to be given back and told at the end; nothing is lent any more."""
        for table in self._tables.adopt({}):
            self._close_table(table, now_ns)
        lends = self._errands + self._debts.all()
        self._errands = []
        self._wishes.clear()
        return lends

    def refunded(self, group: str, key: str) -> None:
        """Something was given back to a counter: a refusal may not be true any more."""
        for table in self._tables.of_group(group):
            self.denials.forget(table.tag, key)
            loan = table.loans.get(key)
            if loan is not None:
                loan.dry_until_ns = 0

    def forget(self, group: str, key: str) -> None:
        """A counter was reset: nothing is lent of it any more, nor used."""
        for table in self._tables.of_group(group):
            self.denials.forget(table.tag, key)
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
        return [table.bound() for table in self._tables if table.size.lends]

    def _look(self, table: Table, check: Check, now_ns: int) -> Taken | Served | None:
        cost = check.cost
        loan = table.loans.get(check.key)
        if loan is not None and cost > 0:
            if loan.has(cost, now_ns):
                loan.left -= cost
                return Taken(table, loan, loan.serial, cost)
            if loan.refuses(cost, now_ns):
                return Served(table.refusal(loan, now_ns))
        denial = self.denials.find(table.tag, check.key, cost, now_ns)
        return None if denial is None else Served(denial)

    def _new_loan(self, table: Table, check: Check) -> Loan | None:
        if self._count >= self.most_loans:
            self._dues.hasten()
            return None
        self._count += 1
        loan = Loan(self._new_name(table), self._told, table.holders)
        table.loans[check.key] = loan
        return loan

    def _sent(
        self, table: Table, loan: Loan, check: Check, most: int, now_ns: int, *, ahead: int = 0
    ) -> GrantLease:
        """*check* and a loan of *most* units, asked for now."""
        lend = loan.send(table.size, check, most, now_ns, ahead)
        self._told = max(self._told, lend.used + most)
        return lend

    def _routine(
        self, table: Table, key: str, loan: Loan, now_ns: int, *, renews: bool
    ) -> GrantLease | None:
        """What is to be told of *loan*, which is due. One that was used is asked for anew."""
        size = table.size
        used = self.demand.counted(loan)
        per_second = self.demand.heavy.add(table.group, key, used, now_ns)
        is_told = size.is_charged or (not used and loan.used == loan.told)
        if is_told and not loan.has(1, now_ns):
            self._drop(table, key)
            return None
        most = 0
        if used and renews:
            lasts_ns = lasts_at_most(table, loan, now_ns)
            spare = loan.spare
            most = size.most(0, per_second, loan.sharers, lasts_ns=lasts_ns, spare=spare)
        check = Check(table.group, key, table.limit, 0)
        return self._sent(table, loan, check, most, now_ns, ahead=size.ahead(per_second))

    def _give_back(self, lend: GrantLease, lent: LeaseGrant) -> None:
        """What was lent and is not wanted any more, as the terms have changed or it was reset."""
        if lent.amount:
            check = replace(lend.check, cost=0)
            told = max(lend.used, lend.told)
            # What was kept of a licence may have been used while it was under way.
            unused, kept = (lent.amount, 0) if lend.is_charged else (0, lend.unused)
            self._errands.append(
                replace(lend, check=check, most=0, unused=unused, used=told + kept, told=told)
            )

    def _waiting_for(self, lend: GrantLease) -> tuple[Table | None, Loan | None]:
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
                self._errands.append(self._sent(table, loan, check, 0, at_ns))
            loan.left = 0
            self._drop(table, key)

    @property
    def heavy(self) -> HeavyHitters:
        """The keys that most is asked of."""
        return self.demand.heavy

    def _new_name(self, table: Table) -> str:
        return f"{self._holder}.{table.number}.{self._names}"
