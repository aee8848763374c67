"""What the store is owed."""

from headgate.limits import Concurrency, FixedWindow, Limit
from headgate.runtime.reconciliation import Owing
from headgate.stores import Check

TEN = FixedWindow(10, 60)


def check(key: str, cost: int = 1, limit: Limit = TEN, group: str = "g") -> Check:
    return Check(group, key, limit, cost)


def test_what_is_owed_adds_up_by_counter() -> None:
    owing = Owing()
    owing.add([check("a"), check("b", 2), check("a", 3), check("a", 5, group="h")])
    assert owing.take_some(9) == [check("a", 4), check("b", 2), check("a", 5, group="h")]
    assert len(owing) == 0
    assert owing.take_some(9) == []


def test_what_was_given_back_is_not_owed_and_never_less_than_nothing() -> None:
    owing = Owing()
    owing.add([check("a", 3), check("b", 1)])
    owing.subtract([check("a", 1), check("b", 5), check("c", 1)])
    assert owing.take_some(9) == [check("a", 2)]


def test_nothing_is_owed_for_places_nor_for_nothing() -> None:
    owing = Owing()
    owing.add([check("a", 1, Concurrency(1, 60)), check("b", 0)])
    assert len(owing) == 0


def test_there_is_room_for_so_many_counters_and_what_is_dropped_is_told() -> None:
    owing = Owing(most=2)
    assert owing.add([check("a"), check("b"), check("c"), check("d")]) == 2
    assert owing.add([check("a", 5)]) == 0
    assert owing.take_some(9) == [check("a", 6), check("b")]


def test_it_is_taken_a_few_at_a_time() -> None:
    owing = Owing()
    owing.add([check(str(n)) for n in range(5)])
    assert [len(owing.take_some(2)) for _ in range(4)] == [2, 2, 1, 0]


def test_what_was_reset_is_forgotten_and_a_limit_that_changed_is_the_new_one() -> None:
    owing = Owing()
    other = FixedWindow(20, 60)
    owing.add([check("a"), check("b"), check("b", 1, other)])
    owing.forget([check("a", 0)])
    assert owing.take_some(9) == [check("b", 2, other)]


def test_a_forked_process_owes_nothing() -> None:
    owing = Owing()
    owing.add([check("a")])
    owing.after_fork()
    assert len(owing) == 0
