"""The token bucket does what the textbook's (tokens, last) does, to the last fraction."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.algorithms import algorithm_for
from headgate.limits import GCRA, LeakyBucket, TokenBucket
from tests.support.histories import LATELY, SECOND, STARTS, Step, examples, follow, steps
from tests.support.oracles import TokenBucketOracle
from tests.support.paced_limits import PACES, Pace, period_ns

A_TICK_LEFT = [Step("charge", 0, 1), Step("charge", 333_333_333, 1)]


@st.composite
def _cases(draw: st.DrawFn) -> tuple[Pace, int, list[Step]]:
    pace = draw(PACES)
    return pace, draw(STARTS), draw(steps(pace.quota, period_ns(pace)))


@examples(150)
@given(_cases())
@example((Pace(3, Fraction(3)), LATELY, [Step("charge", 0, 10**9), Step("hit", 10**9, 1)]))
@example((Pace(3, Fraction(3)), 0, [Step("hit", 0, 1), Step("hit", 333_333_333, 3)]))
@example((Pace(3, Fraction(3)), 0, [*A_TICK_LEFT, Step("refund", 0, 1)]))
@example((Pace(10, Fraction(1000)), 0, [Step("hit", 0, 10), Step("hit", 0, 1)]))
def test_every_answer_is_the_textbooks(case: tuple[Pace, int, list[Step]]) -> None:
    (quota, rate), start, history = case
    algorithm = algorithm_for(TokenBucket(quota, rate))
    follow(algorithm, TokenBucketOracle(quota, rate), start, history)


@examples(100)
@given(_cases())
def test_token_bucket_gcra_and_leaky_bucket_admit_the_same(
    case: tuple[Pace, int, list[Step]],
) -> None:
    (quota, rate), now, history = case
    limits = [TokenBucket(quota, rate), GCRA(rate, quota), LeakyBucket(quota, rate)]
    algorithms = [algorithm_for(limit) for limit in limits]
    states = [None, None, None]
    for verb, later, amount in history:
        now += later
        if verb == "charge":
            pairs = zip(algorithms, states, strict=True)
            states = [algorithm.charge(state, amount, now) for algorithm, state in pairs]
            continue
        taken = [
            algorithm.take(state, amount, now)
            for algorithm, state in zip(algorithms, states, strict=True)
        ]
        states = [state for state, _ in taken]
        assert len({outcome for _, outcome in taken}) == 1


@examples(100)
@given(_cases())
def test_no_interval_admits_more_than_capacity_and_refill(
    case: tuple[Pace, int, list[Step]],
) -> None:
    (quota, rate), now, history = case
    algorithm = algorithm_for(TokenBucket(quota, rate))
    state, admitted = None, []
    for _, later, cost in history:
        now += later
        state, outcome = algorithm.take(state, cost, now)
        if outcome.allowed:
            admitted.append((now, cost))
    for first, (begin, _) in enumerate(admitted):
        sums = accumulate(cost for _, cost in admitted[first:])
        for (end, _), total in zip(admitted[first:], sums, strict=True):
            assert total <= quota + rate * Fraction(end - begin, SECOND)


@pytest.mark.parametrize("step", [1, 7_919, 111_111_111, 333_333_333])
@pytest.mark.parametrize("rate", [Fraction(3), Fraction(7_000, 11), Fraction(167, 100)])
def test_a_long_time_loses_no_fraction(rate: Fraction, step: int) -> None:
    algorithm = algorithm_for(TokenBucket(3, rate))
    state, now, full_at = None, LATELY, Fraction(LATELY)
    for _ in range(10_000):
        now += step
        state, outcome = algorithm.take(state, 1, now)
        after = max(full_at, Fraction(now)) + SECOND / rate
        assert outcome.allowed == (after - now <= 3 * SECOND / rate)
        full_at = after if outcome.allowed else full_at
    assert state is not None
    ticks_per_ns = (rate / SECOND).numerator
    assert Fraction(state, ticks_per_ns) == full_at


def test_three_a_second_admits_exactly_three_a_second_for_ever() -> None:
    algorithm = algorithm_for(TokenBucket(3, 3))
    state = algorithm.charge(None, 3, LATELY)
    now = LATELY
    for admitted in range(1, 100_001):
        wait = algorithm.wait(state, 1, now)
        assert wait is not None
        now += wait
        state, outcome = algorithm.take(state, 1, now)
        assert outcome.allowed
        assert now == LATELY - (-admitted * SECOND // 3)
    assert algorithm.used(state, now) == 3
    assert algorithm.used(state, LATELY + 100_002 * SECOND // 3) == 1


def test_an_origin_changes_no_answer() -> None:
    plain = algorithm_for(TokenBucket(3, Fraction(7_000, 11)))
    shifted = algorithm_for(TokenBucket(3, Fraction(7_000, 11)), LATELY)
    states = [None, None]
    for now in range(LATELY, LATELY + 20_000_000, 1_234_567):
        both = zip((plain, shifted), states, strict=True)
        taken = [algorithm.take(state, 1, now) for algorithm, state in both]
        states = [state for state, _ in taken]
        assert taken[0][1] == taken[1][1]
