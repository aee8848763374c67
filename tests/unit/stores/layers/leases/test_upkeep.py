"""What is done about loans when they are due, and when there is too little for them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from headgate.limits import Accuracy, FixedWindow, Limit, TokenBucket
from headgate.stores.layers.leases.lease import dry_for
from headgate.stores.layers.leases.lease_table import Book
from headgate.stores.layers.leases.usage import MOST_AT_ONCE, Debts
from headgate.stores.operations import Check, GrantLease, Take
from headgate.units import MICROSECOND, MILLISECOND, SECOND
from tests.support.lease_nodes import GROUP, KEY, Node, World

LIMIT = TokenBucket(1_000, 10)
BATCH = Accuracy(batch=10)
SYNC = Accuracy(max_overshoot=Fraction(1, 5), sync_ns=50 * MILLISECOND)


def lent_node(world: World, accuracy: Accuracy = BATCH, limit: Limit = LIMIT) -> Node:
    node = Node(world, accuracy)
    while not node.book.units_held():
        assert node.hit(limit)
    return node


def pass_until_due(node: Node) -> None:
    due_ns = node.book.next_due_ns()
    assert due_ns is not None
    node.world.pass_time(due_ns - node.now())


def test_a_loan_that_was_used_is_renewed_in_one_exchange() -> None:
    world = World(1)
    node = Node(world, Accuracy(batch=100))
    node.book.heavy.add(GROUP, KEY, 30, node.now())
    node.warm(LIMIT, 2)
    held = node.book.units_held()
    pass_until_due(node)
    (lend,) = node.book.due(node.now())
    assert lend.unused == held > 0
    assert lend.most > 0
    node.exchange(lend)
    assert node.book.units_held() > 0


def test_what_idles_is_given_back_before_it_lapses_though_the_store_rounds() -> None:
    """A store that counts in microseconds lends for a little less time than it was asked."""
    world, limit = World(1), TokenBucket(70, 210)
    node = Node(world, BATCH)
    node.book.heavy.add(GROUP, KEY, 50, node.now())
    lend = node.book.ask(Check(GROUP, KEY, limit, 1), node.now())
    assert lend is not None
    lent = world.send(lend)
    rounded_ns = lent.lasts_ns // MICROSECOND * MICROSECOND
    assert rounded_ns < lent.lasts_ns
    node.book.heard(lend, replace(lent, lasts_ns=rounded_ns), node.now(), node.now())
    pass_until_due(node)
    (lend,) = node.book.due(node.now())
    assert (lend.most, lend.unused) == (0, lent.amount)


@pytest.mark.parametrize("accuracy", [BATCH, SYNC])
def test_what_has_to_make_way_is_not_renewed(accuracy: Accuracy) -> None:
    world = World(1)
    node = Node(world, accuracy, most_loans=1)
    while not node.book.units_held():
        assert node.hit(LIMIT)
    assert node.hit(LIMIT)
    for _ in range(20):
        assert node.hit(LIMIT, key="other")
    (lend,) = node.book.due(node.now())
    assert lend.most == 0
    node.exchange(lend)
    assert len(node.book) == 0


def test_of_many_nodes_each_waits_for_a_loan_for_all_but_not_until_the_counter_is_full() -> None:
    limit = TokenBucket(100, 100)
    lend = GrantLease(Check(GROUP, KEY, limit, 1), "n", 10, SECOND // 2)
    assert dry_for(lend, 100 * MILLISECOND, 1) == 100 * MILLISECOND
    assert dry_for(lend, 100 * MILLISECOND, 4) == 400 * MILLISECOND
    assert dry_for(lend, 100 * MILLISECOND, 40) == 500 * MILLISECOND
    fast = GrantLease(Check(GROUP, KEY, TokenBucket(10, 10_000), 1), "n", 9, 5 * MILLISECOND)
    assert dry_for(fast, MILLISECOND, 40) == MILLISECOND
    window = GrantLease(Check(GROUP, KEY, FixedWindow(10, 1), 1), "n", 9, SECOND // 2)
    assert dry_for(window, 10 * MILLISECOND, 40) == 10 * MILLISECOND


@pytest.mark.parametrize("quota", range(20, 30))
def test_a_window_that_is_used_up_is_refused_until_it_ends(quota: int) -> None:
    world = World(1)
    limit = FixedWindow(quota, 10)
    world.pass_time(SECOND)
    node = Node(world, BATCH)
    check = Check(GROUP, KEY, limit, 1)
    while node.hit(limit):
        pass
    served = node.book.serve((check,), node.now())
    assert served is not None
    outcome = served[0].outcome
    (exact,) = world.store.run(Take((check,)))
    assert not exact.allowed
    assert outcome.retry_after_ns == exact.retry_after_ns


def test_just_before_a_window_ends_no_more_is_borrowed_than_can_be_used() -> None:
    world = World(1)
    limit = FixedWindow(1_000, 1)
    node = Node(world, Accuracy(batch=100))
    for _ in range(90):
        world.pass_time(10 * MILLISECOND)
        node.keep()
        assert node.hit(limit)
    world.pass_time(40 * MILLISECOND)
    node.keep()
    node.hit(limit)
    assert node.book.units_held() <= 10


def test_thousands_of_debts_are_told_bit_by_bit() -> None:
    debts = Debts()
    lends = [
        GrantLease(Check(GROUP, f"k{n}", LIMIT, 0), "n", 0, SECOND, used=1, is_charged=False)
        for n in range(1_000)
    ]
    for lend in lends:
        debts.add(lend, 0)
    now_ns, told = SECOND, 0
    while debts.first_ns is not None:
        due = debts.due(now_ns)
        assert len(due) <= MOST_AT_ONCE
        for lend in due:
            assert debts.settle(lend)
        told += len(due)
        now_ns = max(now_ns + 1, debts.first_ns or 0)
    assert told == 1_000


def test_what_was_put_back_is_not_counted_as_served() -> None:
    world = World(1)
    node = lent_node(world)
    begun = node.book.begin((Check(GROUP, KEY, LIMIT, 1),), node.now())
    (loan,) = [one.loan for one in begun.taken]
    assert node.book.demand.counted(loan) == 1
    node.book.put_back(begun.taken)
    assert node.book.demand.counted(loan) == 0


def test_what_is_wished_for_after_the_terms_have_changed_is_not_asked() -> None:
    book = Book("n")
    book.adopt({GROUP: BATCH})
    for _ in range(50):
        book.borrow_soon(Check(GROUP, KEY, LIMIT, 1), 0)
    assert book.next_due_ns() == 0
    book.adopt({})
    assert book.due(0) == []
    assert book.next_due_ns() is None


def test_no_more_of_a_licence_is_told_in_advance_than_is_used_meanwhile() -> None:
    world = World(1)
    node = Node(world, SYNC)
    node.book.heavy.add(GROUP, KEY, 100, node.now())  # about 70 a second
    node.warm(LIMIT, 2)
    held = node.book.units_held()
    pass_until_due(node)
    (lend,) = node.book.due(node.now())
    assert 0 < lend.unused <= 5 < held


def test_a_refusal_under_one_limit_says_nothing_of_another() -> None:
    world = World(1)
    node = Node(world, Accuracy(denials_ns=SECOND))
    low, high = TokenBucket(5, 1), TokenBucket(50, 1)
    check = Check(GROUP, KEY, low, 1)
    for _ in range(5):
        assert node.hit(low)
    (outcome,) = world.send(Take((check,)))
    node.book.note(check, outcome, node.now())
    assert node.book.serve((check,), node.now()) is not None
    assert node.hit(high)
    node.book.refunded(GROUP, KEY)
    assert node.book.serve((check,), node.now()) is None


def test_debts_are_told_again_until_the_limit_has_forgotten_them() -> None:
    limit = TokenBucket(10, 10)
    book = Book("n")
    book.adopt({GROUP: SYNC})
    lend = GrantLease(Check(GROUP, KEY, limit, 1), "n", 5, SECOND, used=3, told=0, is_charged=False)
    book.lost(lend, 0)
    for n in (1, 2, 3):
        (again,) = book.due(n * SECOND // 4)
        assert (again.holder, again.used, again.told, again.most) == ("n", 3, 0, 0)
        assert again.check.cost == 0
        book.lost(again, n * SECOND // 4)
    assert book.due(SECOND) == []
    assert book.next_due_ns() is None
