"""The sliding window log on the textbook's examples."""

from __future__ import annotations

from headgate.algorithms import algorithm_for
from headgate.limits import SlidingWindowLog
from headgate.units import MINUTE, SECOND

FIVE = algorithm_for(SlidingWindowLog(5, 60))


def test_a_hundred_at_the_end_of_a_minute_leave_none_for_the_next() -> None:
    algorithm = algorithm_for(SlidingWindowLog(100, 60))
    state, at_59 = algorithm.take(None, 100, 59 * SECOND)
    state, at_60 = algorithm.take(state, 1, 60 * SECOND)
    assert [at_59.allowed, at_60.allowed] == [True, False]
    assert at_60.retry_after_ns == 59 * SECOND


def test_two_events_in_the_same_instant_count_twice() -> None:
    state = None
    for expected in (4, 3, 2, 1, 0):
        state, outcome = FIVE.take(state, 1, 7)
        assert outcome.remaining == expected
    state, outcome = FIVE.take(state, 1, 7)
    assert not outcome.allowed


def test_an_event_exactly_one_window_old_has_left() -> None:
    state = FIVE.charge(None, 5, SECOND)
    assert FIVE.remaining(state, SECOND + MINUTE - 1) == 0
    assert FIVE.remaining(state, SECOND + MINUTE) == 5


def test_each_event_leaves_by_itself() -> None:
    state = None
    for second in range(5):
        state = FIVE.charge(state, 1, second * SECOND)
    now = 5 * SECOND
    waits = [FIVE.wait(state, cost, now) for cost in range(1, 7)]
    assert waits == [(55 + n) * SECOND for n in range(5)] + [None]


def test_costs_of_6_6_and_4_against_10_are_yes_no_yes() -> None:
    algorithm = algorithm_for(SlidingWindowLog(10, 60))
    state, first = algorithm.take(None, 6, 0)
    state, second = algorithm.take(state, 6, 0)
    state, third = algorithm.take(state, 4, 0)
    assert [first.allowed, second.allowed, third.allowed] == [True, False, True]


def test_one_unit_left_does_not_admit_any_cost() -> None:
    state = FIVE.charge(None, 4, 0)
    state, outcome = FIVE.take(state, 2, 0)
    assert not outcome.allowed
    assert FIVE.remaining(state, 0) == 1


def test_debt_keeps_the_window_full_until_it_is_gone() -> None:
    state = FIVE.charge(None, 12, 0)
    assert FIVE.used(state, 0) == 12
    assert FIVE.wait(state, 1, 0) == 2 * MINUTE
    assert FIVE.wait(state, 5, 0) == 3 * MINUTE
    assert FIVE.used(state, MINUTE) == 7
    assert FIVE.used(state, 2 * MINUTE) == 2
    assert FIVE.fresh_in(state, 2 * MINUTE) == MINUTE


def test_a_refund_takes_the_newest_back() -> None:
    state = FIVE.charge(None, 3, 0)
    state = FIVE.charge(state, 2, 30 * SECOND)
    state = FIVE.refund(state, 3, 30 * SECOND)
    assert FIVE.used(state, 30 * SECOND) == 2
    assert FIVE.fresh_in(state, 30 * SECOND) == 30 * SECOND


def test_a_refund_takes_debt_back_first_and_never_more_than_there_is() -> None:
    state = FIVE.charge(None, 8, 0)
    state = FIVE.refund(state, 3, 0)
    assert FIVE.wait(state, 5, 0) == MINUTE
    assert FIVE.fresh_in(FIVE.refund(state, 100, 0), 0) == 0


def test_a_clock_that_steps_back_brings_nothing_back() -> None:
    state = FIVE.charge(None, 5, MINUTE)
    assert FIVE.remaining(state, 0) == 0
    assert FIVE.wait(state, 1, 0) == MINUTE
    assert FIVE.used(state, 2 * MINUTE - 1) == 5


def test_only_entries_in_the_future_of_the_clock_move() -> None:
    state = FIVE.charge(FIVE.charge(None, 2, 0), 2, MINUTE // 2)
    state = FIVE.charge(state, 1, MINUTE - 1)
    moved = FIVE.rebase(state, MINUTE // 2)
    assert (moved.times, moved.units) == ([0, MINUTE // 2], [2, 3])
    assert state.high == MINUTE - 1


def test_a_fast_take_drops_what_has_left_and_only_that() -> None:
    state = None
    for now in (SECOND, 2 * SECOND, 3 * SECOND):
        state, wait, remaining, _ = FIVE.quick_take(state, 1, now)
        assert wait == 0
    assert remaining == 2
    state, wait, remaining, _ = FIVE.quick_take(state, 1, 62 * SECOND)
    assert (wait, remaining) == (0, 3)
    assert state is not None
    assert (FIVE.used(state, 62 * SECOND), len(state.times) - state.head) == (2, 2)
