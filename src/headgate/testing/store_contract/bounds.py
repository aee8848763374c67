"""What nodes, and regions, admit together: the limit and the stated bound."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from headgate.algorithms import algorithm_for
from headgate.limits import GCRA, FixedWindow, LeakyBucket, TokenBucket
from headgate.stores import Charge, Check, Refund, Take
from headgate.testing.store_contract.subject import TENS, StoreUnderTest, needs, seconds
from headgate.units import MILLISECOND

if TYPE_CHECKING:
    from headgate.limits import Limit

PACED: tuple[Limit, ...] = (TokenBucket(20, 10), GCRA(rate=10, burst=20), LeakyBucket(20, 10))
NODES = 3


class BoundContract(StoreUnderTest):
    """Several nodes on the same counters, asked for more than the limit allows."""

    def test_the_store_is_as_declared(self) -> None:
        declared = (self.store.grants_leases, self.store.publishes_values)
        assert declared == (self.grants_leases, self.publishes_values)

    def test_nodes_admit_no_more_in_any_interval_than_the_limit_and_the_bound(self) -> None:
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
                            referee.admitted(cost, self.clock())
                    self.clock.advance_ns(random.choice((1, 5, 50, 300)) * MILLISECOND)
                bound = self.overshoot(limit, NODES)
                case = f"{limit}, seed {seed}: {referee.total} admitted"
                assert referee.excess <= bound, f"{case}, {referee.excess} too many"
                fair = limit.quota + (self.clock() - began) * limit.quota // (2 * limit.period_ns)
                assert referee.total >= fair, f"{case}, {fair} at least were expected"

    def test_nodes_admit_no_more_in_a_window_than_the_limit_and_the_bound(self) -> None:
        limit = FixedWindow(20, 10)
        fleet = self.fleet(limit)
        self.start_of(limit.window_ns)
        for _ in range(5):
            admitted = 0
            for _ in range(20):
                admitted += sum(node.hit("key").allowed for node in fleet)
                self.clock.advance_ns(limit.window_ns // 20)
            assert admitted <= 20 + self.overshoot(limit, NODES)
            assert admitted >= 20 - self.overshoot(limit, NODES)

    def test_a_node_that_is_closed_leaves_what_it_did_not_use(self) -> None:
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


@needs("replicates")
class RegionsContract(StoreUnderTest):
    """Usage in one region counts in the other once it is sent, and not before anything else."""

    def test_usage_counts_in_the_other_region_once(self) -> None:
        for limit in TENS:
            check = Check(self.new_name(), "key", limit, 3)
            for expected in (7, 4):
                assert self.run(Take((check,)))[0].allowed, limit
                self.exchange()
                self.exchange()
                assert self.left_there(check) == expected, limit
                assert self.left(limit, check.group) == expected, limit

    def test_usage_of_a_limiter_counts_in_the_other_region(self) -> None:
        for limit in TENS:
            name = self.new_name()
            here, there = self.limiter(limit, name), self.limiter(limit, name, self.peer())
            assert here.hit("key", 2), limit
            assert all(here.hit_many([("key", 1), ("key", 3)])), limit
            here.reserve("key", 3).commit(1)
            self.exchange()
            assert there.peek("key").remaining == 3, limit
            assert not there.hit("key", 4), limit
            assert there.hit("key", 3), limit

    def test_what_was_not_consumed_is_not_sent(self) -> None:
        for limit in TENS:
            check = Check(self.new_name(), "key", limit, 11)
            limiter = self.limiter(limit)
            assert not self.run(Take((check,)))[0].allowed, limit
            limiter.peek("key")
            limiter.reserve("key", 5).cancel()
            self.exchange()
            assert self.left_there(check) == 10, limit

    def test_debt_and_refunds_are_sent(self) -> None:
        for limit in TENS:
            check = Check(self.new_name(), "key", limit, 25)
            self.run(Charge((check,)))
            self.exchange()
            assert self.left_there(check) == 0, limit
            self.run(Refund((Check(check.group, "other", limit, 0),)))
            self.run(Take((Check(check.group, "other", limit, 6),)))
            self.run(Refund((Check(check.group, "other", limit, 2),)))
            self.exchange()
            there = self.left(limit, check.group, "other", self.peer())
            assert there == 6, limit

    def test_regions_admit_at_most_the_limit_each_before_they_exchange(self) -> None:
        for limit in TENS:
            name = self.new_name()
            here, there = self.limiter(limit, name), self.limiter(limit, name, self.peer())
            assert sum(here.hit("key").allowed for _ in range(20)) == 10, limit
            assert sum(there.hit("key").allowed for _ in range(20)) == 10, limit
            self.exchange()
            admitted = 0
            for _ in range(9):
                self.clock.advance_ns(seconds(1))
                admitted += there.hit("key").allowed
            assert admitted == 0, f"{limit}: the other region has 20 of 10 used"

    def left_there(self, check: Check) -> int:
        """Return what is left of a counter in the other region."""
        return self.left(check.limit, check.group, check.key, self.peer())


class Referee:
    """Counts by how much all that was admitted exceeds *limit*, in the worst interval."""

    def __init__(self, limit: Limit) -> None:
        self._algorithm = algorithm_for(limit)
        self._quota = limit.quota
        self._state: Any = None
        self.total = 0
        self.excess = 0

    def admitted(self, cost: int, now: int) -> None:
        """Count *cost* units that a node admitted at *now*."""
        self.total += cost
        self._state = self._algorithm.charge(self._state, cost, now)
        self.excess = max(self.excess, self._algorithm.used(self._state, now) - self._quota)
