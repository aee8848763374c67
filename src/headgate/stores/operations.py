"""What can be asked of a store: values, one per verb, each carried out atomically.

A store has one method, `run(operation)`. The type parameter of an operation is the type of its
reply. Operations are plain data: a store may send them over a wire, a wrapping store may look at
them, hold them back or answer them itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from headgate.algorithms import Outcome
from headgate.errors import StoreError

if TYPE_CHECKING:
    from headgate.limits import Limit

R = TypeVar("R")

Outcomes = tuple[Outcome, ...]
"""What each check of an operation came to, in their order."""


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

    A check of a concurrency limit takes the slot named *lease*.
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
class Hold(Operation[Outcomes]):
    """Set all the amounts aside under *name* if all fit, else none. They lapse after *ttl_ns*."""

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
    """Give all the amounts back, none beyond as new; the outcomes as for `Charge`."""

    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Reset(Operation[None]):
    """Forget the counters of all the checks, holds and slots included."""

    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Renew(Operation[bool]):
    """Start the lease of the slots named *lease* anew; False if any has been lost."""

    checks: tuple[Check, ...]
    lease: str


@dataclass(frozen=True, slots=True)
class Leave(Operation[bool]):
    """Give the slots named *lease* back; False if any had been lost."""

    checks: tuple[Check, ...]
    lease: str
