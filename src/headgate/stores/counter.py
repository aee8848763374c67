"""A counter in the hands of one operation, wherever it is kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from headgate.algorithms import Algorithm, ConcurrencyAlgorithm, LeakyQueueAlgorithm
from headgate.algorithms.leaky_queue import Turns
from headgate.algorithms.reservations import Hold, Holds, outcome_beside, wait_beside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.algorithms import Outcome


class Counting(ABC):
    """A counter that was read, asked and changed, and is put back with `close`.

    What one operation asks of it adds up: the second check of the same counter has to fit beside
    the first.
    """

    __slots__ = (
        "_algorithm",
        "_asked",
        "_held",
        "_holds",
        "_is_changed",
        "_now",
        "_settled",
        "_state",
        "_turns",
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
        self._turns: Turns | None = None
        if isinstance(algorithm, LeakyQueueAlgorithm):
            self._turns = Turns(algorithm, state, now)

    def wait(self, cost: int) -> int | None:
        """Nanoseconds until *cost* fits beside all that was asked before; None if never."""
        if self._turns is not None:
            return self._turns.wait(cost)
        if not cost:
            return 0
        self._asked += cost
        if not self._holds:
            return self._algorithm.wait(self._state, self._asked, self._now)
        return wait_beside(self._algorithm, self._state, self._holds, self._asked, self._now)

    def outcome(self, wait: int | None) -> Outcome:
        """The figures as they are now, for a cost that has to wait *wait*."""
        if self._turns is not None:
            return self._turns.told(self._algorithm.outcome(self._state, wait, self._now))
        if not self._holds:
            return self._algorithm.outcome(self._state, wait, self._now)
        return outcome_beside(self._algorithm, self._state, self._holds, wait, self._now)

    def outcome_of_one(self) -> Outcome:
        """The figures as they are now, for a cost of 1."""
        self._asked = 0
        if isinstance(self._algorithm, LeakyQueueAlgorithm):
            self._turns = Turns(self._algorithm, self._state, self._now)
        return self.outcome(self.wait(1))

    def charge(self, amount: int) -> None:
        if amount:
            self._state = self._algorithm.charge(self._state, amount, self._now)
            self._is_changed = True

    def refund(self, amount: int) -> None:
        if amount and self._state is not None:
            self._state = self._algorithm.refund(self._state, amount, self._now)
            self._is_changed = True

    def vacate(self, turn_ns: int, cost: int) -> bool:
        """Give up the turn of *cost* that comes at *turn_ns*; whether there is one in this queue,
        and it has not come."""
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
        """Set *amount* aside. In a queue it has its turn at once."""
        if self._turns is not None:
            self.charge(amount)
        if amount:
            self._held += amount
            self._holds = {**self._holds, name: Hold(self._held, self._now + ttl_ns)}
            self._is_changed = True

    def settle(self, name: str, amount: int, *, charge_lapsed: bool) -> bool:
        """Close the hold *name* and charge *amount*; whether it was open.

        What was held in a queue has its turn: only what goes beyond it is charged.
        """
        was_open = name in self._holds if self._settled is None else self._settled
        self._settled = was_open
        if name in self._holds:
            self._held = self._holds[name].amount
            self._holds = {other: held for other, held in self._holds.items() if other != name}
            self._is_changed = True
        if self._turns is not None:
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
        """Start the lease of a slot that is held anew."""
        if isinstance(self._algorithm, ConcurrencyAlgorithm):
            self._state = self._algorithm.renew(self._state, lease, self._now)
            self._is_changed = True

    def refuse(self, cost: int) -> None:
        """Slots did not fit: it is remembered if they were guaranteed."""
        algorithm = self._algorithm
        if isinstance(algorithm, ConcurrencyAlgorithm) and algorithm.share and algorithm.lends:
            self._state = algorithm.refuse(self._state, cost, self._now)
            self._is_changed = True

    def leave(self, lease: str) -> None:
        """Give the slot *lease* back."""
        if isinstance(self._algorithm, ConcurrencyAlgorithm):
            self._state = self._algorithm.leave(self._state, lease, self._now)
            self._is_changed = True

    @property
    def has_slots(self) -> bool:
        return isinstance(self._algorithm, ConcurrencyAlgorithm)

    def has_slot(self, lease: str) -> bool:
        """Whether *lease* still has its slot."""
        algorithm = self._algorithm
        return isinstance(algorithm, ConcurrencyAlgorithm) and algorithm.holds(
            self._state, lease, self._now
        )

    @abstractmethod
    def close(self) -> None:
        """Put the counter back, if it was changed."""


def refuse_slots(opened: Sequence[tuple[Counting, int]], waits: Sequence[int | None]) -> None:
    """Have those counters of slots remember that they refused which did: *waits* say so."""
    for (counter, cost), wait in zip(opened, waits, strict=True):
        if wait and counter.has_slots:
            counter.refuse(cost)
            counter.close()
