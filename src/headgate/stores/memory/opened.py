"""A counter in the hands of one operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.algorithms import ConcurrencyAlgorithm, carry
from headgate.algorithms.holds import Hold, outcome_beside, wait_beside
from headgate.stores.memory.counters import Counters, Entry
from headgate.stores.memory.places import Place, ends_in, give_back, place_now

if TYPE_CHECKING:
    from headgate.algorithms import Algorithm, Outcome


class Opened:
    """The counter of *key*, found once, asked and changed, and put back with `close`.

    What one operation asks of it adds up: the second check of the same counter has to fit beside
    the first. The caller has the store's turn.
    """

    __slots__ = (
        "_algorithm",
        "_asked",
        "_counters",
        "_held",
        "_holds",
        "_is_changed",
        "_key",
        "_now",
        "_settled",
        "_state",
    )

    def __init__(self, counters: Counters, key: str, now: int) -> None:
        self._counters = counters
        self._algorithm = counters.algorithm
        self._key = key
        self._now = now
        self._state, self._holds = counters.load(key, now)
        self._asked = 0
        self._held = 0
        self._settled: bool | None = None
        self._is_changed = False

    def wait(self, cost: int) -> int | None:
        """Nanoseconds until *cost* fits beside all that was asked before; None if never."""
        if not cost:
            return 0
        self._asked += cost
        if not self._holds:
            return self._algorithm.wait(self._state, self._asked, self._now)
        return wait_beside(self._algorithm, self._state, self._holds, self._asked, self._now)

    def outcome(self, wait: int | None) -> Outcome:
        """The figures as they are now, for a cost that has to wait *wait*."""
        if not self._holds:
            return self._algorithm.outcome(self._state, wait, self._now)
        return outcome_beside(self._algorithm, self._state, self._holds, wait, self._now)

    def outcome_of_one(self, algorithm: Algorithm[Any] | None = None) -> Outcome:
        """The figures as they are now, for a cost of 1; as *algorithm*, if given, would tell."""
        self._asked = 0
        if algorithm is None or algorithm.limit == self._algorithm.limit or self._state is None:
            return self.outcome(self.wait(1))
        state = carry(self._algorithm, self._state, algorithm, self._now)
        wait = wait_beside(algorithm, state, self._holds, 1, self._now)
        return outcome_beside(algorithm, state, self._holds, wait, self._now)

    def wait_anew(self, units: int) -> int | None:
        """Nanoseconds until *units* fit, whatever was asked before; None if never."""
        self._asked = 0
        return self.wait(units)

    @property
    def remaining(self) -> int:
        """The largest cost that fits now."""
        return self.outcome(0).remaining

    @property
    def is_own(self) -> bool:
        """Whether no other key shares this counter."""
        return self._counters.place_of(self._key) == self._key

    @property
    def place(self) -> Place:
        """Where the last charge went."""
        return place_now(self._algorithm, self._state)

    def ends_in(self, amount: int) -> int:
        """Nanoseconds until *amount*, if charged now, would mean nothing any more."""
        return ends_in(self._algorithm, self._state, amount, self._now)

    def give_back(self, amount: int, place: Place) -> None:
        """Give *amount* back that was charged at *place*."""
        if amount and self._state is not None and self.is_own:
            self._state = give_back(self._algorithm, self._state, amount, place, self._now)
            self._is_changed = True

    def charge(self, amount: int) -> None:
        if amount:
            self._state = self._algorithm.charge(self._state, amount, self._now)
            self._is_changed = True

    def refund(self, amount: int) -> None:
        if amount and self._state is not None:
            self._state = self._algorithm.refund(self._state, amount, self._now)
            self._is_changed = True

    def hold(self, name: str, amount: int, ttl_ns: int) -> None:
        if amount:
            self._held += amount
            self._holds = {**self._holds, name: Hold(self._held, self._now + ttl_ns)}
            self._is_changed = True

    def settle(self, name: str, amount: int, *, charge_lapsed: bool) -> bool:
        """Close the hold *name* and charge *amount*; whether it was open."""
        was_open = name in self._holds if self._settled is None else self._settled
        self._settled = was_open
        if name in self._holds:
            self._holds = {other: held for other, held in self._holds.items() if other != name}
            self._is_changed = True
        if was_open or charge_lapsed:
            self.charge(amount)
        return was_open

    def enter(self, lease: str) -> None:
        """Take the slot *lease* if this is a counter of slots."""
        if isinstance(self._algorithm, ConcurrencyAlgorithm):
            self._state = self._algorithm.enter(self._state, lease, self._now)
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

    def close(self) -> None:
        """Put the counter back, if it was changed."""
        if self._is_changed:
            self._counters.save(self._key, Entry(self._state, self._holds), self._now)
