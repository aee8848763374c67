"""The sliding window counter on the textbook's examples."""

from __future__ import annotations

from headgate.algorithms import algorithm_for
from headgate.limits import SlidingWindowCounter
from headgate.units import HOUR, MINUTE, SECOND

HUNDRED = algorithm_for(SlidingWindowCounter(100, 60))
IN_SIXTHS = algorithm_for(SlidingWindowCounter(60, 60, subwindows=6))


def test_80_before_and_20_now_are_76_when_30_percent_have_passed() -> None:
    state = HUNDRED.charge(None, 80, 30 * SECOND)
    now = MINUTE + 18 * SECOND
    state = HUNDRED.charge(state, 20, now)
    assert HUNDRED.used(state, now) == 76
    assert HUNDRED.remaining(state, now) == 24
    assert HUNDRED.take(state, 24, now)[1].allowed
    assert not HUNDRED.take(state, 25, now)[1].allowed


def test_a_hundred_at_the_end_of_a_minute_leave_none_for_the_next() -> None:
    state, at_59 = HUNDRED.take(None, 100, 59 * SECOND)
    state, at_60 = HUNDRED.take(state, 1, 60 * SECOND)
    assert [at_59.allowed, at_60.allowed] == [True, False]
    assert at_60.retry_after_ns == 600_000_000


def test_costs_of_6_6_and_4_against_10_are_yes_no_yes() -> None:
    algorithm = algorithm_for(SlidingWindowCounter(10, 60))
    state, first = algorithm.take(None, 6, 0)
    state, second = algorithm.take(state, 6, 0)
    state, third = algorithm.take(state, 4, 0)
    assert [first.allowed, second.allowed, third.allowed] == [True, False, True]


def test_a_fraction_of_a_unit_counts_as_one() -> None:
    state = HUNDRED.charge(None, 1, 0)
    assert HUNDRED.used(state, 2 * MINUTE - 1) == 1
    assert HUNDRED.used(state, 2 * MINUTE) == 0
    assert HUNDRED.fresh_in(state, 0) == 2 * MINUTE


def test_cells_are_aligned_to_the_epoch() -> None:
    state = HUNDRED.charge(None, 100, 59 * SECOND)
    assert HUNDRED.used(state, 90 * SECOND) == 50
    assert HUNDRED.wait(state, 50, 59 * SECOND) == 31 * SECOND


def test_more_subwindows_estimate_only_the_oldest_part_of_the_window() -> None:
    state = IN_SIXTHS.charge(None, 30, 5 * SECOND)
    state = IN_SIXTHS.charge(state, 12, 25 * SECOND)
    assert IN_SIXTHS.used(state, 59 * SECOND) == 42
    assert IN_SIXTHS.used(state, 65 * SECOND) == 27
    assert IN_SIXTHS.used(state, 70 * SECOND) == 12


def test_debt_moves_on_to_the_next_cell() -> None:
    state = HUNDRED.charge(None, 250, 0)
    assert HUNDRED.used(state, 0) == 250
    assert HUNDRED.used(state, MINUTE) == 250
    assert HUNDRED.used(state, 2 * MINUTE) == 150
    assert HUNDRED.used(state, 3 * MINUTE) == 50
    assert HUNDRED.wait(state, 50, 0) == 3 * MINUTE
    assert HUNDRED.fresh_in(state, 0) == 4 * MINUTE


def test_a_refund_takes_the_newest_back() -> None:
    state = HUNDRED.charge(None, 80, 0)
    state = HUNDRED.charge(state, 20, MINUTE)
    assert HUNDRED.used(HUNDRED.refund(state, 20, MINUTE), MINUTE) == 80
    assert HUNDRED.used(HUNDRED.refund(state, 50, MINUTE), MINUTE + MINUTE // 2) == 25
    assert HUNDRED.fresh_in(HUNDRED.refund(state, 101, MINUTE), MINUTE) == 0


def test_cells_in_the_future_of_the_clock_are_added_to_the_current_one() -> None:
    state = HUNDRED.charge(None, 80, 0)
    state = HUNDRED.charge(state, 20, MINUTE)
    assert HUNDRED.used(state, MINUTE - SECOND) == 100
    assert HUNDRED.wait(state, 8, MINUTE - SECOND) == SECOND + MINUTE * 8 // 100
    assert HUNDRED.rebase(state, MINUTE - SECOND) == (0, (0, 100))
    assert HUNDRED.rebase(state, -HOUR) == (-60, (0, 100))


def test_a_step_back_makes_no_debt_of_a_cell_that_counted_in_part() -> None:
    state = HUNDRED.charge(HUNDRED.charge(None, 100, 0), 60, MINUTE + 40 * SECOND)
    assert HUNDRED.used(state, MINUTE + 40 * SECOND) == 94
    assert HUNDRED.used(state, 0) == 100


def test_debt_older_than_the_last_cell_is_worked_off_in_full() -> None:
    loose, lowered = (
        algorithm_for(SlidingWindowCounter(limit, 60, subwindows=2)) for limit in (6, 2)
    )
    state = loose.charge(loose.charge(None, 5, 0), 1, 30 * SECOND)
    adopted = lowered.adopt(state, loose, 30 * SECOND)
    assert lowered.used(adopted, 30 * SECOND) == 6
    assert lowered.used(adopted, 60 * SECOND) == 6
    for now in (30 * SECOND, 60 * SECOND, 90 * SECOND):
        assert lowered.wait(adopted, 1, now) == 195 * SECOND - now
