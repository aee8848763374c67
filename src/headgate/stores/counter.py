"""Operations on counters, whatever the backend.

`CounterTransaction` is one counter in one operation; `execute` carries out an operation.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from headgate.algorithms import Algorithm, ConcurrencyAlgorithm, LeakyQueueAlgorithm, reservations
from headgate.algorithms.leaky_queue import QueuedChecks
from headgate.algorithms.reservations import (
    Expiry,
    Holds,
    correct,
    expire,
    outcome_beside,
    rebase_holds,
    wait_beside,
)
from headgate.errors import UsageError
from headgate.limits import FixedWindow
from headgate.stores.base import reject_concurrency, reject_partial
from headgate.stores.operations import (
    MOST_PUBLISHERS,
    CancelQueued,
    Charge,
    Check,
    Hold,
    Operation,
    Outcomes,
    PublishedValues,
    PublishValue,
    Refund,
    ReleaseSlot,
    RenewSlot,
    Settle,
    Take,
    TakeUpTo,
)

if TYPE_CHECKING:
    from headgate.algorithms import Outcome

R = TypeVar("R")


class CounterTransaction(ABC):
    """A counter that an operation reads and changes, and saves with `close`.

    The checks of one operation add up: the second check of a counter has to fit beside the first.
    When the counter is opened, times after *now* are moved to *now* if the clock has stepped back
    (`rebase`), and what has expired is charged (`expire`). That is saved with the counter; a peek
    saves nothing, because it is never closed.
    """

    __slots__ = (
        "_algorithm",
        "_asked",
        "_held",
        "_holds",
        "_is_changed",
        "_now",
        "_queued",
        "_state",
    )

    def __init__(self, algorithm: Algorithm[Any], state: Any, holds: Holds, now: int) -> None:
        self._algorithm = algorithm
        self._state = state
        self._holds = holds
        self._now = now
        self._asked = 0
        self._held = 0
        self._is_changed = False
        if state is not None:
            self._state = algorithm.rebase(state, now)
            self._is_changed = self._state is not state
        if holds:
            before = self._state
            self._state, self._holds = expire(algorithm, before, holds, now)
            self._is_changed |= self._state is not before or rebase_holds(holds, now) is not holds
        self._queued: QueuedChecks | None = None
        if isinstance(algorithm, LeakyQueueAlgorithm):
            self._queued = QueuedChecks(algorithm, self._state, now)

    def wait(self, cost: int) -> int | None:
        """Return the nanoseconds until *cost* fits beside all checks before; None if never."""
        if self._queued is not None:
            return self._queued.wait(cost)
        if not cost:
            return 0
        self._asked += cost
        if not self._holds:
            return self._algorithm.wait(self._state, self._asked, self._now)
        return wait_beside(self._algorithm, self._state, self._holds, self._asked, self._now)

    def outcome(self, wait: int | None) -> Outcome:
        """Return the figures as they are now, for a cost that fits in *wait* nanoseconds."""
        if self._queued is not None:
            return self._queued.placed(self._algorithm.outcome(self._state, wait, self._now))
        if not self._holds:
            return self._algorithm.outcome(self._state, wait, self._now)
        return outcome_beside(self._algorithm, self._state, self._holds, wait, self._now)

    @property
    def remaining(self) -> int:
        """The largest cost that fits now."""
        return self.outcome(0).remaining

    def outcome_of_one(self) -> Outcome:
        """Return the figures as they are now, for a cost of 1."""
        self._asked = 0
        if isinstance(self._algorithm, LeakyQueueAlgorithm):
            self._queued = QueuedChecks(self._algorithm, self._state, self._now)
        return self.outcome(self.wait(1))

    def charge(self, amount: int) -> None:
        """Record *amount*, whether it fits or not."""
        if amount:
            self._change(self._algorithm.charge(self._state, amount, self._now))

    def refund(self, amount: int) -> None:
        """Give *amount* back, newest first."""
        if amount and self._state is not None:
            self._change(self._algorithm.refund(self._state, amount, self._now))

    def vacate(self, place_ns: int, cost: int) -> bool:
        """Cancel the place of *cost* at *place_ns* in the queue; return False if it has passed."""
        algorithm = self._algorithm
        if not isinstance(algorithm, LeakyQueueAlgorithm):
            return False
        line = algorithm.vacate(self._state, place_ns, cost, self._now)
        if line is not None:
            self._change(line)
        return line is not None

    def hold(self, name: str, amount: int, ttl_ns: int, *, charges_expired: bool) -> None:
        """Set *amount* aside. In a queue it gets its place at once, and expires as that."""
        expiry = Expiry.CHARGES if charges_expired else Expiry.VANISHES
        if self._queued is not None:
            self.charge(amount)
            expiry = Expiry.VANISHES
        if amount:
            self._held += amount
            held = reservations.Hold(self._held, self._now + ttl_ns, ttl_ns, expiry)
            self._holds = {**self._holds, name: held}
            self._is_changed = True

    def settle(self, name: str, amount: int, *, charge_lapsed: bool) -> bool:
        """Close the hold *name* and charge *amount*; return True if it was open.

        What was held in a queue has its place: only what exceeds it is charged.
        """
        held = self._holds.get(name)
        if held is None:
            if charge_lapsed and self._queued is None:
                self.charge(amount)
            return False
        self._holds = {other: hold for other, hold in self._holds.items() if other != name}
        if not held.is_open:
            self._state = correct(self._algorithm, self._state, held, amount, self._now)
        elif self._queued is not None:
            self.charge(max(0, amount - held.amount))
        else:
            self.charge(amount)
        self._is_changed = True
        return held.is_open

    @property
    def slots(self) -> ConcurrencyAlgorithm | None:
        """The arithmetic of the slots, if this is a counter of slots."""
        return self._algorithm if isinstance(self._algorithm, ConcurrencyAlgorithm) else None

    def has_slot(self, lease: str) -> bool:
        """Return True if *lease* still has its slot."""
        return self.slots is not None and self.slots.holds(self._state, lease, self._now)

    def change_slots(self, change: Callable[[Any, Any, int], Any], what: str | int) -> None:
        """Apply *change*, a method of `slots`, to *what*: a lease or a number of slots."""
        self._change(change(self._state, what, self._now))

    def publish(self, operation: PublishValue) -> PublishedValues:
        """Publish a value and return those of all origins.

        Each value is a reservation whose name contains the value and its origin, so that it
        expires. Keys may share a counter: values of other groups and keys are skipped.
        """
        subject, origin, now = [operation.group, operation.key], operation.origin, self._now
        values: dict[str, tuple[str, float, float]] = {}
        names: dict[str, str] = {}
        for name, hold in self._holds.items():
            try:
                *its_subject, its_origin, value, weight, ttl_ns = json.loads(name)
            except (TypeError, ValueError):  # it is damaged
                continue
            if its_subject == subject:
                names[its_origin] = name
                # One that expires later was published before the clock stepped back.
                if hold.expires_ns <= now + 2 * ttl_ns:
                    values[its_origin] = its_origin, value, weight
        if operation.weight > 0 and (origin in values or len(values) < MOST_PUBLISHERS):
            values[origin] = origin, float(operation.value), float(operation.weight)
            self._holds = {
                one: hold for one, hold in self._holds.items() if one != names.get(origin)
            }
            name = json.dumps([*subject, *values[origin], operation.ttl_ns])
            self._holds[name] = reservations.Hold(1, now + operation.ttl_ns)
            self._is_changed = True
        return tuple(values.values())

    def _change(self, state: Any) -> None:
        self._state = state
        self._is_changed = True

    @abstractmethod
    def close(self) -> None:
        """Save the counter, if it was changed."""


Opened = Sequence[tuple[CounterTransaction, int]]
"""Counters, and the cost for each."""


def execute(operation: Operation[R], open_all: Callable[[tuple[Check, ...]], Opened]) -> R:
    """Carry out *operation* on the counters that *open_all* opens, and return its reply.

    Every check has a counter (`operations.divide`). Checks of one counter share its transaction. A
    denial saves what opening changed, a peek saves nothing. Raises `UsageError` for an operation
    that only a store with leases carries out.
    """
    function = _FUNCTIONS.get(type(operation))
    if function is None:
        raise UsageError(f"this store does not support {type(operation).__name__}")
    if isinstance(operation, PublishValue):
        checks: tuple[Check, ...] = (
            Check(f"values of {operation.group}", operation.key, _VALUES_LIMIT),
        )
    else:
        checks = operation.checks  # type: ignore[attr-defined] # all others have some
    limits = [check.limit for check in checks]
    if isinstance(operation, TakeUpTo):
        reject_partial(limits, "hit_up_to")
    elif isinstance(operation, Hold | Charge | Refund):
        verb = "reserve" if isinstance(operation, Hold) else type(operation).__name__.lower()
        reject_concurrency(limits, verb)
    opened = open_all(checks)
    reply = function(operation, opened)
    if not isinstance(operation, Take) or operation.consume:
        for counter, _ in opened:
            counter.close()
    return cast("R", reply)


def _take(operation: Take, opened: Opened) -> Outcomes:
    """Charge all counters if all costs fit, else none. A slot is taken in the name of the lease.

    Counters of slots record denials.
    """
    consume, lease = operation.consume, operation.lease
    waits = [counter.wait(cost) for counter, cost in opened]
    is_allowed = waits.count(0) == len(waits)
    if consume and is_allowed:
        for counter, cost in opened:
            if lease is not None and counter.slots is not None:
                counter.change_slots(counter.slots.enter, lease)
            else:
                counter.charge(cost)
    outcomes = _outcomes(opened, waits)
    if consume and not is_allowed:
        for (counter, cost), wait in zip(opened, waits, strict=True):
            if wait and lease is not None and counter.slots is not None and counter.slots.claims:
                counter.change_slots(counter.slots.deny, cost)
    return outcomes


def _take_up_to(_: TakeUpTo, opened: Opened) -> tuple[int, Outcomes]:
    counters = [counter for counter, _ in opened]
    cost = opened[0][1]
    granted = min([cost, *[one.remaining // counters.count(one) for one in counters]])
    for counter in counters:
        counter.charge(granted)
    waits = [counter.wait(cost - granted) for counter in counters]
    return granted, _outcomes(opened, waits)


def _hold(operation: Hold, opened: Opened) -> Outcomes:
    waits = [counter.wait(cost) for counter, cost in opened]
    is_allowed = waits.count(0) == len(waits)
    for counter, cost in opened:
        if is_allowed:
            charges = operation.charges_expired
            counter.hold(operation.name, cost, operation.ttl_ns, charges_expired=charges)
    return _outcomes(opened, waits)


def _settle(operation: Settle, opened: Opened) -> bool:
    costs: dict[CounterTransaction, int] = {}
    for counter, cost in opened:
        costs[counter] = costs.get(counter, 0) + cost
    was_open = True
    for counter, cost in costs.items():
        late = operation.charge_lapsed
        was_open &= counter.settle(operation.name, cost, charge_lapsed=late)
    return was_open


def _charge_or_refund(operation: Charge | Refund, opened: Opened) -> Outcomes:
    for counter, cost in opened:
        if isinstance(operation, Charge):
            counter.charge(cost)
        else:
            counter.refund(cost)
    return tuple([counter.outcome_of_one() for counter, _ in opened])


def _renew(operation: RenewSlot, opened: Opened) -> bool:
    has_all = all(counter.has_slot(operation.lease) for counter, _ in opened)
    for counter, _ in opened:
        if has_all and counter.slots is not None:
            counter.change_slots(counter.slots.renew, operation.lease)
    return has_all


def _release(operation: ReleaseSlot, opened: Opened) -> bool:
    had_all = True
    for counter, _ in opened:
        had_all &= counter.has_slot(operation.lease)
        if counter.slots is not None:
            counter.change_slots(counter.slots.leave, operation.lease)
    return had_all


def _cancel(operation: CancelQueued, opened: Opened) -> bool:
    had_all = True
    for (counter, cost), place_ns in zip(opened, operation.places_ns, strict=True):
        had_all &= counter.vacate(place_ns, cost)
    return had_all


def _publish(operation: PublishValue, opened: Opened) -> PublishedValues:
    ((counter, _),) = opened
    return counter.publish(operation)


_VALUES_LIMIT: Final = FixedWindow(1, 1)
"""The limit of counters that have published values; nothing is charged to them."""

_FUNCTIONS: Final[dict[type, Callable[[Any, Opened], Any]]] = {
    Take: _take,
    TakeUpTo: _take_up_to,
    Hold: _hold,
    Settle: _settle,
    Charge: _charge_or_refund,
    Refund: _charge_or_refund,
    RenewSlot: _renew,
    ReleaseSlot: _release,
    CancelQueued: _cancel,
    PublishValue: _publish,
}


def _outcomes(opened: Opened, waits: Sequence[int | None]) -> Outcomes:
    """Return the figures of each counter; *waits* are the waits of the costs."""
    pairs = zip(opened, waits, strict=True)
    return tuple([counter.outcome(wait) for (counter, _), wait in pairs])
