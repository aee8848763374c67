"""GCRA on the textbook's examples."""

from __future__ import annotations

from headgate.algorithms import algorithm_for
from headgate.limits import GCRA, TokenBucket
from headgate.units import MINUTE, SECOND

FIFTY = algorithm_for(GCRA(rate=10, burst=50))


def test_the_burst_passes_exactly_and_not_one_more() -> None:
    state = None
    for _ in range(50):
        state, outcome = FIFTY.take(state, 1, 0)
        assert outcome.allowed
    state, outcome = FIFTY.take(state, 1, 0)
    assert not outcome.allowed
    assert outcome.retry_after_ns == SECOND // 10


def test_a_burst_of_one_spaces_requests_evenly() -> None:
    algorithm = algorithm_for(GCRA(rate=4, burst=1))
    quarter = SECOND // 4
    state, admitted = None, []
    for now in range(0, 2 * SECOND, quarter // 5):
        state, outcome = algorithm.take(state, 1, now)
        if outcome.allowed:
            admitted.append(now)
    assert admitted == [n * quarter for n in range(8)]


def test_it_admits_what_the_token_bucket_of_the_same_numbers_admits() -> None:
    bucket = algorithm_for(TokenBucket(50, 10))
    mine, its = None, None
    for n in range(500):
        now, cost = n * 37_000_000, n % 7
        mine, outcome = FIFTY.take(mine, cost, now)
        its, expected = bucket.take(its, cost, now)
        assert outcome == expected


def test_costs_of_6_6_and_4_against_10_are_yes_no_yes() -> None:
    algorithm = algorithm_for(GCRA(rate=1, burst=10))
    state, first = algorithm.take(None, 6, 0)
    state, second = algorithm.take(state, 6, 0)
    state, third = algorithm.take(state, 4, 0)
    assert [first.allowed, second.allowed, third.allowed] == [True, False, True]


def test_a_hundred_at_the_end_of_a_minute_leave_no_hundred_for_the_next() -> None:
    algorithm = algorithm_for(GCRA(rate=100 / 60, burst=100))
    state, at_59 = algorithm.take(None, 100, MINUTE - SECOND)
    state, at_60 = algorithm.take(state, 100, MINUTE)
    assert [at_59.allowed, at_60.allowed] == [True, False]


def test_a_refund_moves_the_arrival_time_back_but_not_before_now() -> None:
    state = FIFTY.charge(None, 50, 0)
    assert FIFTY.remaining(FIFTY.refund(state, 20, 0), 0) == 20
    assert FIFTY.fresh_in(FIFTY.refund(state, 51, 0), 0) == 0


def test_debt_delays_by_its_worth() -> None:
    state = FIFTY.charge(None, 150, 0)
    assert FIFTY.wait(state, 1, 0) == 10 * SECOND + SECOND // 10
    assert FIFTY.wait(state, 50, 0) == 15 * SECOND
