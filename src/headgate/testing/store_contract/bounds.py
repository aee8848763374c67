"""Several nodes together: the limit and the stated bound."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from headgate.algorithms import algorithm_for
from headgate.limits import GCRA, FixedWindow, LeakyBucket, TokenBucket
from headgate.testing.store_contract.subject import TENS, StoreUnderTest
from headgate.units import MILLISECOND

if TYPE_CHECKING:
    from headgate.limits import Limit

PACED: tuple[Limit, ...] = (TokenBucket(20, 10), GCRA(rate=10, burst=20), LeakyBucket(20, 10))
NODES = 3


class BoundContract(StoreUnderTest):
    """Several nodes on the same counters, with more demand than the limit allows."""

    def test_nodes_allow_at_most_the_limit_and_the_bound_in_any_interval(self) -> None:
        for limit in PACED:
            for seed in range(2):
                random = Random(seed)  # noqa: S311 (a history that can be repeated, no secret)
                fleet = self.fleet(limit)
                referee = Referee(limit)
                began = self.clock()
                for _ in range(150):
                    for _ in range(random.choice((1, 2, 10))):
                        cost = random.choice((1, 1, 1, 2, 5))
                        if random.choice(fleet).hit("key", cost):
                            referee.record(cost, self.clock())
                    self.clock.advance_ns(random.choice((1, 5, 50, 300)) * MILLISECOND)
                bound = self.overshoot(limit, NODES)
                case = f"{limit}, seed {seed}: {referee.total} allowed"
                assert referee.excess <= bound, f"{case}, {referee.excess} too many"
                fair = limit.quota + (self.clock() - began) * limit.quota // (2 * limit.period_ns)
                assert referee.total >= fair, f"{case}, {fair} at least were expected"

    def test_nodes_allow_at_most_the_limit_and_the_bound_in_a_window(self) -> None:
        limit = FixedWindow(20, 10)
        fleet = self.fleet(limit)
        self.start_of(limit.window_ns)
        for _ in range(5):
            allowed = 0
            for _ in range(20):
                allowed += sum(node.hit("key").allowed for node in fleet)
                self.clock.advance_ns(limit.window_ns // 20)
            assert allowed <= 20 + self.overshoot(limit, NODES)
            assert allowed >= 20 - self.overshoot(limit, NODES)

    def test_a_closed_node_returns_the_units_that_it_did_not_use(self) -> None:
        for limit in TENS:
            name = self.new_name()
            node = self.make_node(self.clock)
            limiter = self.limiter(limit, name, node)
            used = sum(limiter.hit("key").allowed for _ in range(3))
            if node is not self.store:
                self.close(node)
            assert used == 3, limit
            assert self.limiter(limit, name).peek("key").remaining == 7, limit

    def fleet(self, limit: Limit) -> list[Any]:
        """Return a limiter for each node, all with the same counters."""
        name = self.new_name()
        return [self.limiter(limit, name, self.node()) for _ in range(NODES)]


class Referee:
    """The excess of all allowed units over *limit*, in the worst interval."""

    def __init__(self, limit: Limit) -> None:
        self._algorithm = algorithm_for(limit)
        self._quota = limit.quota
        self._state: Any = None
        self.total = 0
        self.excess = 0

    def record(self, cost: int, now: int) -> None:
        """Record *cost* units that a node allowed at *now*."""
        self.total += cost
        self._state = self._algorithm.charge(self._state, cost, now)
        self.excess = max(self.excess, self._algorithm.used(self._state, now) - self._quota)
