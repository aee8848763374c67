"""Nodes that draw from pots, step by step, in any order, with any pauses between the steps.

Each node keeps to the rule of leases: besides the request at hand it has no more than its own loan,
and not for longer. A request of it is a generator that yields operations; the fleet carries one out
at a time, so all that can happen between two operations of one node does happen.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.stores.layers.leases.pots import Pots

from headgate.errors import StoreError
from headgate.stores.layers.leases.lease import pot_key, pots_group
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import Check, Draw, GrantLease, Operation, Pour
from headgate.testing import ManualClock
from headgate.units import MILLISECOND

if TYPE_CHECKING:
    from headgate.limits import Limit
    from headgate.stores.layers.leases.lease import Split

LIFE_NS = 500 * MILLISECOND

Request = Generator[Operation[Any], Any, bool]


class Node:
    """A node with a loan of up to *batch* units, refilled from pots while it lasts."""

    def __init__(self, name: str, limit: Limit, split: Split, clock: ManualClock, batch: int):
        self.pots = Pots(name, clock)
        self.name = name
        self.batch = batch
        self._limit = limit
        self.split = split
        self._clock = clock
        self._left = self._granted = self._lapses_ns = 0

    @property
    def held(self) -> int:
        """What it may admit by itself."""
        return self._left if self._clock() < self._lapses_ns else 0

    def request(self, cost: int = 1) -> Request:
        """Decide one request; whether it was admitted."""
        now_ns = self._clock()
        is_lent = now_ns < self._lapses_ns
        if is_lent and self._left >= cost:
            self._left -= cost
            return True
        check = Check("g", "hot", self._limit, cost)
        if is_lent or not self.batch:
            extra = self._granted - self._left if is_lent else 0
            drawn = yield from self.pots.take(check, self.split, extra, LIFE_NS)
            if drawn.amount:
                if self._clock() < self._lapses_ns:
                    self._left += drawn.amount - cost
                return True
            if drawn.outcome is not None:
                return drawn.outcome.allowed
        unused = self._left if is_lent else 0
        self._left = self._granted = 0
        sent_ns = self._clock()
        lent = yield GrantLease(
            check, self.name, self.batch, LIFE_NS, unused, cap=self.split.node_cap
        )
        self._left = self._granted = lent.amount
        self._lapses_ns = sent_ns + lent.lasts_ns
        return bool(lent.outcome.allowed)


@dataclass(slots=True)
class Under:
    """A request under way: an operation that is to be carried out, or whose reply is to be told."""

    node: Node
    request: Request
    operation: Operation[Any]
    due_ns: int
    is_done: bool = False
    reply: Any = None
    done_ns: int = 0


class Fleet:
    """Nodes on one store, on one clock, driven at random by *seed*."""

    def __init__(self, limit: Limit, split: Split, *, seed: int, nodes: int, batch: int) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock(1_000_000)
        self.store = MemoryStore(clock=self.clock)
        self.admitted: list[int] = []
        """When a unit was."""
        self.operations: Counter[str] = Counter()
        self.refused = 0
        self.most_held = self.most_in_a_pot = 0
        """The most that nodes and pots had at a time, and the most in one pot."""
        self.split = split
        self._limit, self._batch = limit, batch
        self._born = 0
        self._nodes = [self._new_node() for _ in range(nodes)]
        self._under: dict[Node, Under] = {}

    def run(
        self, seconds: float, *, per_second: int, crashes: bool = False, pauses: bool = False
    ) -> None:
        """Have all nodes together ask *per_second* times, for *seconds*."""
        end_ns = self.clock() + int(seconds * 10**9)
        next_ns = self.clock() + int(self.rng.expovariate(per_second) * 10**9)
        while True:
            first = min(self._under.values(), key=lambda under: under.due_ns, default=None)
            if min(next_ns, next_ns if first is None else first.due_ns) >= end_ns:
                self.clock.advance_ns(end_ns - self.clock())
                return
            if first is None or next_ns <= first.due_ns:
                self.clock.advance_ns(next_ns - self.clock())
                next_ns += int(self.rng.expovariate(per_second) * 10**9)
                self._begin(self.rng.choice(self._nodes))
                continue
            self.clock.advance_ns(first.due_ns - self.clock())
            if crashes and self.rng.random() < 0.002:
                self._nodes[self._nodes.index(first.node)] = self._new_node()
                del self._under[first.node]
            elif first.is_done:
                self._go_on(first, is_lost=pauses and self.rng.random() < 0.005)
            else:
                self._carry_out(first, is_paused=pauses and self.rng.random() < 0.01)

    def most_in_any_interval(self, per_second: float) -> float:
        """The most by which the units of any interval exceed what comes back in its time."""
        most = low = 0.0
        for count, at_ns in enumerate(sorted(self.admitted)):
            level = count - per_second * (at_ns - self.admitted[0]) / 10**9
            low = level if count == 0 else min(low, level)
            most = max(most, level + 1 - low)
        return most

    def _new_node(self) -> Node:
        self._born += 1
        return Node(f"node-{self._born}", self._limit, self.split, self.clock, self._batch)

    def _look(self) -> None:
        keys = [pot_key("hot", part, self.split.parts) for part in range(self.split.parts)]
        pots = [self.store.run(Draw(pots_group("g"), key, 0)) or 0 for key in keys]
        held = sum(pots) + sum(node.held for node in self._nodes)
        self.most_held = max(self.most_held, held)
        self.most_in_a_pot = max(self.most_in_a_pot, *pots)

    def _begin(self, node: Node) -> None:
        if node in self._under:
            return  # one request at a time
        request = node.request()
        try:
            operation = next(request)
        except StopIteration as done:
            self._count(done.value, self.clock())
        else:
            self._send(node, request, operation)

    def _send(self, node: Node, request: Request, operation: Operation[Any]) -> None:
        way_ns = self.rng.randrange(20_000, 400_000)
        self._under[node] = Under(node, request, operation, self.clock() + way_ns)

    def _carry_out(self, under: Under, *, is_paused: bool) -> None:
        under.reply = self.store.run(under.operation)
        under.is_done, under.done_ns = True, self.clock()
        under.due_ns += self.rng.randrange(1000 if is_paused else 1) * MILLISECOND
        self.operations[type(under.operation).__name__] += 1
        if isinstance(under.operation, Pour | GrantLease):
            self._look()

    def _go_on(self, under: Under, *, is_lost: bool) -> None:
        del self._under[under.node]
        try:
            if is_lost:
                operation = under.request.throw(StoreError("no answer"))
            else:
                operation = under.request.send(under.reply)
        except StopIteration as done:
            self._count(done.value, under.done_ns)
        except StoreError:
            return
        else:
            self._send(under.node, under.request, operation)

    def _count(self, is_admitted: bool, at_ns: int) -> None:
        if is_admitted:
            self.admitted.append(at_ns)
        else:
            self.refused += 1
