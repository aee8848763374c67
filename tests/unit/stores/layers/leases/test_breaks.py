"""One schedule for each way to use a lease once too often: the smallest."""

from __future__ import annotations

from fractions import Fraction

import pytest

from headgate.limits import Accuracy, FixedWindow, Limit, TokenBucket
from headgate.stores.operations import Check, GrantLease, Take
from headgate.units import MILLISECOND, SECOND
from tests.support.lease_nodes import GROUP, KEY, Faults, Node, World

LIMIT = TokenBucket(100, 1)
BATCH = Accuracy(batch=10)
SYNC = Accuracy(max_overshoot=Fraction(1, 5), sync_ns=50 * MILLISECOND)


def left_in(world: World, limit: Limit = LIMIT) -> int:
    (outcome,) = world.store.run(Take((Check(GROUP, KEY, limit, 1),), consume=False))
    return outcome.remaining


def leased_node(world: World, accuracy: Accuracy = BATCH, limit: Limit = LIMIT) -> Node:
    """A node that has just been grant something."""
    node = Node(world, accuracy)
    while not node.table.units_held():
        assert node.hit(limit)
    return node


def request_of(node: Node, cost: int = 1, limit: Limit = LIMIT) -> GrantLease:
    request = node.table.request(Check(GROUP, KEY, limit, cost), node.now())
    assert request is not None
    return request


def test_what_is_given_back_after_it_lapsed_is_not_taken_back() -> None:
    world = World(1)
    node = leased_node(world)
    world.pass_time(2 * SECOND)
    before = left_in(world)
    node.table.set_accuracies({})
    (request,) = node.table.due(node.now())
    assert request.unused > 0
    world.send(request)
    assert left_in(world) == before


def test_what_is_given_back_twice_is_taken_back_once() -> None:
    world = World(1)
    node = leased_node(world)
    used = 100 - left_in(world) - node.table.units_held()
    node.table.set_accuracies({})
    (request,) = node.table.due(node.now())
    world.send(request)
    world.send(request)
    assert left_in(world) == 100 - used


def test_a_message_that_comes_late_gives_nothing_back_of_a_later_lease() -> None:
    """Else the units of the later lease would be in the counter, and in use."""
    world = World(1)
    node = leased_node(world)
    late = request_of(node, cost=20)
    node.table.lost(late, node.now())
    node.warm(LIMIT)
    held, before = node.table.units_held(), left_in(world)
    assert held > 0
    reply = world.send(late)
    assert left_in(world) == before + late.unused - 20 - reply.amount
    assert reply.leased >= held + reply.amount


@pytest.mark.parametrize("accuracy", [BATCH, SYNC])
def test_nothing_that_a_lost_answer_may_have_brought_is_used(accuracy: Accuracy) -> None:
    world = World(1)
    node = leased_node(world, accuracy)
    request = request_of(node, cost=20)
    world.send(request)
    node.table.lost(request, node.now())
    assert node.table.units_held() == 0
    assert node.table.serve((Check(GROUP, KEY, LIMIT, 1),), node.now()) is None


def test_the_time_on_the_way_is_not_time_of_a_lease() -> None:
    """A lease of a window is sent, and heard of when the window is nearly over."""
    world, limit = World(1), FixedWindow(100, 1)
    node = leased_node(world, limit=limit)
    world.pass_time(400 * MILLISECOND)
    request, sent_ns = request_of(node, cost=20, limit=limit), node.now()
    grant = world.send(request)
    assert grant.amount > 0
    world.pass_time(400 * MILLISECOND)
    node.table.granted(request, grant, sent_ns, node.now())
    check = Check(GROUP, KEY, limit, 1)
    assert node.table.serve((check,), node.now()) is not None
    world.pass_time(200 * MILLISECOND)
    assert node.table.serve((check,), node.now()) is None


def test_all_leases_together_stay_at_the_cap() -> None:
    """However much each node could use."""
    world, limit = World(1), TokenBucket(1_000, 1)
    accuracy = Accuracy(max_overshoot=Fraction(1, 50))
    nodes = [Node(world, accuracy) for _ in range(4)]
    for _ in range(50):
        for node in nodes:
            node.hit(limit)
            assert sum(one.table.units_held() for one in nodes) <= 20


@pytest.mark.parametrize("is_lost", [False, True])
def test_usage_of_a_postpaid_lease_is_reported_though_a_message_was_lost(*, is_lost: bool) -> None:
    world, limit = World(1), TokenBucket(1_000, 1)
    node = leased_node(world, SYNC, limit)
    hits, before = 0, left_in(world, limit)
    while node.table.serve((Check(GROUP, KEY, limit, 1),), node.now()):
        hits += 1
    world.faults = Faults(request_lost=float(is_lost))
    world.pass_time(60 * MILLISECOND)
    node.keep()
    world.faults = Faults()
    world.pass_time(260 * MILLISECOND)
    node.keep()
    assert hits > 0
    assert left_in(world, limit) <= before - hits


@pytest.mark.parametrize("faults", [Faults(reply_lost=1.0), Faults(request_lost=1.0)])
def test_what_was_told_in_advance_counts_as_leased_while_it_may_be_used(faults: Faults) -> None:
    """The exchange is lost, and the store has nothing to request at that moment."""
    world, limit = World(1), TokenBucket(20, 40)
    node = leased_node(world, Accuracy(Fraction(3, 10), sync_ns=100 * MILLISECOND), limit)
    assert node.hit(limit)
    world.pass_time(100 * MILLISECOND)
    everything = Check(GROUP, KEY, limit, left_in(world, limit))
    world.store.run(Take((everything,)))
    world.faults = faults
    node.keep()
    world.faults = Faults()
    for _ in range(9):
        world.pass_time(30 * MILLISECOND)
        node.keep()
        nothing = Check(GROUP, KEY, limit, 0)
        probe = world.send(GrantLease(nothing, "probe", 20, SECOND, cap=6, is_charged=False))
        assert probe.amount + node.table.units_held() <= 6
    assert node.table.units_held() > 0
