"""The operations of a store: values, one per verb, each carried out atomically.

A store has one method, `run(operation)`. The type parameter of an operation is the type of its
reply. Operations are plain data: a store may send them over a wire, a wrapping store may look at
them, hold them back or answer them itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from headgate.algorithms import Outcome
from headgate.errors import StoreError

if TYPE_CHECKING:
    from headgate.limits import Limit

R = TypeVar("R")

Outcomes = tuple[Outcome, ...]
"""The outcome of each check of an operation, in their order."""


@dataclass(slots=True, unsafe_hash=True)
class Check:
    """One counter, asked for one amount.

    A counter is named by *group* and *key*. The limit is not part of its name: when the limit of a
    group changes, what its counters hold is carried over.

    (Nobody changes one. It is not frozen because that triples the time it takes to make one, and
    several are made for every request.)
    """

    group: str
    key: str
    limit: Limit
    cost: int = 1


class Operation(Generic[R]):
    """Something to be done at once, or not at all."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Take(Operation[Outcomes]):
    """Charge all the checks if all fit, else none; with `consume=False` only look.

    A check of a concurrency limit takes the slot named *lease*. One of a queue takes the turn that
    its outcome tells; a look tells the turn that it would get.
    """

    checks: tuple[Check, ...]
    consume: bool = True
    lease: str | None = None


@dataclass(frozen=True, slots=True)
class TakeEach(Operation[tuple[Outcomes | StoreError, ...]]):
    """Several takes that have nothing to do with each other, in one round trip, in order.

    One that could not be decided, while others were, has its error in its place.
    """

    takes: tuple[Take, ...]


@dataclass(frozen=True, slots=True)
class TakeUpTo(Operation[tuple[int, Outcomes]]):
    """Charge as much of one cost as fits in all the checks.

    All checks have the same cost and the same key. The reply is the number of units that was
    charged, and the outcomes of a look at the rest right after. Not for slots and queues.
    """

    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Hold(Operation[Outcomes]):
    """Set all the amounts aside under *name* if all fit, else none. They lapse after *ttl_ns*.

    In a queue they have their turn at once, and keep it: only `CancelQueued` gives it up.
    """

    checks: tuple[Check, ...]
    name: str
    ttl_ns: int


@dataclass(frozen=True, slots=True)
class Settle(Operation[bool]):
    """Close the hold *name*, charge the checks' costs; whether it was open.

    A cost of 0 cancels. A hold that has lapsed is charged only if *charge_lapsed*: the caller
    knows then that it was not settled before.
    """

    checks: tuple[Check, ...]
    name: str
    charge_lapsed: bool


@dataclass(frozen=True, slots=True)
class Charge(Operation[Outcomes]):
    """Record all the amounts, fitting or not; the outcomes are those of a cost of 1 afterwards."""

    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Refund(Operation[Outcomes]):
    """Give all the amounts back, none beyond as new; the outcomes as for `Charge`.

    To a queue nothing comes back: a turn is given up by `CancelQueued`.
    """

    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Reset(Operation[None]):
    """Forget the counters of all the checks: holds, slots and loans included, but not what was told
    from elsewhere (`MergeUsage`), which would be charged again."""

    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class RenewSlot(Operation[bool]):
    """Start the lease of the slots named *lease* anew; False if any has been lost."""

    checks: tuple[Check, ...]
    lease: str


@dataclass(frozen=True, slots=True)
class ReleaseSlot(Operation[bool]):
    """Give the slots named *lease* back; False if any had been lost."""

    checks: tuple[Check, ...]
    lease: str


@dataclass(frozen=True, slots=True)
class CancelQueued(Operation[bool]):
    """Give up the turns in queues that a `Take` was told, before they come; whether all were there.

    *turns_ns* has the `turn_ns` of each check's outcome. The last in a queue makes it shorter;
    from the middle a turn goes to whoever asks next and fits into it: nobody who waits is made to
    wait longer, and what leaves the queue stays spaced. A turn that has come is not given back. The
    checks are those that were taken, or at least at the same rate; should the queue have another by
    now, the turn may be lost. Given up twice it is given up once, as long as nobody else has got it
    in between: ask once for each turn.
    """

    checks: tuple[Check, ...]
    turns_ns: tuple[int, ...]


PublishedValues = tuple[tuple[str, float, float], ...]
"""An origin, its value and its weight, of each."""

MOST_PUBLISHERS: Final = 256
"""Origins that a store remembers of one value; further ones only read until one expires."""


@dataclass(frozen=True, slots=True)
class PublishValue(Operation[PublishedValues]):
    """Tell what *origin* makes of something, and hear what all do: (origin, value, weight) of each.

    What was told lapses after *ttl_ns* unless it is told again. *group* and *key* name what it is
    about. A *weight* of 0 tells nothing and only hears.
    """

    group: str
    key: str
    origin: str
    value: float
    weight: float
    ttl_ns: int


@dataclass(frozen=True, slots=True)
class LeaseGrant:
    """The reply to a `GrantLease`.

    *outcome* is that of the check itself, as a `Take` of it would have told. *amount* is what the
    holder has now besides, for *lasts_ns* from the moment in the store on: no longer than the loan
    was asked for, nor past the end of the window that it was charged in; of a paced limit nor
    longer than it takes to refill from empty. *holders* have something lent now, this one included,
    *lent* units in all. After *wait_ns* as much as was asked for would fit, if nobody took
    anything; None: never.
    """

    outcome: Outcome
    amount: int
    lasts_ns: int
    holders: int
    lent: int
    wait_ns: int | None


@dataclass(frozen=True, slots=True)
class GrantLease(Operation[LeaseGrant]):
    """Take one check, and lend *holder* up to *most* units of the same counter for later.

    In this order: loans that have lapsed are closed. What *holder* has used without its being
    charged is charged in full: *used* is all that it has used so far, *told* what of that it knows
    to be charged; told twice, it is charged once. Its loan of before ends; if it has not lapsed,
    *unused* units of it, at most all, are given back where they were charged. The check is taken if
    it fits. Then up to *most* units are lent: no more than fit, and no more than keeps all loans of
    this counter at *cap* units together. They lapse after *ttl_ns*.

    If *is_charged*, they are charged as if used now, so what is lent is never admitted twice (a
    lease); one that lapses stays charged. Else they only count against *cap*, and *holder* may use
    them before it tells (a licence); one that lapses is charged in full then, as nobody knows how
    much was used, and what its holder tells later is charged only beyond that. *unused* of a
    licence are units that its holder may use before it hears: if the licence has not lapsed, the
    next one is of as many at least, whether they fit or not, so that they go on counting.

    A check of cost 0 with *most* 0 just ends the loan.
    """

    check: Check
    holder: str
    most: int
    ttl_ns: int
    unused: int = 0
    used: int = 0
    told: int = 0
    cap: int | None = None
    is_charged: bool = True


@dataclass(frozen=True, slots=True)
class MergeUsage(Operation[Outcomes]):
    """Charge what *origin* has used of each check's counter elsewhere, however often it is told.

    The cost of a check is all that *origin* has used in *window*, a number that grows with time.
    Only what exceeds the most that was told before of that window is charged, in full. The window
    before is still known; older ones are not charged any more. A counter that is in use stays under
    the limit it is kept under, whichever the check has: elsewhere the limit may have been changed
    already, or not yet. The outcomes as for `Charge`, under the limit of the check.
    """

    checks: tuple[Check, ...]
    origin: str
    window: int
    ttl_ns: int
