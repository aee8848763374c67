"""Usage that the store has yet to be told of, by counter."""

from headgate.limits import Concurrency, FixedWindow, Limit
from headgate.runtime.reconciliation import UnreportedUsage
from headgate.stores.operations import Check

TEN = FixedWindow(10, 60)


def check(key: str, cost: int = 1, limit: Limit = TEN, group: str = "g") -> Check:
    return Check(group, key, limit, cost)


def test_usage_adds_up_by_counter() -> None:
    usage = UnreportedUsage()
    usage.add([check("a"), check("b", 2), check("a", 3), check("a", 5, group="h")])
    assert usage.pop(9) == [check("a", 4), check("b", 2), check("a", 5, group="h")]
    assert len(usage) == 0
    assert usage.pop(9) == []


def test_refunds_are_subtracted_and_usage_is_never_negative() -> None:
    usage = UnreportedUsage()
    usage.add([check("a", 3), check("b", 1)])
    usage.subtract([check("a", 1), check("b", 5), check("c", 1)])
    assert usage.pop(9) == [check("a", 2)]


def test_slots_and_a_cost_of_zero_are_not_usage() -> None:
    usage = UnreportedUsage()
    usage.add([check("a", 1, Concurrency(1, 60)), check("b", 0)])
    assert len(usage) == 0


def test_usage_of_too_many_counters_is_dropped_and_counted() -> None:
    usage = UnreportedUsage(max_counters=2)
    assert usage.add([check("a"), check("b"), check("c"), check("d")]) == 2
    assert usage.add([check("a", 5)]) == 0
    assert usage.pop(9) == [check("a", 6), check("b")]


def test_usage_is_popped_a_few_counters_at_a_time() -> None:
    usage = UnreportedUsage()
    usage.add([check(str(n)) for n in range(5)])
    assert [len(usage.pop(2)) for _ in range(4)] == [2, 2, 1, 0]


def test_what_the_store_decides_on_again_is_popped_first_and_alone() -> None:
    usage = UnreportedUsage()
    usage.add([check(str(n)) for n in range(5)])
    assert not usage.has_urgent
    assert usage.hurry([check("3"), check("9")])
    assert not usage.hurry([check("3")])
    assert usage.has_urgent
    assert usage.pop(9) == [check("3")]
    assert not usage.has_urgent
    assert len(usage.pop(9)) == 4


def test_what_was_reset_or_refunded_is_not_popped_first() -> None:
    usage = UnreportedUsage()
    usage.add([check("a"), check("b"), check("c")])
    usage.hurry([check("a"), check("b")])
    usage.drop([check("a")])
    usage.subtract([check("b")])
    assert usage.pop(9) == []
    assert usage.pop(9) == [check("c")]


def test_a_reset_drops_usage_and_a_changed_limit_replaces_the_old() -> None:
    usage = UnreportedUsage()
    other = FixedWindow(20, 60)
    usage.add([check("a"), check("b"), check("b", 1, other)])
    usage.drop([check("a", 0)])
    assert usage.pop(9) == [check("b", 2, other)]


def test_a_forked_process_has_no_unreported_usage() -> None:
    usage = UnreportedUsage()
    usage.add([check("a")])
    usage.after_fork()
    assert len(usage) == 0
