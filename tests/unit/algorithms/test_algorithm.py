"""What every algorithm promises alike, and what a changed limit keeps."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.algorithms import algorithm_for, carry
from headgate.errors import UsageError
from headgate.limits import (
    GCRA,
    FixedWindow,
    LeakyBucket,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.units import SECOND

TENS = [
    TokenBucket(10, 1),
    GCRA(1, 10),
    LeakyBucket(10, 1),
    FixedWindow(10, 10),
    SlidingWindowLog(10, 10),
    SlidingWindowCounter(10, 10),
    SlidingWindowCounter(10, 10, 5),
]
each_limit = pytest.mark.parametrize("limit", TENS, ids=str)


@each_limit
def test_a_refused_cost_takes_nothing(limit: Limit) -> None:
    algorithm = algorithm_for(limit)
    state, _ = algorithm.take(None, 6, 0)
    for _ in range(10):
        state, outcome = algorithm.take(state, 5, 0)
        assert not outcome.allowed
    assert algorithm.take(state, 4, 0)[1].allowed


@each_limit
def test_a_cost_of_nothing_is_allowed_even_when_nothing_is_left(limit: Limit) -> None:
    algorithm = algorithm_for(limit)
    state = algorithm.charge(None, 1_000, 0)
    state, outcome = algorithm.take(state, 0, 0)
    assert outcome.allowed
    assert outcome.retry_after_ns == 0
    assert algorithm.used(state, 0) == 1_000
    assert algorithm.take(None, 0, 0)[0] is None


@each_limit
def test_a_cost_above_the_quota_can_never_fit(limit: Limit) -> None:
    algorithm = algorithm_for(limit)
    state, outcome = algorithm.take(None, 11, 0)
    assert state is None
    assert not outcome.allowed
    assert outcome.retry_after_ns is None
    assert outcome.remaining == 10


@each_limit
def test_an_untouched_counter_has_all_and_is_as_new(limit: Limit) -> None:
    algorithm = algorithm_for(limit)
    assert algorithm.remaining(None, 5) == 10
    assert algorithm.used(None, 5) == 0
    assert algorithm.fresh_in(None, 5) == 0
    assert algorithm.wait(None, 10, 5) == 0


@each_limit
@pytest.mark.parametrize(
    "new", [TokenBucket(4, 3), FixedWindow(4, 7), SlidingWindowLog(4, 7)], ids=str
)
def test_what_a_lowered_limit_cannot_hold_is_debt(limit: Limit, new: Limit) -> None:
    old, lower = algorithm_for(limit), algorithm_for(new)
    state = carry(old, old.charge(None, 9, 0), lower, 0)
    assert lower.used(state, 0) == 9
    assert lower.remaining(state, 0) == 0


@each_limit
def test_debt_is_carried_in_full(limit: Limit) -> None:
    old, new = algorithm_for(limit), algorithm_for(FixedWindow(4, 7))
    state = carry(old, old.charge(None, 15, 0), new, 0)
    assert new.used(state, 0) == 15


@each_limit
def test_a_raised_limit_has_what_it_was_raised_by(limit: Limit) -> None:
    old, new = algorithm_for(limit), algorithm_for(TokenBucket(25, 3))
    state = carry(old, old.charge(None, 9, 0), new, 0)
    assert new.remaining(state, 0) == 16


@each_limit
def test_the_same_limit_keeps_the_state_as_it_is(limit: Limit) -> None:
    old, new = algorithm_for(limit), algorithm_for(limit)
    state = old.charge(None, 9, SECOND)
    assert carry(old, state, new, SECOND) == state


def test_what_is_no_limit_has_no_algorithm() -> None:
    not_a_limit: Any = "10/s"
    with pytest.raises(UsageError, match="no algorithm"):
        algorithm_for(not_a_limit)
