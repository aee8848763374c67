"""What a node leases, serves, gives back and forgets: the table alone, on one store."""

from __future__ import annotations

from fractions import Fraction

import pytest

from headgate.limits import Accuracy, Concurrency, FixedWindow, Limit, SlidingWindowLog, TokenBucket
from headgate.stores.layers.leases.lease_table import LeaseTable
from headgate.stores.operations import Check, GrantLease, Refund, Reset, Take
from headgate.units import MILLISECOND, SECOND
from tests.support.lease_nodes import GROUP, KEY, Faults, Node, World

LIMIT = TokenBucket(100, 10)
BATCH = Accuracy(batch=10)
SYNC = Accuracy(max_overshoot=Fraction(1, 5), sync_ns=50 * MILLISECOND)


def left_in(world: World, limit: Limit = LIMIT, key: str = KEY) -> int:
    (outcome,) = world.store.run(Take((Check(GROUP, key, limit, 1),), consume=False))
    return outcome.remaining


def request_of(node: Node, limit: Limit = LIMIT, cost: int = 1) -> GrantLease:
    request = node.table.request(Check(GROUP, KEY, limit, cost), node.now())
    assert request is not None
    return request


def leased_node(world: World, accuracy: Accuracy = BATCH, limit: Limit = LIMIT) -> Node:
    """A node that has just been grant something."""
    node = Node(world, accuracy)
    for _ in range(50):
        assert node.hit(limit)
        if node.table.units_held():
            return node
    raise AssertionError


def test_a_key_that_is_not_hot_is_asked_for_each_time() -> None:
    world = World(1)
    node = Node(world, BATCH)
    for _ in range(20):
        assert node.hit(TokenBucket(100, 1))
        world.pass_time(2 * SECOND)
    assert world.trips == 20
    assert len(node.table) == 0


def test_a_hot_key_is_asked_for_once_in_a_batch() -> None:
    world = World(1)
    limit = TokenBucket(10_000, 10)
    node = Node(world, BATCH)
    node.warm(limit, 60)
    world.trips = 0
    for _ in range(1100):
        assert node.hit(limit)
    assert world.trips <= 100
    assert left_in(world, limit) + node.table.units_held() == 10_000 - 1160


def test_in_overload_no_more_than_once_in_a_batch_and_all_of_the_limit_is_allowed() -> None:
    world = World(1)
    node = Node(world, BATCH)
    allowed = 0
    for _ in range(10_000):
        world.pass_time(MILLISECOND)
        allowed += bool(node.hit(TokenBucket(50, 100)))
    assert world.trips <= 1_000
    assert 1_000 <= allowed <= 1_060


def test_what_is_left_is_not_used_after_it_has_lapsed() -> None:
    world = World(1)
    node = leased_node(world)
    held = node.table.units_held()
    world.pass_time(SECOND)
    check = Check(GROUP, KEY, LIMIT, 1)
    assert held > 0
    assert node.table.serve((check,), node.now()) is None


def test_time_that_the_store_needed_is_time_of_the_lease() -> None:
    world = World(1)
    node = Node(world, BATCH)
    for _ in range(6):
        world.send(Take((Check(GROUP, KEY, LIMIT, 1),)))
        node.table.demand.heavy.add(GROUP, KEY, 5, node.now())
    request = request_of(node)
    sent_ns = node.now()
    grant = world.send(request)
    world.pass_time(grant.lasts_ns)
    node.table.granted(request, grant, sent_ns, node.now())
    assert node.table.serve((Check(GROUP, KEY, LIMIT, 1),), node.now()) is None


def test_what_an_idle_key_has_is_given_back_before_it_lapses() -> None:
    world = World(1)
    node = leased_node(world)
    before = left_in(world)
    held = node.table.units_held()
    due_ns = node.table.next_due_ns()
    assert due_ns is not None
    world.pass_time(due_ns - node.now())
    node.keep()
    assert len(node.table) == 0
    assert left_in(world) >= before + held
    assert node.table.due(node.now()) == []


def test_at_the_end_all_is_given_back() -> None:
    world = World(1)
    node = leased_node(world)
    before, held = left_in(world), node.table.units_held()
    node.close()
    assert left_in(world) == before + held
    assert node.table.units_held() == 0


def test_all_nodes_together_are_leased_no_more_than_the_cap() -> None:
    world = World(1)
    limit = TokenBucket(1_000, 10)
    nodes = [Node(world, Accuracy(max_overshoot=Fraction(1, 50))) for _ in range(4)]
    for _ in range(100):
        for node in nodes:
            assert node.hit(limit)
            assert sum(one.table.units_held() for one in nodes) <= 20
    (bound,) = nodes[0].table.bounds()
    assert (bound.cap, bound.bound) == (20, 20)
    assert bound.holders > 1


def test_a_bound_is_a_batch_for_each_holder() -> None:
    world = World(1)
    nodes = [leased_node(world), leased_node(world)]
    (bound,) = nodes[1].table.bounds()
    assert (bound.holders, bound.batch, bound.bound) == (2, 10, 20)


@pytest.mark.parametrize(
    ("accuracy", "limit"),
    [
        (Accuracy(max_overshoot=Fraction(1, 100)), TokenBucket(100, 10)),
        (Accuracy(denials_ns=SECOND), TokenBucket(100, 10)),
        (BATCH, Concurrency(1_000, 60)),
    ],
)
def test_nothing_is_leased_where_there_is_nothing_to_lend(accuracy: Accuracy, limit: Limit) -> None:
    table = LeaseTable("n")
    table.set_accuracies({GROUP: accuracy})
    for _ in range(100):
        assert table.request(Check(GROUP, KEY, limit, 1), 0) is None
    assert table.bounds() == []


def test_a_cost_above_what_is_left_is_decided_by_the_store_with_all_that_there_is() -> None:
    world = World(1)
    node = leased_node(world)
    used = 100 - left_in(world) - node.table.units_held()
    assert node.hit(LIMIT, 100 - used)
    assert not node.hit(LIMIT)


def test_units_reported_as_unused_are_gone_whatever_comes_of_it() -> None:
    world = World(1)
    node = leased_node(world)
    held = node.table.units_held()
    request = request_of(node, cost=50)
    assert request.unused == held
    assert node.table.units_held() == 0
    node.table.lost(request, node.now())
    assert node.table.units_held() == 0


def test_after_a_loss_another_name_is_used() -> None:
    world = World(1)
    node = leased_node(world)
    first = request_of(node, cost=50)
    node.table.lost(first, node.now())
    assert request_of(node).holder != first.holder


def test_an_answer_that_comes_after_a_reset_brings_nothing() -> None:
    world = World(1)
    node = leased_node(world)
    request, sent_ns = request_of(node, cost=20), node.now()
    grant = world.send(request)
    world.store.run(Reset((Check(GROUP, KEY, LIMIT, 0),)))
    node.table.reset(GROUP, KEY)
    node.table.granted(request, grant, sent_ns, node.now())
    assert node.table.units_held() == 0


def test_a_denial_tells_when_to_come_again_and_a_refund_ends_it() -> None:
    world = World(1)
    limit = TokenBucket(20, 10)
    node = Node(world, BATCH)
    while node.hit(limit):
        pass
    check = Check(GROUP, KEY, limit, 1)
    trips = world.trips
    served = node.table.serve((check,), node.now())
    assert served is not None
    (outcome,) = served
    assert outcome.source in {"lease", "cache"}
    assert not outcome.allowed
    assert outcome.retry_after_ns is not None
    assert outcome.retry_after_ns > 0
    world.pass_time(outcome.retry_after_ns)
    assert node.hit(limit)
    while node.hit(limit):
        pass
    world.store.run(Refund((Check(GROUP, KEY, limit, 5),)))
    node.table.invalidate(GROUP, KEY)
    assert node.hit(limit)
    assert world.trips > trips


def test_a_denial_of_the_store_is_remembered() -> None:
    world = World(1)
    node = Node(world, Accuracy(denials_ns=SECOND))
    limit = TokenBucket(5, 1)
    check = Check(GROUP, KEY, limit, 1)
    for _ in range(5):
        assert node.hit(limit)
    (outcome,) = world.send(Take((check,)))
    node.table.decided(check, outcome, node.now(), node.now())
    served = node.table.serve((check,), node.now())
    assert served is not None
    assert served[0].source == "cache"
    assert not served[0].allowed


def test_several_checks_are_served_all_or_none() -> None:
    world = World(1)
    node = leased_node(world)
    held = node.table.units_held()
    check = Check(GROUP, KEY, LIMIT, held - 1)
    small = Check(GROUP, KEY, LIMIT, 1)
    assert node.table.serve((check, small, small), node.now()) is None
    assert node.table.units_held() == held
    served = node.table.serve((check, small), node.now())
    assert served is not None
    assert [one.source for one in served] == ["lease", "lease"]
    assert node.table.units_held() == 0


def test_figures_are_what_the_node_knows() -> None:
    world = World(1)
    node = leased_node(world)
    total = left_in(world) + node.table.units_held()
    world.pass_time(20 * MILLISECOND)
    served = node.table.serve((Check(GROUP, KEY, LIMIT, 2),), node.now())
    assert served is not None
    outcome = served[0]
    assert outcome.remaining == total - 2
    (exact,) = world.store.run(Take((Check(GROUP, KEY, LIMIT, 1),), consume=False))
    held_ns = node.table.units_held() * SECOND // 10
    assert outcome.reset_after_ns == exact.reset_after_ns - held_ns


def test_a_put_back_counts_only_if_the_lease_is_the_same() -> None:
    world = World(1)
    node = leased_node(world)
    held = node.table.units_held()
    begun = node.table.begin((Check(GROUP, KEY, LIMIT, 1),), node.now())
    node.table.put_back(begun.taken)
    assert node.table.units_held() == held
    begun = node.table.begin((Check(GROUP, KEY, LIMIT, 1),), node.now())
    request = request_of(node, cost=50)
    node.table.put_back(begun.taken)
    assert node.table.units_held() == 0
    assert request.unused == held - 1


def test_leases_of_a_group_whose_accuracies_have_changed_are_given_back() -> None:
    world = World(1)
    node = leased_node(world)
    before, held = left_in(world), node.table.units_held()
    node.table.set_accuracies({GROUP: Accuracy(batch=5)})
    assert node.table.units_held() == 0
    node.keep()
    assert left_in(world) == before + held


def test_equal_accuracies_change_nothing() -> None:
    world = World(1)
    node = leased_node(world)
    held = node.table.units_held()
    node.table.set_accuracies({GROUP: Accuracy(batch=10)})
    assert node.table.units_held() == held


def test_leases_are_bounded_in_number_and_the_oldest_makes_way() -> None:
    world = World(1)
    node = Node(world, BATCH, most_leases=3)
    for n in range(10):
        for _ in range(12):
            assert node.hit(LIMIT, key=f"key:{n}")
        node.keep()
    assert len(node.table) <= 3
    assert node.table.units_held() > 0


def test_a_lease_of_a_fixed_window_ends_with_it() -> None:
    world = World(1)
    limit = FixedWindow(100, 1)
    world.pass_time(900 * MILLISECOND)
    node = leased_node(world, limit=limit)
    assert node.table.units_held() > 0
    world.pass_time(100 * MILLISECOND)
    assert node.table.serve((Check(GROUP, KEY, limit, 1),), node.now()) is None


def test_a_sliding_log_is_as_new_one_window_after_the_last() -> None:
    world = World(1)
    limit = SlidingWindowLog(100, 10)
    node = leased_node(world, limit=limit)
    served = node.table.serve((Check(GROUP, KEY, limit, 1),), node.now())
    assert served is not None
    assert served[0].reset_after_ns == 10 * SECOND


def test_a_forked_process_has_no_leases_and_another_name() -> None:
    world = World(1)
    node = leased_node(world)
    first = request_of(node, cost=50).holder
    node.table.after_fork("child")
    assert len(node.table) == 0
    assert node.table.due(node.now() + SECOND) == []
    node.table.demand.heavy.add(GROUP, KEY, 50, node.now())
    assert request_of(node).holder != first


def test_a_postpaid_lease_is_told_in_the_background_and_charged_once() -> None:
    world = World(1)
    limit = TokenBucket(1_000, 1)
    node = Node(world, SYNC)
    hits = 0
    for _ in range(400):
        world.pass_time(2 * MILLISECOND)
        node.keep()
        assert node.hit(limit)
        hits += 1
    node.close()
    charged = 1_000 - left_in(world, limit)
    assert hits - 1 <= charged <= hits + 20
    assert world.trips < 100


@pytest.mark.parametrize("faults", [Faults(reply_lost=0.3), Faults(request_lost=0.3)])
def test_what_a_postpaid_lease_used_is_charged_whatever_is_lost(faults: Faults) -> None:
    world = World(3, faults)
    limit = TokenBucket(100_000, 1)
    node = Node(world, SYNC)
    hits = 0
    for _ in range(1_000):
        world.pass_time(2 * MILLISECOND)
        node.keep()
        hits += bool(node.hit(limit))
    world.faults = Faults()
    for _ in range(10):
        world.pass_time(SECOND)
        node.keep()
    node.close()
    assert 100_000 - left_in(world, limit) >= hits - 10
    assert node.table.next_due_ns() is None


def test_a_postpaid_lease_goes_on_while_the_exchange_fails_until_it_lapses() -> None:
    world = World(1)
    limit = TokenBucket(1_000, 1)
    node = leased_node(world, SYNC, limit)
    for _ in range(10):
        world.pass_time(5 * MILLISECOND)
        assert node.hit(limit)
    world.faults = Faults(request_lost=1.0)
    world.pass_time(50 * MILLISECOND)
    node.keep()
    assert node.hit(limit)
    world.pass_time(SECOND)
    assert node.hit(limit) is None
