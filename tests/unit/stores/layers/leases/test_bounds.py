"""The bound holds in random histories of several nodes, whatever is lost, late or paused."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest

from headgate.limits import Accuracy, FixedWindow, TokenBucket
from headgate.units import MILLISECOND, SECOND
from tests.support.lease_nodes import Faults, Node, Referee, World

FAULTS = (
    Faults(),
    Faults(reply_lost=0.2),
    Faults(request_lost=0.2),
    Faults(request_lost=0.1, reply_lost=0.1, late=0.1, skew=0.003),
)


class History:
    """Nodes hit one key, are paused, crash and come anew."""

    def __init__(self, seed: int, accuracy: Accuracy, limit: TokenBucket, faults: Faults) -> None:
        self.world = World(seed, faults)
        self.random = Random(seed)
        self.accuracy, self.limit = accuracy, limit
        self.referee = Referee(limit)
        self.nodes = [Node(self.world, accuracy) for _ in range(4)]

    def run(self) -> Referee:
        for _ in range(20):
            self.trickle()
            pause_ns = self.random.choice([0, 5, 20, 50, 100, 300]) * MILLISECOND
            self.world.pass_time(pause_ns)
            self.burst()
            self.world.pass_time(self.random.randrange(SECOND))
        assert self.referee.total > 500
        return self.referee

    def trickle(self) -> None:
        """Less is asked of the nodes than comes back, and what they are grant they hardly use."""
        for _ in range(30):
            self.world.pass_time(self.random.randrange(30 * MILLISECOND))
            n = self.random.randrange(len(self.nodes))
            chance = self.random.random()
            if chance < 0.02:
                self.nodes[n] = Node(self.world, self.accuracy)
            elif chance < 0.2:
                self.nodes[n].keep()
            else:
                self.hit(self.nodes[n], self.random.choice([1, 1, 2]))

    def burst(self) -> None:
        """All ask for all they can get."""
        for _ in range(self.random.choice([5, 20, 50])):
            for node in self.nodes:
                self.hit(node, 1)
            self.world.pass_time(self.random.choice([0, 100_000, MILLISECOND]))

    def hit(self, node: Node, cost: int) -> None:
        if node.hit(self.limit, cost):
            self.referee.allowed(cost, self.world.clock())


@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.parametrize("seed", range(2))
def test_leases_by_share_never_go_over_the_cap(seed: int, faults: Faults) -> None:
    accuracy = Accuracy(max_overshoot=Fraction(1, 10))
    referee = History(seed, accuracy, TokenBucket(40, 100), faults).run()
    assert referee.excess <= 4, f"seed {seed}, {faults}"


@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.parametrize("seed", range(2))
def test_leases_by_batch_never_go_over_a_batch_for_each_node(seed: int, faults: Faults) -> None:
    referee = History(seed, Accuracy(batch=8), TokenBucket(40, 100), faults).run()
    assert referee.excess <= 4 * 8, f"seed {seed}, {faults}"


@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.parametrize("seed", range(2))
def test_postpaid_leases_never_go_over_the_cap(seed: int, faults: Faults) -> None:
    accuracy = Accuracy(max_overshoot=Fraction(1, 5), sync_ns=50 * MILLISECOND)
    referee = History(seed, accuracy, TokenBucket(40, 100), faults).run()
    assert referee.excess <= 8, f"seed {seed}, {faults}"


@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.parametrize("seed", range(2))
def test_fixed_windows_are_never_overshot_by_leases(seed: int, faults: Faults) -> None:
    world = World(seed, faults)
    random = Random(seed)
    limit = FixedWindow(50, 1)
    accuracy = Accuracy(batch=10)
    nodes = [Node(world, accuracy) for _ in range(3)]
    allowed: dict[int, int] = {}
    for _ in range(1000):
        world.pass_time(random.choice([0, 100_000, 5 * MILLISECOND]))
        node = random.choice(nodes)
        if random.random() < 0.2:
            node.keep()
        elif node.hit(limit):
            window = world.clock() // SECOND
            allowed[window] = allowed.get(window, 0) + 1
    assert max(allowed.values()) <= 50, f"seed {seed}: {allowed}"
