"""The leaky bucket, as a meter, on the textbook's examples."""

from __future__ import annotations

from headgate.algorithms import algorithm_for
from headgate.limits import LeakyBucket
from headgate.units import MINUTE, SECOND

FORTY = algorithm_for(LeakyBucket(capacity=40, leak_rate=2))


def test_forty_fill_it_and_one_more_runs_over() -> None:
    state, full = FORTY.take(None, 40, 0)
    _, over = FORTY.take(state, 1, 0)
    assert [full.allowed, over.allowed] == [True, False]
    assert over.retry_after_ns == SECOND // 2


def test_two_leak_out_each_second() -> None:
    state = FORTY.charge(None, 40, 0)
    assert [FORTY.used(state, second * SECOND) for second in (0, 1, 10, 20, 30)] == [
        40,
        38,
        20,
        0,
        0,
    ]
    assert FORTY.fresh_in(state, 0) == 20 * SECOND


def test_part_of_a_unit_still_takes_room() -> None:
    state = FORTY.charge(None, 40, 0)
    assert FORTY.used(state, SECOND // 4) == 40
    assert FORTY.remaining(state, SECOND // 4) == 0
    assert FORTY.remaining(state, SECOND // 2) == 1


def test_costs_of_6_6_and_4_against_10_are_yes_no_yes() -> None:
    algorithm = algorithm_for(LeakyBucket(10, 1))
    state, first = algorithm.take(None, 6, 0)
    state, second = algorithm.take(state, 6, 0)
    state, third = algorithm.take(state, 4, 0)
    assert [first.allowed, second.allowed, third.allowed] == [True, False, True]


def test_a_hundred_at_the_end_of_a_minute_leave_no_hundred_for_the_next() -> None:
    algorithm = algorithm_for(LeakyBucket(100, 100 / 60))
    state, at_59 = algorithm.take(None, 100, MINUTE - SECOND)
    state, at_60 = algorithm.take(state, 100, MINUTE)
    assert [at_59.allowed, at_60.allowed] == [True, False]


def test_a_refund_takes_water_out_but_not_more_than_there_is() -> None:
    state = FORTY.charge(None, 30, 0)
    assert FORTY.used(FORTY.refund(state, 10, 0), 0) == 20
    assert FORTY.fresh_in(FORTY.refund(state, 31, 0), 0) == 0


def test_water_above_the_brim_leaks_like_the_rest() -> None:
    state = FORTY.charge(None, 100, 0)
    assert FORTY.used(state, 0) == 100
    assert FORTY.wait(state, 1, 0) == 61 * SECOND // 2
