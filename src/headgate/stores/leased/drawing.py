"""Requests that are decided by the pots of a hot key: between a node's loan and the counter.

A key is drawn for when it is so hot that its counter would be asked too often, as far as this node
can tell: by what is asked of it here, by how many have a loan of it, and by how much was lent; and
when a pot is good for several loans. Else loans alone are less work for everybody: to fill a pot
takes six operations.

The node must have a loan of the key that is used up and goes on for a while: what is drawn refills
the loan, up to what was lent. A node that got no loan, as others have borrowed all that may be,
draws for each request what it costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.algorithms import Outcome
from headgate.errors import StoreError
from headgate.stores.leased import measures
from headgate.stores.leased.book import EARLY
from headgate.stores.leased.loans import reset_after
from headgate.stores.leased.pots import NOTHING, Drawn
from headgate.stores.leased.served import Served
from headgate.stores.operations import Pour

if TYPE_CHECKING:
    from collections.abc import Generator

    from headgate.stores.leased.book import Book
    from headgate.stores.leased.desk import Desk
    from headgate.stores.leased.loans import Facts, Loan, Table
    from headgate.stores.leased.splitting import Split
    from headgate.stores.operations import Check, Operation


HOT_TRIPS: Final = 1000
"""How often in a second a counter may be asked before it is drawn from its pots."""

WORTH: Final = 4
"""How many loans of a node a pot is good for at least: with fewer, loans alone are less work."""

GROWS_AFTER: Final = 8
"""An eighth of a loan's life is how long it is at least refilled as it is."""


class Errand(NamedTuple):
    """An operation to be carried out as it is; its reply is what came of it, or a `StoreError`."""

    operation: Operation[Any]


class Draft(NamedTuple):
    """A draw that is about to be made, for a loan if there is one."""

    check: Check
    table: Table
    split: Split
    facts: Facts
    loan: Loan | None
    serial: int
    extra: int
    """What may be drawn for the loan. It is set aside in the loan: others may draw, too."""


def drafted(book: Book, check: Check, now_ns: int) -> Draft | None:
    """What may be drawn for *check*; None: it is for the counter."""
    table = book.table(check.group, check.limit)
    if table is None or table.size.split is None:
        return None
    loan = table.loans.get(check.key)
    per_second = book.heavy.per_second(check.group, check.key, now_ns)
    if loan is None:
        until_ns, facts = table.crowded.get(check.key, (0, None))
        if facts is None or now_ns >= until_ns or per_second * table.holders < HOT_TRIPS:
            return None
        return Draft(check, table, table.size.split, facts, None, 0, 0)
    if loan.flight is not None or now_ns >= loan.lapses_ns - table.size.life_ns // EARLY:
        return None
    lent = loan.facts.lent
    if per_second * table.holders < HOT_TRIPS * lent or lent * WORTH > table.size.split.pour:
        return None
    if _is_too_small(table, loan, per_second, now_ns):
        return None
    book.demand.count(check.group, check.key, loan, now_ns)
    extra = max(0, loan.facts.lent - loan.left - loan.drawing)
    loan.drawing += extra
    return Draft(check, table, table.size.split, loan.facts, loan, loan.serial, extra)


def _is_too_small(table: Table, loan: Loan, per_second: float, now_ns: int) -> bool:
    """Whether so much more is asked of *loan* that the counter is to be asked for a larger one."""
    size = table.size
    if now_ns - loan.sent_ns < size.life_ns // GROWS_AFTER:
        return False
    return size.most(0, per_second, table.holders) > 2 * loan.facts.lent


def settled(book: Book, draft: Draft, drawn: Drawn, now_ns: int) -> Served | None:
    """What *draft* came to, what was drawn for the loan being in it; None: ask the counter."""
    check, table, loan = draft.check, draft.table, draft.loan
    is_same = loan is not None and loan.serial == draft.serial
    if loan is not None and is_same:
        loan.drawing -= draft.extra
        if drawn.amount:
            more = drawn.amount - check.cost if now_ns < loan.lapses_ns else 0
            loan.left += more
            loan.counted += more
            elsewhere = max(0, loan.facts.elsewhere - drawn.amount)
            loan.facts = loan.facts._replace(elsewhere=elsewhere)
    if drawn.outcome is not None:
        book.note(check, drawn.outcome, drawn.sent_ns)
    if drawn.amount or drawn.outcome is not None:
        book.heavy.add(check.group, check.key, check.cost, now_ns)
    if not drawn.amount:
        return None if drawn.outcome is None else Served(drawn.outcome, "store")
    if loan is not None and is_same:
        return Served(table.outcome(loan, now_ns), table.source)
    outcome = Outcome(
        allowed=True,
        remaining=draft.facts.elsewhere,
        retry_after_ns=0,
        reset_after_ns=reset_after(table.limit, draft.facts, 0, now_ns),
    )
    return Served(outcome, table.source)


def drawing(desk: Desk[Any], check: Check) -> Generator[Errand, Any, Served | None]:
    """Take *check* from the pots of its key, if it has any; None: it is for the counter."""
    draft = desk.draft(check)
    if draft is None:
        return None
    drawn = NOTHING
    try:
        drawn = yield from _errands(desk, draft)
    finally:
        served = desk.settle_draft(draft, drawn)
    if drawn.amount:
        measures.DRAWS.add()
    return served


def _errands(desk: Desk[Any], draft: Draft) -> Generator[Errand, Any, Drawn]:
    steps = desk.pots.take(draft.check, draft.split, draft.extra, draft.table.size.life_ns)
    try:
        operation = next(steps)
        while True:
            reply = yield Errand(operation)
            if isinstance(operation, Pour):
                measures.FILLS.add()
            is_lost = isinstance(reply, StoreError)
            operation = steps.throw(reply) if is_lost else steps.send(reply)
    except StopIteration as end:
        drawn: Drawn = end.value
        return drawn
    finally:
        steps.close()
