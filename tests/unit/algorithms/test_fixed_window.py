"""The fixed window on the textbook's examples."""

from __future__ import annotations

import pytest

from headgate.algorithms import algorithm_for
from headgate.limits import FixedWindow
from headgate.units import MINUTE, SECOND

HUNDRED = algorithm_for(FixedWindow(100, MINUTE // SECOND))
LATELY = 1_800_000_000 * SECOND


def test_a_hundred_at_the_end_of_a_minute_and_a_hundred_in_the_next_all_pass() -> None:
    """Known and accepted: twice the limit within an instant."""
    state, at_59 = HUNDRED.take(None, 100, 59 * SECOND)
    state, at_60 = HUNDRED.take(state, 100, 60 * SECOND)
    state, more = HUNDRED.take(state, 1, 60 * SECOND)
    assert [at_59.allowed, at_60.allowed, more.allowed] == [True, True, False]


@pytest.mark.parametrize("begin", [0, LATELY])
def test_windows_are_aligned_to_the_epoch(begin: int) -> None:
    assert begin % MINUTE == 0
    state = HUNDRED.charge(None, 100, begin + 17 * SECOND)
    assert HUNDRED.wait(state, 1, begin + 17 * SECOND) == 43 * SECOND
    assert HUNDRED.remaining(state, begin + MINUTE - 1) == 0
    assert HUNDRED.remaining(state, begin + MINUTE) == 100


def test_costs_of_6_6_and_4_against_10_are_yes_no_yes() -> None:
    algorithm = algorithm_for(FixedWindow(10, 60))
    state, first = algorithm.take(None, 6, 0)
    state, second = algorithm.take(state, 6, 0)
    state, third = algorithm.take(state, 4, 0)
    assert [first.allowed, second.allowed, third.allowed] == [True, False, True]


def test_debt_is_carried_from_window_to_window() -> None:
    state = HUNDRED.charge(None, 250, 0)
    assert [HUNDRED.used(state, n * MINUTE) for n in range(4)] == [250, 150, 50, 0]
    assert HUNDRED.wait(state, 50, 0) == 2 * MINUTE
    assert HUNDRED.wait(state, 51, 0) == 3 * MINUTE
    assert HUNDRED.fresh_in(state, SECOND) == 3 * MINUTE - SECOND


def test_a_refund_comes_off_the_window_in_force() -> None:
    state = HUNDRED.charge(None, 100, 0)
    assert HUNDRED.remaining(HUNDRED.refund(state, 30, 0), 0) == 30
    assert HUNDRED.fresh_in(HUNDRED.refund(state, 101, 0), 0) == 0
    assert HUNDRED.fresh_in(HUNDRED.refund(state, 30, MINUTE), MINUTE) == 0


def test_a_window_in_the_future_of_the_clock_starts_now() -> None:
    state = HUNDRED.charge(None, 60, MINUTE)
    assert HUNDRED.remaining(state, MINUTE - 1) == 40
    assert HUNDRED.wait(state, 41, MINUTE - 1) == MINUTE
    moved = HUNDRED.rebase(state, MINUTE - 1)
    assert HUNDRED.wait(moved, 41, MINUTE) == MINUTE - 1
    assert HUNDRED.used(moved, 2 * MINUTE - 2) == 60
    assert HUNDRED.used(moved, 2 * MINUTE - 1) == 0


def test_windows_are_aligned_again_after_one_that_a_step_back_moved() -> None:
    moved = HUNDRED.rebase(HUNDRED.charge(None, 250, 10 * MINUTE), MINUTE - SECOND)
    assert HUNDRED.used(moved, 2 * MINUTE - SECOND - 1) == 250
    assert HUNDRED.used(moved, 2 * MINUTE - SECOND) == 150
    assert HUNDRED.used(moved, 2 * MINUTE) == 50
    assert HUNDRED.fresh_in(moved, MINUTE - SECOND) == 2 * MINUTE + SECOND


def test_a_changed_limit_of_the_same_window_keeps_its_start_after_a_step_back() -> None:
    more, longer = algorithm_for(FixedWindow(200, 60)), algorithm_for(FixedWindow(200, 61))
    state = HUNDRED.rebase((MINUTE, 7), 30 * SECOND)
    assert state == (30 * SECOND, 7)
    assert more.adopt(state, HUNDRED, 40 * SECOND) == state
    assert longer.adopt(state, HUNDRED, 40 * SECOND) is None
