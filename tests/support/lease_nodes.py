"""Nodes with a book each on one store, on a clock that the test moves; messages may get lost."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from headgate.algorithms import algorithm_for
from headgate.stores.layers.leases.lease_table import Book
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import Check, GrantLease, LeaseGrant, Operation, Take
from headgate.testing import ManualClock

if TYPE_CHECKING:
    from headgate.limits import Accuracy, Limit, TokenBucket

GROUP = "api"
KEY = "user:1"


@dataclass
class Faults:
    """How often what happens to a message, and how wrong the clocks of nodes go."""

    request_lost: float = 0.0
    reply_lost: float = 0.0
    late: float = 0.0
    skew: float = 0.0


class World:
    """One store, and the time."""

    def __init__(self, seed: int, faults: Faults | None = None) -> None:
        self.clock = ManualClock(1_000.0)
        self.store = MemoryStore(clock=self.clock)
        self.random = Random(seed)
        self.faults = faults or Faults()
        self.trips = 0
        self.names = 0
        self.late: list[tuple[int, Operation[Any]]] = []

    def send(self, operation: Operation[Any]) -> Any:
        """The reply, or None: nobody knows what became of it."""
        self.trips += 1
        chance = self.random.random()
        faults = self.faults
        if chance < faults.request_lost:
            return None
        if chance < faults.request_lost + faults.late:
            self.late.append((self.clock() + self.random.randrange(10**9), operation))
            return None
        reply = self.store.run(operation)
        return None if chance > 1 - faults.reply_lost else reply

    def pass_time(self, nanoseconds: int) -> None:
        """Let time pass; what was late is carried out then."""
        self.clock.advance_ns(nanoseconds)
        due = [late for late in self.late if late[0] <= self.clock()]
        self.late = [late for late in self.late if late not in due]
        for _, operation in due:
            self.store.run(operation)


class Node:
    """A book, a clock that may be wrong, and a shell of a few lines."""

    def __init__(self, world: World, accuracy: Accuracy, **options: int) -> None:
        self.world = world
        world.names += 1
        self.book = Book(f"n{world.names}", **options)
        self.book.adopt({GROUP: accuracy})
        skew = world.faults.skew
        self._pace = 1 + world.random.uniform(-skew, skew)
        self._offset = world.random.randrange(10**12)

    def now(self) -> int:
        return int(self.world.clock() * self._pace) + self._offset

    def hit(self, limit: Limit, cost: int = 1, key: str = KEY) -> bool | None:
        """Whether it was admitted; None if the store was asked and did not answer."""
        check = Check(GROUP, key, limit, cost)
        served = self.book.serve((check,), self.now())
        if served is not None:
            return served[0].outcome.allowed
        lend = self.book.ask(check, self.now())
        if lend is None:
            reply = self.world.send(Take((check,)))
            return None if reply is None else reply[0].allowed
        lent = self.exchange(lend)
        return None if lent is None else lent.outcome.allowed

    def exchange(self, lend: GrantLease) -> LeaseGrant | None:
        sent_ns = self.now()
        lent: LeaseGrant | None = self.world.send(lend)
        if lent is None:
            self.book.lost(lend, self.now())
        else:
            self.book.heard(lend, lent, sent_ns, self.now())
        return lent

    def keep(self) -> None:
        for lend in self.book.due(self.now()):
            self.exchange(lend)

    def close(self) -> None:
        for lend in self.book.close(self.now()):
            self.exchange(lend)

    def warm(self, limit: Limit, hits: int = 12) -> None:
        """Make the key hot."""
        for _ in range(hits):
            assert self.hit(limit)


class Referee:
    """Says by how much all that was admitted went over *limit*, in the worst interval."""

    def __init__(self, limit: TokenBucket) -> None:
        self._algorithm = algorithm_for(limit)
        self._capacity = limit.capacity
        self._state: Any = None
        self.total = 0
        self.excess = 0

    def admitted(self, cost: int, now: int) -> None:
        self.total += cost
        self._state = self._algorithm.charge(self._state, cost, now)
        self.excess = max(self.excess, self._algorithm.used(self._state, now) - self._capacity)
