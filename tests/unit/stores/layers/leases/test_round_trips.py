"""How often the store is asked, and how much of a limit is allowed, on a fleet's clock.

Per request no more than once in a batch, below, at and above the limit; and of the limit all but a
little is allowed while more is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from random import Random

import pytest

from headgate.limits import Accuracy, FixedWindow, Limit, TokenBucket
from headgate.units import MILLISECOND, SECOND
from tests.support.lease_nodes import Node, World

KEEP_EVERY_NS = 10 * MILLISECOND
TENTH = Fraction(1, 10)


@dataclass(frozen=True, slots=True)
class Load:
    """What was asked while all was warm."""

    trips_per_request: float
    share_allowed: float
    """Of what the limit allows in that time."""


def driven(limit: Limit, accuracy: Accuracy, *, nodes: int, demand: float) -> Load:
    """*nodes* that are asked for *demand* times the limit in all, for two seconds after one."""
    world, random = World(7), Random(7)
    fleet = [Node(world, accuracy) for _ in range(nodes)]
    per_second = limit.quota * SECOND / limit.period_ns
    passed_ns = kept_ns = asked = allowed = trips = 0
    while passed_ns < 3 * SECOND:
        step_ns = round(random.expovariate(per_second * demand) * SECOND)
        world.pass_time(step_ns)
        if passed_ns < SECOND <= passed_ns + step_ns:
            asked = allowed = 0
            trips = world.trips
        passed_ns += step_ns
        if passed_ns >= kept_ns:
            kept_ns = passed_ns + KEEP_EVERY_NS
            for node in fleet:
                node.keep()
        asked += 1
        allowed += bool(random.choice(fleet).hit(limit))
    return Load((world.trips - trips) / asked, allowed / (2 * per_second))


@pytest.mark.parametrize("limit", [TokenBucket(1_000, 1_000), FixedWindow(1_000, 1)])
@pytest.mark.parametrize("demand", [0.5, 1, 4])
@pytest.mark.parametrize(
    ("accuracy", "nodes", "batch"),
    [
        (Accuracy(batch=10), 1, 10),
        (Accuracy(batch=10), 8, 8),  # each is asked for 31 in the half second of a lease
        (Accuracy(batch=100), 1, 50),
        (Accuracy(batch=100), 8, 12),
        (Accuracy(max_overshoot=TENTH / 10), 1, 7),  # 10 for all; a part is left for others
        (Accuracy(max_overshoot=TENTH), 8, 6),  # 12 for each
        (Accuracy(max_overshoot=TENTH, sync_ns=100 * MILLISECOND), 1, 40),
    ],
)
def test_the_store_is_asked_once_in_a_batch_and_the_limit_is_used(
    limit: Limit, accuracy: Accuracy, nodes: int, batch: int, demand: float
) -> None:
    load = driven(limit, accuracy, nodes=nodes, demand=demand)
    assert load.trips_per_request <= 1 / batch
    assert load.share_allowed >= min(demand, 1) * 0.9


def test_a_node_that_joins_late_gets_a_lease_too() -> None:
    limit, accuracy = TokenBucket(4_000, 4_000), Accuracy(max_overshoot=TENTH / 10)
    world = World(1)
    first, late = Node(world, accuracy), Node(world, accuracy)
    for node_count in (1, 2):
        for _ in range(2_000):
            world.pass_time(MILLISECOND)
            for node in (first, late)[:node_count]:
                node.hit(limit)
                node.keep()
    trips = world.trips
    for _ in range(1_000):
        world.pass_time(MILLISECOND)
        late.hit(limit)
        late.keep()
    assert world.trips - trips < 200


def test_many_nodes_that_find_a_bucket_empty_do_not_all_come_at_once() -> None:
    load = driven(TokenBucket(1_000, 1_000), Accuracy(batch=10), nodes=8, demand=4)
    assert load.trips_per_request < 0.06


def test_what_postpaid_leases_tell_in_advance_is_not_lost_to_the_fleet() -> None:
    accuracy = Accuracy(batch=100, sync_ns=100 * MILLISECOND)
    load = driven(TokenBucket(200, 1_000), accuracy, nodes=8, demand=1)
    assert load.share_allowed > 0.9
