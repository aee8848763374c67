"""Drawing from the pots of a hot key, and filling them: which operations, in which order.

A node has a pot of each hot key that it draws from first; nodes spread over the pots. One of those
who find a pot short fills it:

1. Draw. If the pot has enough, that was all.
2. Get the slot of the pot: of all who find it short, one fills it, the others look into another
   pot, and if that is short too, go to the counter.
3. Draw again, now that nobody else fills it: if it is still short, what was lent to it is used up.
4. Lend, in the name of the pot, of the counter: this decides the request at hand, too.
5. Pour what was lent, and give the slot back.

In the name of a pot no more is lent than the pot was found to lack, so the store's ledger counts
what is in pots (see `splitting`), however many nodes draw. A pot is gone when its loan is. What a
node draws beyond its request belongs to the loan that it has itself: it never holds more than that,
nor for longer.

Whoever had the slot for too long, by its own clock from before it asked for it, does not pour any
more: what was lent to the pot is lost then, as it is when a node dies here. What is lent in a pot's
name too late does no harm, as it is not poured. When a reply to a pour is lost, the slot is kept
until it lapses.

A loan ends with its window: just before that there is none that is worth pouring. What was lent is
given back then, and the node leaves the pot alone for a while.
"""

from __future__ import annotations

from binascii import crc32
from collections.abc import Callable, Generator
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.algorithms import Outcome
from headgate.errors import StoreError
from headgate.limits import Concurrency
from headgate.observability import MEASURES
from headgate.stores.layers.leases.lease import pot_key, pots_group, reset_after
from headgate.stores.layers.leases.lease_table import EARLY
from headgate.stores.layers.leases.served import Served
from headgate.stores.operations import Check, Draw, GrantLease, Operation, Pour, ReleaseSlot, Take
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from headgate.stores.layers.leases.desk import Desk
    from headgate.stores.layers.leases.lease import Facts, Loan, Split, Table
    from headgate.stores.layers.leases.lease_table import Book
    from headgate.stores.operations import LeaseGrant


SLOT: Final = Concurrency(1, 0.5)
"""Who may fill a pot: one, for no longer than this."""

FILL_WITHIN_NS: Final = 250 * MILLISECOND
"""Half of that: who has the slot for longer does not pour."""

UNDER_WAY_NS: Final = 50 * MILLISECOND
"""A pot is gone that much before its loan is: what is poured may be as long under way."""

AVOID_NS: Final = SECOND
"""For how long a node goes to the counter itself after the shard of its pot has failed,"""

USELESS_NS: Final = 100 * MILLISECOND
"""and after a loan for its pot was too short to be poured."""

MOST_NAMES: Final = 1024
"""How many hot keys' pots are remembered by name."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What came of it.

    *amount* units were drawn: the request is admitted if it is not 0, and what it did not cost is
    for the node's own loan. *outcome* is what the counter itself said at *sent_ns* or later, if it
    was asked. Neither: nothing was decided, the counter has to be asked.
    """

    amount: int = 0
    outcome: Outcome | None = None
    sent_ns: int = 0


Steps = Generator[Operation[Any], Any, Drawn]
"""Yields operations to carry out, is sent the reply to each or thrown its `StoreError`."""

NOTHING: Final = Drawn()


class Pots:
    """The pots of one node, which the store knows as *node*. *clock* is the node's, monotonic.

    Threads may share one without a lock.
    """

    def __init__(self, node: str, clock: Callable[[], int]) -> None:
        self._node = node
        self._clock = clock
        self._random = Random(node)  # noqa: S311 (spreads load, nothing more)
        self._offset = self._random.randrange(1 << 16)
        self._names: dict[tuple[str, int], tuple[str, ...]] = {}
        self._avoided: dict[tuple[str, str], int] = {}
        self._count = 0

    def take(self, check: Check, split: Split, extra: int, life_ns: int) -> Steps:
        """Take *check* from a pot, with up to *extra* units more; loans to pots last *life_ns*.

        A `StoreError` is passed on. What it is about may have been charged, once.
        """
        if not 0 < check.cost <= split.largest_draw:
            return NOTHING
        keys = self._keys(check.key, split.parts)
        group = pots_group(check.group)
        part = self._home(check.key, split.parts)
        if self._is_avoided(group, keys[part]):
            return NOTHING
        amount = min(check.cost + extra, split.largest_draw)
        try:
            left = yield Draw(group, keys[part], amount)
            if left is not None:
                return Drawn(amount)
            found = yield from self._fill(check, split, part, amount, life_ns)
        except StoreError:
            self._avoid(group, keys[part])
            raise
        if found.amount or (found.outcome is not None and found.outcome.allowed):
            return found
        return (yield from self._look_elsewhere(check, keys, part, found))

    def _fill(self, check: Check, split: Split, part: int, amount: int, life_ns: int) -> Steps:
        """Fill a pot that was found short of *amount*, if nobody else is about it."""
        group, key = pots_group(check.group), self._keys(check.key, split.parts)[part]
        slot, lease = (Check(group, key, SLOT),), self._lease()
        began_ns = self._clock()
        (granted,) = yield Take(slot, lease=lease)
        if not granted.allowed:
            return NOTHING
        left = yield Draw(group, key, amount)
        if left is not None:
            yield ReleaseSlot(slot, lease)
            return Drawn(amount)
        sent_ns = self._clock()
        if sent_ns - began_ns >= FILL_WITHIN_NS:
            return NOTHING
        holder = f"pot.{part}"
        lent: LeaseGrant = yield GrantLease(check, holder, split.pour, life_ns, cap=split.cap)
        now_ns = self._clock()
        lasts_ns = lent.lasts_ns - UNDER_WAY_NS - (now_ns - sent_ns)
        if lent.amount and now_ns - began_ns < FILL_WITHIN_NS:
            if lasts_ns > 0:
                yield Pour(group, key, lent.amount, lasts_ns)
            else:
                self._avoid(group, key, USELESS_NS)
                nothing = Check(check.group, check.key, check.limit, 0)
                yield GrantLease(nothing, holder, 0, life_ns, unused=lent.amount, cap=split.cap)
        elif lent.outcome.remaining:  # but for the loans of others
            self._avoid(group, key, USELESS_NS)
        yield ReleaseSlot(slot, lease)
        return Drawn(outcome=lent.outcome, sent_ns=sent_ns)

    def _look_elsewhere(
        self, check: Check, keys: tuple[str, ...], part: int, found: Drawn
    ) -> Steps:
        """Look into one more pot before going to the counter, or being refused by it."""
        group = pots_group(check.group)
        other = keys[(part + self._random.randrange(1, len(keys))) % len(keys)]
        if self._is_avoided(group, other):
            return found
        try:
            left = yield Draw(group, other, check.cost)
        except StoreError:
            self._avoid(group, other)
            raise
        return found if left is None else Drawn(check.cost)

    def _home(self, key: str, parts: int) -> int:
        """The pot of *key* that this node draws from."""
        return (crc32(key.encode("utf-8", "surrogatepass")) + self._offset) % parts

    def _keys(self, key: str, parts: int) -> tuple[str, ...]:
        keys = self._names.get((key, parts))
        if keys is None:
            keys = tuple(pot_key(key, part, parts) for part in range(parts))
            if len(self._names) >= MOST_NAMES:
                self._names.clear()
            self._names[key, parts] = keys
        return keys

    def _lease(self) -> str:
        self._count += 1
        return f"{self._node}.{self._count}.{self._random.getrandbits(32):08x}"

    def _avoid(self, group: str, key: str, for_ns: int = AVOID_NS) -> None:
        if len(self._avoided) >= MOST_NAMES:
            self._avoided.clear()
        self._avoided[group, key] = self._clock() + for_ns

    def _is_avoided(self, group: str, key: str) -> bool:
        return bool(self._avoided) and self._avoided.get((group, key), 0) > self._clock()


# What is told of all leased stores of a process.


ROUND_TRIPS = MEASURES.counter("lease_round_trips", "Exchanges with the store about leases.")
EXCHANGES = MEASURES.counter("sync_exchanges", "Exchanges with the store about licences.")
SERVED = MEASURES.counter("lease_served", "Units that were admitted from leases and licences.")
DRAWS = MEASURES.counter("pot_draws", "Requests that were admitted from pots of hot keys.")
FILLS = MEASURES.counter("pot_fills", "Times that a pot of a hot key was filled.")
CACHED = MEASURES.counter("denials_from_cache", "Requests refused without asking the store.")


# Requests that are decided by the pots of a hot key: between a node's loan and the counter.
#
# A key is drawn for when it is so hot that its counter would be asked too often, as far as this
# node can tell: by what is asked of it here, by how many have a loan of it, and by how much was
# lent; and when a pot is good for several loans. Else loans alone are less work for everybody: to
# fill a pot takes six operations.
#
# The node must have a loan of the key that is used up and goes on for a while: what is drawn
# refills the loan, up to what was lent. A node that got no loan, as others have borrowed all that
# may be, draws for each request what it costs.


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
        DRAWS.add()
    return served


def _errands(desk: Desk[Any], draft: Draft) -> Generator[Errand, Any, Drawn]:
    steps = desk.pots.take(draft.check, draft.split, draft.extra, draft.table.size.life_ns)
    try:
        operation = next(steps)
        while True:
            reply = yield Errand(operation)
            if isinstance(operation, Pour):
                FILLS.add()
            is_lost = isinstance(reply, StoreError)
            operation = steps.throw(reply) if is_lost else steps.send(reply)
    except StopIteration as end:
        drawn: Drawn = end.value
        return drawn
    finally:
        steps.close()
