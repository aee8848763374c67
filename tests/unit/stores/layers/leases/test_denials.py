"""`Denials`: what is remembered of refusals, for how long, and what of it is told."""

from __future__ import annotations

import threading

import pytest

from headgate.algorithms import Outcome
from headgate.errors import OptionError
from headgate.stores.layers.leases.denials import LONGEST_KEY, MOST_COSTS, Denials
from headgate.units import SECOND

KEEP = SECOND


def refused(wait_ns: int | None, remaining: int = 0, reset_ns: int = 60 * SECOND) -> Outcome:
    return Outcome(
        allowed=False, remaining=remaining, retry_after_ns=wait_ns, reset_after_ns=reset_ns
    )


def noted(*denials: tuple[int, int | None], keep_ns: int = KEEP) -> Denials:
    """The refusals of some costs of `a` at time 0, each with what it has to wait."""
    found = Denials(10)
    for cost, wait_ns in denials:
        found.note("g", "a", cost, refused(wait_ns), 0, keep_ns)
    return found


def test_a_refusal_is_told_until_its_end_and_not_at_it() -> None:
    denials = noted((1, 500))
    assert denials.find("g", "a", 1, 499) == refused(1, reset_ns=60 * SECOND - 499)
    assert denials.find("g", "a", 1, 500) is None


def test_a_refusal_is_kept_no_longer_than_its_keeper_says() -> None:
    denials = noted((1, 10 * SECOND))
    assert denials.find("g", "a", 1, KEEP - 1) == refused(9 * SECOND + 1, reset_ns=59 * SECOND + 1)
    assert denials.find("g", "a", 1, KEEP) is None


def test_a_cost_that_can_never_fit_is_told_as_such_but_only_kept_for_a_while() -> None:
    denials = noted((1000, None))
    told = denials.find("g", "a", 1001, KEEP - 1)
    assert told is not None
    assert told.retry_after_ns is None
    assert denials.find("g", "a", 1000, KEEP) is None


def test_a_refusal_holds_for_larger_costs_and_not_for_smaller_ones() -> None:
    denials = noted((5, 500))
    assert denials.find("g", "a", 4, 0) is None
    assert denials.find("g", "a", 5, 0) is not None
    assert denials.find("g", "a", 9, 0) is not None


def test_of_several_refused_costs_the_nearest_is_told() -> None:
    denials = noted((5, 500), (1, 100), (9, None))
    told = {cost: denials.find("g", "a", cost, 50) for cost in (1, 4, 5, 8, 9, 10)}
    waits = {cost: outcome.retry_after_ns for cost, outcome in told.items() if outcome}
    assert waits == {1: 50, 4: 50, 5: 450, 8: 450, 9: None, 10: None}


def test_one_that_is_over_does_not_hide_one_that_is_not() -> None:
    denials = noted((1, 500), (5, 100))
    told = denials.find("g", "a", 5, 200)
    assert told is not None
    assert told.retry_after_ns == 300


def test_a_newer_refusal_of_a_cost_replaces_the_older() -> None:
    denials = noted((1, 500))
    denials.note("g", "a", 1, refused(100), 0, KEEP)
    assert denials.find("g", "a", 1, 100) is None


def test_of_one_key_a_few_costs_are_kept_the_ones_that_last() -> None:
    denials = noted(*((cost, 100 * cost) for cost in range(1, MOST_COSTS + 3)))
    assert denials.find("g", "a", 1, 0) is None
    assert denials.find("g", "a", 2, 0) is None
    assert denials.find("g", "a", 3, 0) is not None
    assert len(denials) == 1


def test_nothing_is_remembered_of_what_was_admitted_or_has_no_time_to_last() -> None:
    denials = Denials(10)
    denials.note("g", "a", 1, Outcome(True, 5, 0, 10), 0, KEEP)
    denials.note("g", "b", 1, refused(10), 0, 0)
    denials.note("g", "c", 1, refused(0), 0, KEEP)
    assert len(denials) == 0


def test_a_cost_of_nothing_is_never_refused() -> None:
    assert noted((0, 500)).find("g", "a", 0, 0) is None


def test_what_is_forgotten_is_asked_for_again() -> None:
    denials = noted((1, 500), (5, 900))
    denials.forget("g", "b")
    assert denials.find("g", "a", 5, 0) is not None
    denials.forget("g", "a")
    assert denials.find("g", "a", 5, 0) is None


def test_a_group_is_forgotten_whole_and_alone() -> None:
    denials = noted((1, 500))
    denials.note("h", "a", 1, refused(500), 0, KEEP)
    denials.forget_group("g")
    assert denials.find("g", "a", 1, 0) is None
    assert denials.find("h", "a", 1, 0) is not None
    denials.note("g", "a", 3, refused(500), 0, KEEP)
    assert denials.find("g", "a", 3, 0) is not None
    assert denials.find("g", "a", 1, 0) is None


def test_forgetting_ever_new_groups_takes_no_memory() -> None:
    denials = noted((1, 500))
    for n in range(100):
        denials.forget_group(f"group-{n}")
    assert len(denials._turns) <= 10
    assert denials.find("g", "a", 1, 0) is None


def test_sprayed_keys_displace_the_oldest_and_never_more_than_the_most_are_kept() -> None:
    denials = Denials(100)
    denials.note("g", "first", 1, refused(500), 0, KEEP)
    for n in range(99):
        denials.note("g", f"key-{n}", 1, refused(500), 0, KEEP)
    assert denials.find("g", "first", 1, 0) is not None
    denials.note("g", "last", 1, refused(500), 0, KEEP)
    assert denials.find("g", "first", 1, 0) is None
    assert denials.find("g", "key-0", 1, 0) is not None
    for n in range(5000):
        denials.note("g", f"more-{n}", 1, refused(500), 0, KEEP)
    assert len(denials) == len(denials._order) == 100


def test_a_key_that_is_refused_again_and_again_takes_one_place() -> None:
    denials = Denials(3)
    for now_ns in range(50):
        denials.note("g", "a", 1, refused(500), now_ns, KEEP)
    assert len(denials) == 1
    assert denials.find("g", "a", 1, 50) is not None
    assert len(denials._order) <= 3


def test_what_is_over_makes_way_by_and_by() -> None:
    denials = Denials(1000)
    for n in range(500):
        denials.note("g", f"key-{n}", 1, refused(500), 0, KEEP)
    for n in range(500):
        denials.note("g", f"later-{n}", 1, refused(500), 10_000, KEEP)
    assert len(denials) == 500


def test_keys_too_long_to_keep_are_not_remembered() -> None:
    denials = Denials(10)
    denials.note("g", "x" * (LONGEST_KEY + 1), 1, refused(500), 0, KEEP)
    assert len(denials) == 0


def test_time_that_goes_back_does_not_lengthen_what_is_told() -> None:
    denials = Denials(10)
    denials.note("g", "a", 1, refused(500), 1000, KEEP)
    assert denials.find("g", "a", 1, 0) == refused(500)


def test_threads_may_share_one() -> None:
    denials = Denials(50)

    def work(start: int) -> None:
        for n in range(3_000):
            denials.note("g", f"{start}-{n % 200}", 1, refused(50), n, KEEP)
            denials.find("g", f"{start}-{n}", 1, n)
            denials.forget("g", f"{start}-{n - 3}")
            if n % 500 == 0:
                denials.forget_group(f"{start}-{n}")

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(denials) <= 54


def test_no_room_at_all_is_refused() -> None:
    with pytest.raises(OptionError, match="most is 0"):
        Denials(0)
