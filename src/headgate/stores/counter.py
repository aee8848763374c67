"""One counter in one operation, wherever it is kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from headgate.algorithms import (
    Algorithm,
    ConcurrencyAlgorithm,
    LeakyQueueAlgorithm,
    algorithm_for,
)
from headgate.algorithms.leaky_queue import QueuedChecks
from headgate.algorithms.reservations import (
    Hold,
    Holds,
    open_holds,
    outcome_beside,
    rebase_holds,
    wait_beside,
)
from headgate.stores.base import LARGEST_AMOUNT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.algorithms import Outcome
    from headgate.limits import Limit
    from headgate.stores.operations import Outcomes


class CounterTransaction(ABC):
    """A counter that an operation reads and changes, and saves with `close`.

    The checks of one operation add up: the second of the same counter has to fit beside the first.
    Everything in the future of the clock is moved to *now* when the counter is opened (`rebase`),
    and saved with it, except by a peek, which is never closed.
    """

    __slots__ = (
        "_algorithm",
        "_asked",
        "_held",
        "_holds",
        "_is_changed",
        "_now",
        "_queued",
        "_settled",
        "_state",
    )

    def __init__(self, algorithm: Algorithm[Any], state: Any, holds: Holds, now: int) -> None:
        self._algorithm = algorithm
        self._state = state
        self._holds = holds
        self._now = now
        self._asked = 0
        self._held = 0
        self._settled: bool | None = None
        self._is_changed = False
        if state is not None:
            self._state = algorithm.rebase(state, now)
            self._is_changed = self._state is not state
        if holds:
            self._is_changed |= rebase_holds(holds, now) is not holds
            self._holds = open_holds(holds, now)
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
        """Return the figures as they are now, for a cost that has to wait *wait*."""
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
            self._state = self._algorithm.charge(self._state, amount, self._now)
            self._is_changed = True

    def refund(self, amount: int) -> None:
        """Give *amount* back, newest first."""
        if amount and self._state is not None:
            self._state = self._algorithm.refund(self._state, amount, self._now)
            self._is_changed = True

    def vacate(self, turn_ns: int, cost: int) -> bool:
        """Cancel the place of *cost* at *turn_ns*; return False if there is none to come."""
        algorithm = self._algorithm
        if not isinstance(algorithm, LeakyQueueAlgorithm):
            return False
        line = algorithm.vacate(self._state, turn_ns, cost, self._now)
        if line is None:
            return False
        self._state = line
        self._is_changed = True
        return True

    def hold(self, name: str, amount: int, ttl_ns: int) -> None:
        """Set *amount* aside. In a queue it gets its place at once."""
        if self._queued is not None:
            self.charge(amount)
        if amount:
            self._held += amount
            hold = Hold(self._held, self._now + ttl_ns, ttl_ns)
            self._holds = {**self._holds, name: hold}
            self._is_changed = True

    def settle(self, name: str, amount: int, *, charge_lapsed: bool) -> bool:
        """Close the hold *name* and charge *amount*; return True if it was open.

        What was held in a queue has its place: only what exceeds it is charged.
        """
        was_open = name in self._holds if self._settled is None else self._settled
        self._settled = was_open
        if name in self._holds:
            self._held = self._holds[name].amount
            self._holds = {other: held for other, held in self._holds.items() if other != name}
            self._is_changed = True
        if self._queued is not None:
            self.charge(max(0, amount - self._held) if was_open else 0)
            self._held = max(0, self._held - amount)
        elif was_open or charge_lapsed:
            self.charge(amount)
        return was_open

    def enter(self, lease: str) -> None:
        """Take the slot *lease* if this is a counter of slots."""
        if isinstance(self._algorithm, ConcurrencyAlgorithm):
            self._state = self._algorithm.enter(self._state, lease, self._now)
            self._is_changed = True

    def renew(self, lease: str) -> None:
        """Renew the lease of a slot that is held."""
        if isinstance(self._algorithm, ConcurrencyAlgorithm):
            self._state = self._algorithm.renew(self._state, lease, self._now)
            self._is_changed = True

    def deny(self, cost: int) -> None:
        """Record that *cost* slots did not fit, if they were guaranteed."""
        algorithm = self._algorithm
        if isinstance(algorithm, ConcurrencyAlgorithm) and algorithm.share and algorithm.lends:
            self._state = algorithm.deny(self._state, cost, self._now)
            self._is_changed = True

    def leave(self, lease: str) -> None:
        """Release the slot *lease*."""
        if isinstance(self._algorithm, ConcurrencyAlgorithm):
            self._state = self._algorithm.leave(self._state, lease, self._now)
            self._is_changed = True

    @property
    def has_slots(self) -> bool:
        """True if this is a counter of slots."""
        return isinstance(self._algorithm, ConcurrencyAlgorithm)

    def has_slot(self, lease: str) -> bool:
        """Return True if *lease* still has its slot."""
        algorithm = self._algorithm
        return isinstance(algorithm, ConcurrencyAlgorithm) and algorithm.holds(
            self._state, lease, self._now
        )

    @abstractmethod
    def close(self) -> None:
        """Save the counter, if it was changed."""


class ConstantCounter(CounterTransaction):
    """The counter of a limit that needs none: nothing is found, and nothing is saved."""

    __slots__ = ()

    def __init__(self, limit: Limit, now: int) -> None:
        super().__init__(algorithm_for(limit), None, {}, now)

    @property
    def remaining(self) -> int:
        """The largest cost that fits now: any, or none."""
        return LARGEST_AMOUNT if self._algorithm.quota else 0

    def hold(self, name: str, amount: int, ttl_ns: int) -> None:
        """Do nothing: there is nothing to set aside."""

    def settle(self, name: str, amount: int, *, charge_lapsed: bool) -> bool:
        """Return True: what was never set aside does not expire."""
        return True

    def close(self) -> None:
        """Do nothing: there is nothing to save."""


def take_all(
    opened: Sequence[tuple[CounterTransaction, int]],
    *,
    consume: bool = True,
    lease: str | None = None,
) -> Outcomes:
    """Charge all counters if all fit, else none; of slots, take the one named *lease*.

    A denial saves what `rebase` moved, and slots record what they denied. With `consume=False`
    nothing is saved.
    """
    waits = [counter.wait(cost) for counter, cost in opened]
    is_allowed = waits.count(0) == len(waits)
    if consume and is_allowed:
        for counter, cost in opened:
            if lease is not None and counter.has_slots:
                counter.enter(lease)
            else:
                counter.charge(cost)
            counter.close()
    outcomes = outcomes_of(opened, waits)
    if consume and not is_allowed:
        for (counter, cost), wait in zip(opened, waits, strict=True):
            if wait and lease is not None and counter.has_slots:
                counter.deny(cost)
            counter.close()
    return outcomes


def take_up_to(opened: Sequence[tuple[CounterTransaction, int]]) -> tuple[int, Outcomes]:
    """Charge as much of the cost, which is the same for all counters, as fits in all of them.

    Return the number of units, and the figures of each counter for the rest.
    """
    counters = [counter for counter, _ in opened]
    cost = opened[0][1]
    granted = min([cost, *[one.remaining // counters.count(one) for one in counters]])
    for counter in counters:
        counter.charge(granted)
    for counter in counters:
        counter.close()
    waits = [counter.wait(cost - granted) for counter in counters]
    return granted, outcomes_of(opened, waits)


def outcomes_of(
    opened: Sequence[tuple[CounterTransaction, int]], waits: Sequence[int | None]
) -> Outcomes:
    """Return the figures of each counter, whose cost has to wait as *waits* say."""
    pairs = zip(opened, waits, strict=True)
    return tuple([counter.outcome(wait) for (counter, _), wait in pairs])
