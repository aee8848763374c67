"""Nodes with a table each on one store, on a clock that the test moves; messages may get lost."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from headgate.algorithms import algorithm_for
from headgate.stores.layers.leases.lease_table import LeaseTable
from headgate.stores.operations import Check, GrantLease, LeaseGrant, Operation, Take
from headgate.testing import ManualClock
from tests.support.lease_store import LeaseGrantingStore

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
        self.store = LeaseGrantingStore(clock=self.clock)
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
    """A table, a clock that may be wrong, and a shell of a few lines."""

    def __init__(self, world: World, accuracy: Accuracy, **options: int) -> None:
        self.world = world
        world.names += 1
        self.table = LeaseTable(f"n{world.names}", **options)
        self.table.set_accuracies({GROUP: accuracy})
        skew = world.faults.skew
        self._pace = 1 + world.random.uniform(-skew, skew)
        self._offset = world.random.randrange(10**12)

    def now(self) -> int:
        return int(self.world.clock() * self._pace) + self._offset

    def hit(self, limit: Limit, cost: int = 1, key: str = KEY) -> bool | None:
        """Whether it was allowed; None if the store was asked and did not answer."""
        check = Check(GROUP, key, limit, cost)
        served = self.table.serve((check,), self.now())
        if served is not None:
            return served[0].allowed
        request = self.table.request(check, self.now())
        if request is None:
            reply = self.world.send(Take((check,)))
            return None if reply is None else reply[0].allowed
        grant = self.exchange(request)
        return None if grant is None else grant.outcome.allowed

    def exchange(self, request: GrantLease) -> LeaseGrant | None:
        sent_ns = self.now()
        grant: LeaseGrant | None = self.world.send(request)
        if grant is None:
            self.table.lost(request, self.now())
        else:
            self.table.granted(request, grant, sent_ns, self.now())
        return grant

    def keep(self) -> None:
        for request in self.table.due(self.now()):
            self.exchange(request)

    def close(self) -> None:
        for request in self.table.close(self.now()):
            self.exchange(request)

    def warm(self, limit: Limit, hits: int = 12) -> None:
        """Make the key hot."""
        for _ in range(hits):
            assert self.hit(limit)


class Referee:
    """Says by how much all that was allowed went over *limit*, in the worst interval."""

    def __init__(self, limit: TokenBucket) -> None:
        self._algorithm = algorithm_for(limit)
        self._capacity = limit.capacity
        self._state: Any = None
        self.total = 0
        self.excess = 0

    def allowed(self, cost: int, now: int) -> None:
        self.total += cost
        self._state = self._algorithm.charge(self._state, cost, now)
        self.excess = max(self.excess, self._algorithm.used(self._state, now) - self._capacity)
