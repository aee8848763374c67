"""The token bucket on the textbook's examples."""

from __future__ import annotations

from headgate.algorithms import algorithm_for
from headgate.limits import TokenBucket, parse_limit
from headgate.units import SECOND

FIFTY = algorithm_for(TokenBucket(capacity=50, refill_rate=5))


def test_an_idle_bucket_is_full_but_never_fuller() -> None:
    state = FIFTY.charge(None, 50, 0)
    assert FIFTY.remaining(state, 5 * SECOND) == 25
    assert FIFTY.remaining(state, 10 * SECOND) == 50
    assert FIFTY.remaining(state, 30 * SECOND) == 50


def test_a_burst_of_the_capacity_and_then_the_rate() -> None:
    state = FIFTY.charge(None, 50, 0)
    now = 30 * SECOND
    admitted = 0
    for _ in range(60):
        state, outcome = FIFTY.take(state, 1, now)
        admitted += outcome.allowed
    assert admitted == 50
    for second in range(1, 11):
        then = now + second * SECOND
        taken = [FIFTY.take(state, 5, then), FIFTY.take(state, 6, then)]
        assert [outcome.allowed for _, outcome in taken] == [True, False]
        state = taken[0][0]


def test_a_token_comes_back_every_fifth_of_a_second() -> None:
    state = FIFTY.charge(None, 50, 0)
    assert FIFTY.wait(state, 1, 0) == SECOND // 5
    assert FIFTY.wait(state, 50, 0) == 10 * SECOND
    assert FIFTY.wait(state, 51, 0) is None


def test_costs_of_6_6_and_4_against_10_are_yes_no_yes() -> None:
    algorithm = algorithm_for(TokenBucket(10, 1))
    state, first = algorithm.take(None, 6, 0)
    state, second = algorithm.take(state, 6, 0)
    state, third = algorithm.take(state, 4, 0)
    assert [first.allowed, second.allowed, third.allowed] == [True, False, True]
    assert [first.remaining, second.remaining, third.remaining] == [4, 4, 0]


def test_a_hundred_at_the_end_of_a_minute_leave_no_hundred_for_the_next() -> None:
    algorithm = algorithm_for(parse_limit("100/minute"))
    state, at_59 = algorithm.take(None, 100, 59 * SECOND)
    state, at_60 = algorithm.take(state, 100, 60 * SECOND)
    assert at_59.allowed
    assert not at_60.allowed
    assert at_60.remaining == 1


def test_three_a_second_has_no_whole_nanoseconds_and_loses_none() -> None:
    algorithm = algorithm_for(TokenBucket(3, 3))
    state = algorithm.charge(None, 3, 0)
    assert [algorithm.wait(state, cost, 0) for cost in (1, 2, 3)] == [
        333_333_334,
        666_666_667,
        SECOND,
    ]
    assert not algorithm.take(state, 1, 333_333_333)[1].allowed
    assert algorithm.take(state, 1, 333_333_334)[1].allowed


def test_a_bucket_that_refills_within_milliseconds_is_enforced() -> None:
    """A TTL of `floor(2 * capacity / rate)` seconds would be none, and so would the limit."""
    algorithm = algorithm_for(parse_limit("1000/s burst 10"))
    state, first = algorithm.take(None, 10, 0)
    state, second = algorithm.take(state, 1, 0)
    assert first.allowed
    assert first.reset_after_ns == SECOND // 100
    assert not second.allowed
    assert second.retry_after_ns == SECOND // 1000
    assert algorithm.remaining(state, SECOND // 1000) == 1


def test_above_one_a_second_the_bucket_fills_smoothly_not_in_jumps() -> None:
    algorithm = algorithm_for(TokenBucket(100, 100))
    state = algorithm.charge(None, 100, 0)
    filled = [algorithm.remaining(state, tenth * SECOND // 10) for tenth in range(11)]
    assert filled == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]


def test_a_refund_fills_the_bucket_but_never_beyond_full() -> None:
    state = FIFTY.charge(None, 20, 0)
    assert FIFTY.remaining(FIFTY.refund(state, 5, 0), 0) == 35
    assert FIFTY.fresh_in(FIFTY.refund(state, 20, 0), 0) == 0
    assert FIFTY.fresh_in(FIFTY.refund(state, 1_000, 0), 0) == 0


def test_debt_is_refilled_before_anything_fits() -> None:
    state = FIFTY.charge(None, 60, 0)
    assert FIFTY.used(state, 0) == 60
    assert FIFTY.remaining(state, 2 * SECOND) == 0
    assert FIFTY.wait(state, 1, 0) == 11 * SECOND // 5
    assert FIFTY.fresh_in(state, 0) == 12 * SECOND


def test_a_clock_that_steps_back_gives_nothing() -> None:
    state = FIFTY.charge(None, 50, 100 * SECOND)
    assert FIFTY.remaining(state, 0) == 0
    assert FIFTY.wait(state, 1, 0) == SECOND // 5
