"""The order of a fair queue: by weight and cost, first come first served within a tenant."""

from __future__ import annotations

from random import Random

import pytest

from headgate.errors import CostError, OptionError
from headgate.overload.fair_queue import FairQueue


def _order(queue: FairQueue, count: int | None = None) -> str:
    """The tenants of the next *count* items, or of all."""
    count = len(queue) if count is None else count
    return "".join(item.tenant for item in (queue.pop() for _ in range(count)) if item)


def _queue(*lines: tuple[str, int, int], cost: int = 1) -> FairQueue:
    """Tenants by name, weight and number of items, that came one tenant after the other."""
    queue = FairQueue()
    for tenant, weight, count in lines:
        for _ in range(count):
            queue.push(tenant, cost, weight)
    return queue


def test_an_empty_queue_has_nobody_next() -> None:
    queue = FairQueue()
    assert queue.peek() is None
    assert queue.pop() is None
    assert len(queue) == 0


def test_equal_tenants_take_turns_however_many_items_one_has() -> None:
    assert _order(_queue(("a", 1, 6), ("b", 1, 3)), 6) == "ababab"


def test_weight_two_is_served_twice_as_often() -> None:
    served = _order(_queue(("a", 1, 100), ("b", 2, 100)), 90)
    assert served.count("b") == 2 * served.count("a")


def test_a_cost_counts_as_so_many_items() -> None:
    queue = _queue(("a", 1, 60))
    for _ in range(60):
        queue.push("b", 3, 1)
    served = _order(queue, 40)
    assert served.count("a") == 3 * served.count("b")


def test_within_a_tenant_the_first_comes_first() -> None:
    queue = FairQueue()
    items = [queue.push("a", cost) for cost in (5, 1, 3)]
    assert [queue.pop() for _ in items] == items


def test_peek_tells_what_pop_gives() -> None:
    queue = _queue(("a", 1, 4), ("b", 3, 4))
    for _ in range(8):
        assert queue.peek() is queue.pop()


def test_a_tenant_that_returns_from_idle_has_no_credit() -> None:
    queue = _queue(("a", 1, 50), ("b", 1, 1))
    _order(queue, 40)
    for _ in range(20):
        queue.push("b", 1)
    served = _order(queue, 10)
    assert served.count("a") == 5


def test_a_tenant_that_returns_from_idle_waits_for_no_past() -> None:
    queue = _queue(("b", 1, 40))
    queue.push("a", 1)
    _order(queue, 30)
    for _ in range(10):
        queue.push("a", 1)
    assert "a" in _order(queue, 2)


def test_leaving_and_coming_back_at_once_gains_nothing() -> None:
    """One that has a single item at a time, of a great cost, against one that waits on."""
    queue = _queue(("b", 1, 300))
    queue.push("a", 10)
    served = {"a": 0, "b": 0}
    for _ in range(150):
        item = queue.pop()
        assert item is not None
        served[item.tenant] += item.cost
        if item.tenant == "a":
            queue.push("a", 10)
    assert served["a"] <= served["b"] + 10


def test_ever_new_tenants_do_not_starve_an_old_one() -> None:
    queue = _queue(("old", 1, 10))
    served = 0
    for number in range(200):
        queue.push(f"new-{number}", 1)
        queue.push(f"other-{number}", 1)
        item = queue.pop()
        assert item is not None
        served += item.tenant == "old"
    assert served >= 3


def test_nothing_is_known_of_tenants_that_do_not_wait() -> None:
    queue = _queue(("old", 1, 1))
    for number in range(1_000):
        queue.push(f"new-{number}", 1)
        queue.pop()
    assert queue.tenants <= 2
    assert len(queue._heap) <= 2 * queue.tenants + 64


def test_one_that_is_cancelled_is_as_if_it_had_never_come() -> None:
    queue, other = _queue(("a", 1, 5)), _queue(("a", 1, 5))
    first = queue.push("b", 100)
    queue.push("b", 1)
    other.push("b", 1)
    assert queue.cancel(first)
    assert not queue.cancel(first)
    assert _order(queue) == _order(other)


def test_a_place_held_by_a_costly_item_is_worth_nothing_to_one_that_comes_later() -> None:
    queue = _queue(("a", 1, 100))
    held = queue.push("b", 1_000)
    _order(queue, 50)
    for _ in range(50):
        queue.push("b", 1)
    queue.cancel(held)
    assert _order(queue, 10).count("b") == 5


def test_cancelling_from_the_middle_and_the_end_moves_the_others_up() -> None:
    queue = FairQueue()
    items = [queue.push("a", 1) for _ in range(5)]
    assert queue.cancel(items[2])
    assert queue.cancel(items[4])
    assert queue.depth_of("a") == 3
    assert [queue.pop() for _ in range(3)] == [items[0], items[1], items[3]]


def test_what_is_gone_cannot_be_cancelled() -> None:
    queue = FairQueue()
    item = queue.push("a", 1)
    queue.pop()
    assert not queue.cancel(item)
    other = queue.push("a", 1)
    assert queue.cancel(other)
    assert not queue.cancel(other)
    assert len(queue) == queue.cost == queue.tenants == 0


def test_a_weight_may_change_while_its_tenant_waits() -> None:
    queue = _queue(("a", 1, 100), ("b", 1, 100))
    assert _order(queue, 20).count("a") == 10
    queue.reweigh("a", 4)
    assert _order(queue, 50).count("a") == 40
    queue.push("a", 1, 1)  # as a push may say, too
    assert _order(queue, 20).count("a") == 10


def test_a_weight_of_somebody_who_does_not_wait_is_nothing_to_change() -> None:
    queue = _queue(("a", 1, 1))
    queue.reweigh("b", 4)
    assert queue.tenants == 1


def test_cancelling_again_and_again_leaves_nothing_behind() -> None:
    queue = _queue(("a", 1, 1), ("b", 1, 1))
    for _ in range(1_000):
        queue.cancel(queue.push("c", 5))
        queue.reweigh("b", 2)
        queue.reweigh("b", 1)
    assert len(queue._heap) <= 2 * queue.tenants + 65
    assert _order(queue) == "ab"


@pytest.mark.parametrize("seed", range(20))
def test_how_much_is_ahead_is_known_where_all_cost_the_same(seed: int) -> None:
    random = Random(seed)
    queue = FairQueue()
    for _ in range(200):
        queue.push(random.choice("abcde"), 1, random.choice((1, 2, 5)))
        if random.random() < 0.4:
            queue.pop()
    weight = random.choice((1, 3))
    told = queue.ahead_of("a", 1, weight)
    mine = queue.push("a", 1, weight)
    served = 0
    while queue.pop() is not mine:
        served += 1
    assert told == served, seed


def test_how_much_is_ahead_is_about_right_where_many_wait() -> None:
    queue = FairQueue()
    for number in range(500):
        for _ in range(5):
            queue.push(f"t{number}", 1)
    _order(queue, 1_000)
    told = queue.ahead_of("new", 1)
    mine = queue.push("new", 1)
    served = 0
    while queue.pop() is not mine:
        served += 1
    assert served <= told <= served + 500
    assert told <= queue.cost + served


@pytest.mark.parametrize("cost", [0, -1, 1.0, True, "1"])
def test_a_cost_is_a_whole_number_from_1(cost: int) -> None:
    with pytest.raises(CostError, match="at least 1"):
        FairQueue().push("a", cost)


@pytest.mark.parametrize("weight", [0, -1, 1_001, 1.5, True])
def test_a_weight_is_a_whole_number_from_1_to_1000(weight: int) -> None:
    queue = FairQueue()
    with pytest.raises(OptionError, match="from 1 to 1000"):
        queue.push("a", 1, weight)
    queue.push("a", 1)
    with pytest.raises(OptionError, match="from 1 to 1000"):
        queue.push("a", 1, weight)
    assert len(queue) == 1


def test_small_ones_behind_a_costly_one_that_gives_up_have_no_credit() -> None:
    queue = FairQueue()
    held = queue.push("b", 1_000)
    for _ in range(100):
        queue.push("b", 1)
    for _ in range(300):
        queue.push("a", 1)
    _order(queue, 200)
    queue.cancel(held)
    assert _order(queue, 20).count("b") in (10, 11)


@pytest.mark.parametrize(("before", "after"), [(1, 100), (100, 1), (3, 7)])
def test_a_new_weight_is_not_for_what_is_owed_already(before: int, after: int) -> None:
    """Else the first of a heavier tenant, nearly served, would be worth many times as much."""
    queue = _queue(("a", 1, 500))
    for _ in range(300):
        queue.push("b", 1_000, before)
    _order(queue, 400 // before)
    queue.reweigh("b", after)
    line = queue._lines["b"]
    assert line.start <= queue._virtual <= line.finish
    costs = {"a": 0, "b": 0}
    for _ in range(60):
        item = queue.pop()
        assert item is not None
        costs[item.tenant] += item.cost
    assert costs["b"] <= after * costs["a"] + 1_000 + after
