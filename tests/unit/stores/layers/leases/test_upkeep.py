"""What is done about leases when they are due, and when there is too little for them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from headgate.limits import Accuracy, FixedWindow, Limit, TokenBucket
from headgate.stores.layers.leases.lease import dry_for
from headgate.stores.layers.leases.lease_table import MOST_AT_ONCE, LeaseTable, LostReports
from headgate.stores.operations import Check, GrantLease, Take
from headgate.units import MICROSECOND, MILLISECOND, SECOND
from tests.support.lease_nodes import GROUP, KEY, Node, World

LIMIT = TokenBucket(1_000, 10)
BATCH = Accuracy(batch=10)
SYNC = Accuracy(max_overshoot=Fraction(1, 5), sync_ns=50 * MILLISECOND)


def leased_node(world: World, accuracy: Accuracy = BATCH, limit: Limit = LIMIT) -> Node:
    node = Node(world, accuracy)
    while not node.table.units_held():
        assert node.hit(limit)
    return node


def pass_until_due(node: Node) -> None:
    due_ns = node.table.next_due_ns()
    assert due_ns is not None
    node.world.pass_time(due_ns - node.now())


def test_a_lease_that_was_used_is_renewed_in_one_exchange() -> None:
    world = World(1)
    node = Node(world, Accuracy(batch=100))
    node.table.demand.heavy.add(GROUP, KEY, 30, node.now())
    node.warm(LIMIT, 2)
    held = node.table.units_held()
    pass_until_due(node)
    (request,) = node.table.due(node.now())
    assert request.unused == held > 0
    assert request.most > 0
    node.exchange(request)
    assert node.table.units_held() > 0


def test_what_idles_is_given_back_before_it_lapses_though_the_store_rounds() -> None:
    """A store that counts in microseconds requests for a little less time than it was asked."""
    world, limit = World(1), TokenBucket(70, 210)
    node = Node(world, BATCH)
    node.table.demand.heavy.add(GROUP, KEY, 50, node.now())
    request = node.table.request(Check(GROUP, KEY, limit, 1), node.now())
    assert request is not None
    grant = world.send(request)
    rounded_ns = grant.lasts_ns // MICROSECOND * MICROSECOND
    assert rounded_ns < grant.lasts_ns
    node.table.granted(request, replace(grant, lasts_ns=rounded_ns), node.now(), node.now())
    pass_until_due(node)
    (request,) = node.table.due(node.now())
    assert (request.most, request.unused) == (0, grant.amount)


@pytest.mark.parametrize("accuracy", [BATCH, SYNC])
def test_what_has_to_make_way_is_not_renewed(accuracy: Accuracy) -> None:
    world = World(1)
    node = Node(world, accuracy, most_leases=1)
    while not node.table.units_held():
        assert node.hit(LIMIT)
    assert node.hit(LIMIT)
    for _ in range(20):
        assert node.hit(LIMIT, key="other")
    (request,) = node.table.due(node.now())
    assert request.most == 0
    node.exchange(request)
    assert len(node.table) == 0


def test_of_many_nodes_each_waits_for_a_lease_for_all_but_not_until_the_counter_is_full() -> None:
    limit = TokenBucket(100, 100)
    request = GrantLease(Check(GROUP, KEY, limit, 1), "n", 10, SECOND // 2)
    assert dry_for(request, 100 * MILLISECOND, 1) == 100 * MILLISECOND
    assert dry_for(request, 100 * MILLISECOND, 4) == 400 * MILLISECOND
    assert dry_for(request, 100 * MILLISECOND, 40) == 500 * MILLISECOND
    fast = GrantLease(Check(GROUP, KEY, TokenBucket(10, 10_000), 1), "n", 9, 5 * MILLISECOND)
    assert dry_for(fast, MILLISECOND, 40) == MILLISECOND
    window = GrantLease(Check(GROUP, KEY, FixedWindow(10, 1), 1), "n", 9, SECOND // 2)
    assert dry_for(window, 10 * MILLISECOND, 40) == 10 * MILLISECOND


@pytest.mark.parametrize("quota", range(20, 30))
def test_a_window_that_is_used_up_is_denied_until_it_ends(quota: int) -> None:
    world = World(1)
    limit = FixedWindow(quota, 10)
    world.pass_time(SECOND)
    node = Node(world, BATCH)
    check = Check(GROUP, KEY, limit, 1)
    while node.hit(limit):
        pass
    served = node.table.serve((check,), node.now())
    assert served is not None
    outcome = served[0]
    (exact,) = world.store.run(Take((check,)))
    assert not exact.allowed
    assert outcome.retry_after_ns == exact.retry_after_ns


def test_just_before_a_window_ends_no_more_is_leased_than_can_be_used() -> None:
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
    assert node.table.units_held() <= 10


def test_thousands_of_reports_are_told_bit_by_bit() -> None:
    reports = LostReports()
    requests = [
        GrantLease(Check(GROUP, f"k{n}", LIMIT, 0), "n", 0, SECOND, used=1, is_charged=False)
        for n in range(1_000)
    ]
    for request in requests:
        reports.add(request, 0)
    now_ns, told = SECOND, 0
    while reports.first_ns is not None:
        due = reports.due(now_ns)
        assert len(due) <= MOST_AT_ONCE
        for request in due:
            assert reports.confirm(request)
        told += len(due)
        now_ns = max(now_ns + 1, reports.first_ns or 0)
    assert told == 1_000


def test_what_was_put_back_is_not_counted_as_served() -> None:
    world = World(1)
    node = leased_node(world)
    begun = node.table.begin((Check(GROUP, KEY, LIMIT, 1),), node.now())
    (lease,) = [one.lease for one in begun.taken]
    assert node.table.demand.count_used(lease) == 1
    node.table.put_back(begun.taken)
    assert node.table.demand.count_used(lease) == 0


def test_what_is_wished_for_after_the_accuracies_have_changed_is_not_asked() -> None:
    table = LeaseTable("n")
    table.set_accuracies({GROUP: BATCH})
    for _ in range(50):
        table.request_later(Check(GROUP, KEY, LIMIT, 1), 0)
    assert table.next_due_ns() == 0
    table.set_accuracies({})
    assert table.due(0) == []
    assert table.next_due_ns() is None


def test_no_more_of_a_postpaid_lease_is_told_in_advance_than_is_used_meanwhile() -> None:
    world = World(1)
    node = Node(world, SYNC)
    node.table.demand.heavy.add(GROUP, KEY, 100, node.now())  # about 70 a second
    node.warm(LIMIT, 2)
    held = node.table.units_held()
    pass_until_due(node)
    (request,) = node.table.due(node.now())
    assert 0 < request.unused <= 5 < held


def test_a_denial_under_one_limit_says_nothing_of_another() -> None:
    world = World(1)
    node = Node(world, Accuracy(denials_ns=SECOND))
    low, high = TokenBucket(5, 1), TokenBucket(50, 1)
    check = Check(GROUP, KEY, low, 1)
    for _ in range(5):
        assert node.hit(low)
    (outcome,) = world.send(Take((check,)))
    node.table.decided(check, outcome, node.now(), node.now())
    assert node.table.serve((check,), node.now()) is not None
    assert node.hit(high)
    node.table.invalidate(GROUP, KEY)
    assert node.table.serve((check,), node.now()) is None


def test_reports_are_told_again_until_the_limit_has_forgotten_them() -> None:
    limit = TokenBucket(10, 10)
    table = LeaseTable("n")
    table.set_accuracies({GROUP: SYNC})
    request = GrantLease(
        Check(GROUP, KEY, limit, 1), "n", 5, SECOND, used=3, reported=0, is_charged=False
    )
    table.lost(request, 0)
    for n in (1, 2, 3):
        (again,) = table.due(n * SECOND // 4)
        assert (again.holder, again.used, again.reported, again.most) == ("n", 3, 0, 0)
        assert again.check.cost == 0
        table.lost(again, n * SECOND // 4)
    assert table.due(SECOND) == []
    assert table.next_due_ns() is None
