"""What a node borrows, serves, gives back and forgets: the book alone, on one store."""

from __future__ import annotations

from fractions import Fraction

import pytest

from headgate.limits import Accuracy, Concurrency, FixedWindow, Limit, SlidingWindowLog, TokenBucket
from headgate.stores.layers.leases.lease_table import Book
from headgate.stores.operations import Check, GrantLease, Refund, Reset, Take
from headgate.units import MILLISECOND, SECOND
from tests.support.lease_nodes import GROUP, KEY, Faults, Node, World

LIMIT = TokenBucket(100, 10)
BATCH = Accuracy(batch=10)
SYNC = Accuracy(max_overshoot=Fraction(1, 5), sync_ns=50 * MILLISECOND)


def left_in(world: World, limit: Limit = LIMIT, key: str = KEY) -> int:
    (outcome,) = world.store.run(Take((Check(GROUP, key, limit, 1),), consume=False))
    return outcome.remaining


def lend_of(node: Node, limit: Limit = LIMIT, cost: int = 1) -> GrantLease:
    lend = node.book.ask(Check(GROUP, KEY, limit, cost), node.now())
    assert lend is not None
    return lend


def lent_node(world: World, accuracy: Accuracy = BATCH, limit: Limit = LIMIT) -> Node:
    """A node that has just been lent something."""
    node = Node(world, accuracy)
    for _ in range(50):
        assert node.hit(limit)
        if node.book.units_held():
            return node
    raise AssertionError


def test_a_key_that_is_not_hot_is_asked_for_each_time() -> None:
    world = World(1)
    node = Node(world, BATCH)
    for _ in range(20):
        assert node.hit(TokenBucket(100, 1))
        world.pass_time(2 * SECOND)
    assert world.trips == 20
    assert len(node.book) == 0


def test_a_hot_key_is_asked_for_once_in_a_batch() -> None:
    world = World(1)
    limit = TokenBucket(10_000, 10)
    node = Node(world, BATCH)
    node.warm(limit, 60)
    world.trips = 0
    for _ in range(1100):
        assert node.hit(limit)
    assert world.trips <= 100
    assert left_in(world, limit) + node.book.units_held() == 10_000 - 1160


def test_in_overload_no_more_than_once_in_a_batch_and_all_of_the_limit_is_admitted() -> None:
    world = World(1)
    node = Node(world, BATCH)
    admitted = 0
    for _ in range(10_000):
        world.pass_time(MILLISECOND)
        admitted += bool(node.hit(TokenBucket(50, 100)))
    assert world.trips <= 1_000
    assert 1_000 <= admitted <= 1_060


def test_what_is_left_is_not_used_after_it_has_lapsed() -> None:
    world = World(1)
    node = lent_node(world)
    held = node.book.units_held()
    world.pass_time(SECOND)
    check = Check(GROUP, KEY, LIMIT, 1)
    assert held > 0
    assert node.book.serve((check,), node.now()) is None


def test_time_that_the_store_needed_is_time_of_the_loan() -> None:
    world = World(1)
    node = Node(world, BATCH)
    for _ in range(6):
        world.send(Take((Check(GROUP, KEY, LIMIT, 1),)))
        node.book.heavy.add(GROUP, KEY, 5, node.now())
    lend = lend_of(node)
    sent_ns = node.now()
    lent = world.send(lend)
    world.pass_time(lent.lasts_ns)
    node.book.heard(lend, lent, sent_ns, node.now())
    assert node.book.serve((Check(GROUP, KEY, LIMIT, 1),), node.now()) is None


def test_what_an_idle_key_has_is_given_back_before_it_lapses() -> None:
    world = World(1)
    node = lent_node(world)
    before = left_in(world)
    held = node.book.units_held()
    due_ns = node.book.next_due_ns()
    assert due_ns is not None
    world.pass_time(due_ns - node.now())
    node.keep()
    assert len(node.book) == 0
    assert left_in(world) >= before + held
    assert node.book.due(node.now()) == []


def test_at_the_end_all_is_given_back() -> None:
    world = World(1)
    node = lent_node(world)
    before, held = left_in(world), node.book.units_held()
    node.close()
    assert left_in(world) == before + held
    assert node.book.units_held() == 0


def test_all_nodes_together_are_lent_no_more_than_the_cap() -> None:
    world = World(1)
    limit = TokenBucket(1_000, 10)
    nodes = [Node(world, Accuracy(max_overshoot=Fraction(1, 50))) for _ in range(4)]
    for _ in range(100):
        for node in nodes:
            assert node.hit(limit)
            assert sum(one.book.units_held() for one in nodes) <= 20
    (bound,) = nodes[0].book.bounds()
    assert (bound.cap, bound.bound) == (20, 20)
    assert bound.holders > 1


def test_a_bound_is_a_batch_for_each_holder() -> None:
    world = World(1)
    nodes = [lent_node(world), lent_node(world)]
    (bound,) = nodes[1].book.bounds()
    assert (bound.holders, bound.batch, bound.bound) == (2, 10, 20)


@pytest.mark.parametrize(
    ("accuracy", "limit"),
    [
        (Accuracy(max_overshoot=Fraction(1, 100)), TokenBucket(100, 10)),
        (Accuracy(denials_ns=SECOND), TokenBucket(100, 10)),
        (BATCH, Concurrency(1_000, 60)),
    ],
)
def test_nothing_is_borrowed_where_there_is_nothing_to_lend(
    accuracy: Accuracy, limit: Limit
) -> None:
    book = Book("n")
    book.adopt({GROUP: accuracy})
    for _ in range(100):
        assert book.ask(Check(GROUP, KEY, limit, 1), 0) is None
    assert book.bounds() == []


def test_a_cost_above_what_is_left_is_decided_by_the_store_with_all_that_there_is() -> None:
    world = World(1)
    node = lent_node(world)
    used = 100 - left_in(world) - node.book.units_held()
    assert node.hit(LIMIT, 100 - used)
    assert not node.hit(LIMIT)


def test_units_reported_as_unused_are_gone_whatever_comes_of_it() -> None:
    world = World(1)
    node = lent_node(world)
    held = node.book.units_held()
    lend = lend_of(node, cost=50)
    assert lend.unused == held
    assert node.book.units_held() == 0
    node.book.lost(lend, node.now())
    assert node.book.units_held() == 0


def test_after_a_loss_another_name_is_used() -> None:
    world = World(1)
    node = lent_node(world)
    first = lend_of(node, cost=50)
    node.book.lost(first, node.now())
    assert lend_of(node).holder != first.holder


def test_an_answer_that_comes_after_a_reset_brings_nothing() -> None:
    world = World(1)
    node = lent_node(world)
    lend, sent_ns = lend_of(node, cost=20), node.now()
    lent = world.send(lend)
    world.store.run(Reset((Check(GROUP, KEY, LIMIT, 0),)))
    node.book.forget(GROUP, KEY)
    node.book.heard(lend, lent, sent_ns, node.now())
    assert node.book.units_held() == 0


def test_a_refusal_tells_when_to_come_again_and_a_refund_ends_it() -> None:
    world = World(1)
    limit = TokenBucket(20, 10)
    node = Node(world, BATCH)
    while node.hit(limit):
        pass
    check = Check(GROUP, KEY, limit, 1)
    trips = world.trips
    served = node.book.serve((check,), node.now())
    assert served is not None
    outcome, source = served[0]
    assert source in {"lease", "cache"}
    assert not outcome.allowed
    assert outcome.retry_after_ns is not None
    assert outcome.retry_after_ns > 0
    world.pass_time(outcome.retry_after_ns)
    assert node.hit(limit)
    while node.hit(limit):
        pass
    world.store.run(Refund((Check(GROUP, KEY, limit, 5),)))
    node.book.refunded(GROUP, KEY)
    assert node.hit(limit)
    assert world.trips > trips


def test_a_refusal_of_the_store_is_remembered() -> None:
    world = World(1)
    node = Node(world, Accuracy(denials_ns=SECOND))
    limit = TokenBucket(5, 1)
    check = Check(GROUP, KEY, limit, 1)
    for _ in range(5):
        assert node.hit(limit)
    (outcome,) = world.send(Take((check,)))
    node.book.note(check, outcome, node.now())
    served = node.book.serve((check,), node.now())
    assert served is not None
    assert served[0].source == "cache"
    assert not served[0].outcome.allowed


def test_several_checks_are_served_all_or_none() -> None:
    world = World(1)
    node = lent_node(world)
    held = node.book.units_held()
    check = Check(GROUP, KEY, LIMIT, held - 1)
    small = Check(GROUP, KEY, LIMIT, 1)
    assert node.book.serve((check, small, small), node.now()) is None
    assert node.book.units_held() == held
    served = node.book.serve((check, small), node.now())
    assert served is not None
    assert [one.source for one in served] == ["lease", "lease"]
    assert node.book.units_held() == 0


def test_figures_are_what_the_node_knows() -> None:
    world = World(1)
    node = lent_node(world)
    total = left_in(world) + node.book.units_held()
    world.pass_time(20 * MILLISECOND)
    served = node.book.serve((Check(GROUP, KEY, LIMIT, 2),), node.now())
    assert served is not None
    outcome = served[0].outcome
    assert outcome.remaining == total - 2
    (exact,) = world.store.run(Take((Check(GROUP, KEY, LIMIT, 1),), consume=False))
    held_ns = node.book.units_held() * SECOND // 10
    assert outcome.reset_after_ns == exact.reset_after_ns - held_ns


def test_a_put_back_counts_only_if_the_loan_is_the_same() -> None:
    world = World(1)
    node = lent_node(world)
    held = node.book.units_held()
    begun = node.book.begin((Check(GROUP, KEY, LIMIT, 1),), node.now())
    node.book.put_back(begun.taken)
    assert node.book.units_held() == held
    begun = node.book.begin((Check(GROUP, KEY, LIMIT, 1),), node.now())
    lend = lend_of(node, cost=50)
    node.book.put_back(begun.taken)
    assert node.book.units_held() == 0
    assert lend.unused == held - 1


def test_loans_of_a_group_whose_terms_have_changed_are_given_back() -> None:
    world = World(1)
    node = lent_node(world)
    before, held = left_in(world), node.book.units_held()
    node.book.adopt({GROUP: Accuracy(batch=5)})
    assert node.book.units_held() == 0
    node.keep()
    assert left_in(world) == before + held


def test_equal_terms_change_nothing() -> None:
    world = World(1)
    node = lent_node(world)
    held = node.book.units_held()
    node.book.adopt({GROUP: Accuracy(batch=10)})
    assert node.book.units_held() == held


def test_loans_are_bounded_in_number_and_the_oldest_makes_way() -> None:
    world = World(1)
    node = Node(world, BATCH, most_loans=3)
    for n in range(10):
        for _ in range(12):
            assert node.hit(LIMIT, key=f"key:{n}")
        node.keep()
    assert len(node.book) <= 3
    assert node.book.units_held() > 0


def test_a_loan_of_a_fixed_window_ends_with_it() -> None:
    world = World(1)
    limit = FixedWindow(100, 1)
    world.pass_time(900 * MILLISECOND)
    node = lent_node(world, limit=limit)
    assert node.book.units_held() > 0
    world.pass_time(100 * MILLISECOND)
    assert node.book.serve((Check(GROUP, KEY, limit, 1),), node.now()) is None


def test_a_sliding_log_is_as_new_one_window_after_the_last() -> None:
    world = World(1)
    limit = SlidingWindowLog(100, 10)
    node = lent_node(world, limit=limit)
    served = node.book.serve((Check(GROUP, KEY, limit, 1),), node.now())
    assert served is not None
    assert served[0].outcome.reset_after_ns == 10 * SECOND


def test_a_forked_process_has_no_loans_and_another_name() -> None:
    world = World(1)
    node = lent_node(world)
    first = lend_of(node, cost=50).holder
    node.book.after_fork("child")
    assert len(node.book) == 0
    assert node.book.due(node.now() + SECOND) == []
    node.book.heavy.add(GROUP, KEY, 50, node.now())
    assert lend_of(node).holder != first


def test_a_licence_is_told_in_the_background_and_charged_once() -> None:
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
def test_what_a_licence_used_is_charged_whatever_is_lost(faults: Faults) -> None:
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
    assert node.book.next_due_ns() is None


def test_a_licence_goes_on_while_the_exchange_fails_until_it_lapses() -> None:
    world = World(1)
    limit = TokenBucket(1_000, 1)
    node = lent_node(world, SYNC, limit)
    for _ in range(10):
        world.pass_time(5 * MILLISECOND)
        assert node.hit(limit)
    world.faults = Faults(request_lost=1.0)
    world.pass_time(50 * MILLISECOND)
    node.keep()
    assert node.hit(limit)
    world.pass_time(SECOND)
    assert node.hit(limit) is None
