"""Leased units that are returned go where they were charged."""

import pytest

from headgate.algorithms import algorithm_for
from headgate.limits import FixedWindow, Limit, SlidingWindowCounter, SlidingWindowLog, TokenBucket
from headgate.units import SECOND
from tests.support.lease_store import lasts, place_of, refund_at

NOW = 1_700_000_000 * SECOND
EACH: tuple[Limit, ...] = (
    TokenBucket(10, 1),
    FixedWindow(10, 10),
    SlidingWindowLog(10, 10),
    SlidingWindowCounter(10, 10),
    SlidingWindowCounter(10, 10, subwindows=5),
)


@pytest.mark.parametrize("limit", EACH, ids=str)
def test_in_the_same_instant_it_is_as_if_it_had_never_been(limit: Limit) -> None:
    algorithm = algorithm_for(limit)
    state = algorithm.charge(algorithm.charge(None, 2, NOW), 5, NOW)
    state = refund_at(algorithm, state, 5, place_of(algorithm.limit, state), NOW)
    assert algorithm.used(state, NOW) == 2


@pytest.mark.parametrize("limit", EACH[1:], ids=str)
def test_what_has_left_is_not_given_back(limit: Limit) -> None:
    algorithm = algorithm_for(limit)
    state = algorithm.charge(None, 5, NOW)
    place, later = place_of(algorithm.limit, state), NOW + 30 * SECOND
    state = algorithm.charge(state, 4, later)
    state = refund_at(algorithm, state, 5, place, later)
    assert algorithm.used(state, later) == 4


@pytest.mark.parametrize("limit", EACH[2:], ids=str)
def test_what_others_used_since_stays(limit: Limit) -> None:
    algorithm = algorithm_for(limit)
    state = algorithm.charge(None, 5, NOW)
    place, later = place_of(algorithm.limit, state), NOW + 9 * SECOND
    state = algorithm.charge(state, 4, later)
    state = refund_at(algorithm, state, 5, place, later)
    assert algorithm.used(state, later) == 4
    assert algorithm.fresh_in(state, later) == algorithm.fresh_in(
        algorithm.charge(None, 4, later), later
    )


@pytest.mark.parametrize("limit", EACH, ids=str)
def test_under_another_kind_of_limit_nothing_comes_back(limit: Limit) -> None:
    for other in EACH:
        if other is limit:
            continue
        lender, algorithm = algorithm_for(other), algorithm_for(limit)
        place = place_of(lender.limit, lender.charge(None, 5, NOW))
        state = refund_at(algorithm, algorithm.charge(None, 5, NOW), 5, place, NOW)
        assert algorithm.used(state, NOW) == 5, other


def test_a_log_with_debt_loses_debt_first() -> None:
    algorithm = algorithm_for(SlidingWindowLog(10, 10))
    state = algorithm.charge(None, 6, NOW)
    place = place_of(algorithm.limit, state)
    state = algorithm.charge(state, 7, NOW + SECOND)
    state = refund_at(algorithm, state, 5, place, NOW + SECOND)
    assert algorithm.used(state, NOW + SECOND) == 8
    assert algorithm.used(state, NOW + 10 * SECOND) == 4
    assert algorithm.used(state, NOW + 11 * SECOND) == 0


def test_a_lease_ends_when_its_units_have_no_effect_any_more() -> None:
    bucket, fixed = algorithm_for(TokenBucket(10, 1)), algorithm_for(FixedWindow(10, 10))
    assert lasts(bucket, None, 4, NOW) == 10 * SECOND
    assert lasts(bucket, bucket.charge(None, 3, NOW), 4, NOW) == 10 * SECOND
    assert lasts(fixed, None, 4, NOW + 3 * SECOND) == 7 * SECOND
    in_debt = fixed.charge(None, 25, NOW)
    assert lasts(fixed, in_debt, 1, NOW) == 10 * SECOND
