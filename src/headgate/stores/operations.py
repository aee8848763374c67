"""The operations of a store: values, one per verb, each carried out atomically.

A store has one method, `run(operation)`. The type parameter of an operation is the type of its
reply. Operations are plain data: a store may send them over a wire, a wrapping store may look at
them, delay them or reply itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from headgate.algorithms import Outcome
from headgate.errors import StoreError
from headgate.limits import ConstantLimit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from fractions import Fraction

    from headgate.limits import Limit

R = TypeVar("R")

Outcomes = tuple[Outcome, ...]
"""The outcome of each check of an operation, in their order."""


@dataclass(slots=True, unsafe_hash=True)
class Check:
    """One counter and the amount to check it for.

    A counter is named by *group* and *key*. The limit is not part of its name: when the limit of a
    group changes, what its counters hold is converted.

    (A check is never changed. It is not frozen because that triples the time it takes to make one,
    and several are made for every request.)
    """

    group: str
    key: str
    limit: Limit
    cost: int = 1

    def with_cost(self, cost: int) -> Check:
        """The check of the same counter for another *cost*."""
        return Check(self.group, self.key, self.limit, cost)


class Operation(Generic[R]):
    """Something that a store does atomically, or not at all."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class CheckOperation(Operation[R]):
    """An operation on the counters of *checks*."""

    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Take(CheckOperation[Outcomes]):
    """Charge all the checks if all fit, else none; with `consume=False` charge nothing (a peek).

    A check of a concurrency limit takes the slot named *lease*. One of a queue takes the place that
    its outcome reports; a peek reports the place that it would get.
    """

    consume: bool = True
    lease: str | None = None


@dataclass(frozen=True, slots=True)
class TakeEach(Operation[tuple[Outcomes | StoreError, ...]]):
    """Several independent takes in one round trip, in order.

    If some could not be decided, the reply has their error in their place.
    """

    takes: tuple[Take, ...]


@dataclass(frozen=True, slots=True)
class TakeUpTo(CheckOperation[tuple[int, Outcomes]]):
    """Charge as much of one cost as fits in all the checks.

    All checks have the same cost and the same key. The reply is the number of units that was
    charged, and the outcomes of a peek for the rest right after. Not for slots and queues.
    """


@dataclass(frozen=True, slots=True)
class Hold(CheckOperation[Outcomes]):
    """Reserve all the amounts under *name* if all fit, else none. They expire after *ttl_ns*.

    If it *charges_expired*, amounts that are not settled by then are charged in full as of that
    instant, once, as soon as anything concerns the counter; else they vanish. In a queue amounts
    get their place at once, and keep it: only `CancelQueued` cancels it.
    """

    name: str
    ttl_ns: int
    charges_expired: bool = False


@dataclass(frozen=True, slots=True)
class Settle(CheckOperation[bool]):
    """Close the hold *name* and charge the checks' costs; the reply is True if it was open.

    A cost of 0 cancels. A hold that has expired is charged only if *charge_lapsed*: the caller
    then knows that it was not settled before.

    One that was charged when it expired (`Hold.charges_expired`) is corrected instead, for the time
    of its TTL again: what the cost exceeds the charge by is charged now, and what it falls short of
    it is returned where it was charged. What was refilled since the expiry, or is in a window that
    has passed, is not returned. After that time it is a hold that is not known.
    """

    name: str
    charge_lapsed: bool


@dataclass(frozen=True, slots=True)
class Charge(CheckOperation[Outcomes]):
    """Charge all the amounts, fitting or not; the outcomes are those of a cost of 1 afterwards."""


@dataclass(frozen=True, slots=True)
class Refund(CheckOperation[Outcomes]):
    """Return all the amounts, never more than was used; the outcomes as for `Charge`.

    A queue gets nothing back: `CancelQueued` cancels a place.
    """


@dataclass(frozen=True, slots=True)
class Reset(CheckOperation[None]):
    """Forget the counters of all the checks: holds, slots and leases included, but not the reports
    of other regions (`MergeUsage`), which would be charged again."""


@dataclass(frozen=True, slots=True)
class RenewSlot(CheckOperation[bool]):
    """Renew the slots named *lease*; the reply is False if any has been lost."""

    lease: str


@dataclass(frozen=True, slots=True)
class ReleaseSlot(CheckOperation[bool]):
    """Release the slots named *lease*; the reply is False if any had been lost."""

    lease: str


@dataclass(frozen=True, slots=True)
class CancelQueued(CheckOperation[bool]):
    """Cancel places in queues that a `Take` reported, before they come.

    The reply is True if all were there. *places_ns* has the `place_ns` of each check's outcome. The
    last place makes its queue shorter; one from the middle goes to the next request that fits into
    it: no caller that waits has to wait longer, and requests leave the queue evenly spaced. A place
    that has come is not returned. The checks are those that were taken, or at least have the same
    rate: if the rate has changed, the place may be lost. Cancel each place once: after a second
    call another caller may have lost it.
    """

    places_ns: tuple[int, ...]


PublishedValues = tuple[tuple[str, float, float], ...]
"""An origin, its value and its weight, of each."""

MOST_PUBLISHERS: Final = 256
"""Origins that a store remembers of one value; further ones only read until one expires."""


@dataclass(frozen=True, slots=True)
class PublishValue(Operation[PublishedValues]):
    """Publish the value of *origin*, and return those of all: (origin, value, weight) of each.

    A value expires after *ttl_ns* unless it is published again. *group* and *key* name its subject.
    With a *weight* of 0 nothing is published, only read.
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

    *outcome* is that of the check itself, as of a `Take`. *amount* is what the holder has on lease
    besides, for *lasts_ns* from the decision of the store on: no longer than *ttl_ns* of the
    request, nor past the end of the window that it was charged in; of a paced limit nor longer than
    it takes to refill from empty. *holders* have a lease now, this one included, *leased* units in
    all. After *wait_ns* all that was requested would fit, without other traffic; None: never.
    """

    outcome: Outcome
    amount: int
    lasts_ns: int
    holders: int
    leased: int
    wait_ns: int | None


@dataclass(frozen=True, slots=True)
class GrantLease(Operation[LeaseGrant]):
    """Take one check, and grant *holder* a lease of up to *most* units of the same counter.

    In this order: leases that have expired are closed. Usage of *holder* that was not charged yet
    is charged in full: *used* is all that it has used so far, *reported* the part of it that it
    knows to be charged; usage that is reported twice is charged once. Its previous lease ends; if
    it has not expired, *unused* units of it, at most all, are returned where they were charged. The
    check is taken if it fits. Then up to *most* units are granted: no more than fit, and no more
    than keeps all leases of this counter at *cap* units together. They expire after *ttl_ns*.

    If *is_charged*, they are charged as if used now, so a leased unit is never allowed twice; a
    lease that expires stays charged. Otherwise they only count against *cap*, and *holder* may use
    them before it reports. Such an uncharged lease is charged in full when it expires, as its usage
    is unknown, and what its holder reports later is charged only beyond that. *unused* of an
    uncharged lease are units that its holder may use before it gets the reply: if the lease has not
    expired, the next one has at least as many, fitting or not, so that they go on counting.

    A check of cost 0 with *most* 0 just ends the lease.
    """

    check: Check
    holder: str
    most: int
    ttl_ns: int
    unused: int = 0
    used: int = 0
    reported: int = 0
    cap: int | None = None
    is_charged: bool = True


@dataclass(frozen=True, slots=True)
class MergeUsage(CheckOperation[Outcomes]):
    """Charge what *origin* has used of each check's counter elsewhere, however often it reports it.

    The cost of a check is all that *origin* has used in *window*, a number that grows with time.
    Only what exceeds the largest report of that window so far is charged: in full, or with
    *max_debt*, a share of the limit, until the debt of the counter is as large; the rest is
    forgiven. The window before is still known; older ones are not charged any more. A counter that
    is in use stays under the limit it is kept under, whichever the check has: elsewhere the limit
    may have been changed already, or not yet. The outcomes as for `Charge`, under the limit of the
    check.
    """

    origin: str
    window: int
    ttl_ns: int
    max_debt: Fraction | None = None


def keys_of(operation: Operation[Any]) -> list[str]:
    """The keys of all counters of *operation*, or of its subject."""
    match operation:
        case TakeEach(takes):
            return [check.key for take in takes for check in take.checks]
        case PublishValue(key=key) | GrantLease(check=Check(key=key)):
            return [key]
    checks: tuple[Check, ...] = operation.checks  # type: ignore[attr-defined] # all others
    return [check.key for check in checks]


def independent_results(results: Sequence[Any]) -> tuple[Any, ...]:
    """Return the results of independent takes.

    A `StoreError` stays in its place, unless all are such: then one is raised, if there is any one
    after which something may have been done. Other errors are raised.
    """
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, StoreError):
            raise result
    failed = [result for result in results if isinstance(result, StoreError)]
    if failed and len(failed) == len(results):
        raise min(failed, key=lambda error: error.is_undone)
    return tuple(results)


# The part of an operation that needs no store: that on limits without a counter.


@dataclass(frozen=True, slots=True)
class Divided:
    """The part of an operation that a store has to carry out, and what to make of its reply."""

    rest: Operation[Any] | None
    """None: there is no such part. `join` then takes None in place of a reply."""
    join: Callable[[Any], Any]
    """Return the reply of the whole operation from that of *rest*."""


def is_constant(operation: Operation[Any]) -> bool:
    """Return True if no store is needed to carry *operation* out."""
    divided = divide(operation)
    return divided is not None and divided.rest is None


def divide(operation: Operation[Any]) -> Divided | None:
    """Take the checks without a counter out of *operation*; None if there are none.

    If one of them denies, the other checks are only peeked at.
    """
    if isinstance(operation, TakeEach):
        return _divide_each(operation)
    if not isinstance(operation, Take | TakeUpTo | Hold | Settle | Charge | Refund):
        return None
    kept = tuple([one for one in operation.checks if not isinstance(one.limit, ConstantLimit)])
    if len(kept) == len(operation.checks):
        return None
    checks = operation.checks
    if isinstance(operation, Charge | Refund):
        checks = tuple([replace(check, cost=1) for check in checks])
    is_denied = isinstance(operation, Take | TakeUpTo | Hold) and not all(map(may_pass, checks))
    rest: Operation[Any] = replace(operation, checks=kept)
    if is_denied:
        rest = Take(kept, consume=False)

    def joined(reply: Any) -> Any:
        if isinstance(operation, Settle):
            return reply is not False
        if not isinstance(operation, TakeUpTo):
            return _joined(checks, reply)
        if is_denied or reply is None:
            reply = 0 if is_denied else checks[0].cost, reply
        granted, outcomes = reply
        return granted, _joined(checks, outcomes)

    return Divided(rest if kept else None, joined)


def _divide_each(operation: TakeEach) -> Divided | None:
    divided = [divide(take) for take in operation.takes]
    if not any(divided):
        return None
    pairs = list(zip(operation.takes, divided, strict=True))
    left_over = [take if parts is None else parts.rest for take, parts in pairs]
    rest = tuple([one for one in left_over if isinstance(one, Take)])

    def joined(replies: tuple[Any, ...] | None) -> tuple[Outcomes | StoreError, ...]:
        left = iter(replies or ())
        results: list[Outcomes | StoreError] = []
        for parts, one in zip(divided, left_over, strict=True):
            reply: Any = None if one is None else next(left)
            if parts is not None and not isinstance(reply, StoreError):
                reply = parts.join(reply)
            results.append(reply)
        return tuple(results)

    return Divided(TakeEach(rest) if rest else None, joined)


def may_pass(check: Check) -> bool:
    """Return False if *check* is denied without a counter."""
    return not (check.cost and isinstance(check.limit, ConstantLimit) and not check.limit.quota)


def _joined(checks: tuple[Check, ...], outcomes: Outcomes | None) -> Outcomes:
    """The outcome of each check: of those without a counter here, of the others *outcomes*."""
    left = iter(outcomes or ())
    return tuple(
        [
            _outcome(check) if isinstance(check.limit, ConstantLimit) else next(left)
            for check in checks
        ]
    )


def _outcome(check: Check) -> Outcome:
    is_allowed = may_pass(check)
    return Outcome(is_allowed, check.limit.quota, 0 if is_allowed else None, 0)
