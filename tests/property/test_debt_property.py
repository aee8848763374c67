"""What was charged beyond a limit is worked off at its pace before anything more fits."""

from __future__ import annotations

from copy import deepcopy
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.algorithms import algorithm_for
from tests.support.histories import LATELY, MINUTE, SECOND, examples
from tests.support.limit_kinds import KIND, KINDS, limit_of, oracle_of

BILLION = 10**9


@examples(120)
@given(KIND, st.integers(1, 5), st.integers(1, 60), st.integers(0, 3 * SECOND))
@example("log", 3, 9, 1)
@example("cells", 3, 10, 0)
def test_nothing_fits_before_the_debt_is_gone_and_then_a_retry_does(
    kind: str, quota: int, debt: int, start: int
) -> None:
    algorithm, oracle = algorithm_for(limit_of(kind, quota, SECOND)), oracle_of(kind, quota, SECOND)
    state: Any = algorithm.charge(None, quota + debt, start)
    oracle.add(quota + debt, start)
    wait = algorithm.wait(state, 1, start)
    assert wait is not None
    for tenth in range(10):
        now = start + wait * tenth // 10
        assert algorithm.remaining(state, now) == 0
        assert algorithm.used(state, now) == ceil(oracle.used(now))
        assert not algorithm.take(state, 1, now)[1].allowed
        assert algorithm.wait(state, 1, now) == start + wait - now
    assert algorithm.take(state, 1, start + wait)[1].allowed


def _wait_for_one(kind: str, quota: int, owed: int, now: int) -> int:
    """How long one unit waits, when *owed* were charged at *now*, by hand.

    *owed* is a multiple of the quota, windows are a second.
    """
    windows = owed // quota
    match kind:
        case "token_bucket" | "gcra" | "leaky_bucket":
            return ceil(Fraction((owed + 1 - quota) * SECOND, quota))
        case "log":
            return windows * SECOND
        case "fixed_window":
            return (now // SECOND + windows) * SECOND - now
        case "counter":
            start = (now // SECOND + windows) * SECOND
            return start + ceil(Fraction(SECOND, quota)) - now
    cell = Fraction(SECOND, 3)  # the first cell of each window is full, the others empty
    return ceil((now // cell + 3 * windows) * cell + cell / quota) - now


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("now", [0, LATELY])
def test_a_billion_over_a_limit_of_three_takes_a_third_of_a_billion_windows(
    kind: str, now: int
) -> None:
    algorithm = algorithm_for(limit_of(kind, 3, SECOND))
    state = algorithm.charge(None, 3 * BILLION, now)
    wait = algorithm.wait(state, 1, now)
    assert wait == _wait_for_one(kind, 3, 3 * BILLION, now)
    assert wait is not None
    assert not algorithm.take(deepcopy(state), 1, now + wait - 1)[1].allowed
    assert algorithm.take(deepcopy(state), 1, now + wait)[1].allowed


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_idle_time_works_off_what_it_should(kind: str) -> None:
    algorithm = algorithm_for(limit_of(kind, 3, SECOND))
    state = algorithm.charge(None, 3 * BILLION, LATELY)
    later = LATELY + 400_000_000 * SECOND
    owed = 3 * BILLION - 3 * 400_000_000
    tail = 3 if kind in ("counter", "cells") else 0  # of what has been worked off last
    assert owed <= algorithm.used(state, later) <= owed + tail
    state = algorithm.charge(state, 6, later)
    wait = algorithm.wait(state, 1, later)
    assert wait == _wait_for_one(kind, 3, 3 * BILLION + 6, LATELY) - 400_000_000 * SECOND


@pytest.mark.parametrize("kind", KINDS)
def test_a_jump_past_all_debt_leaves_the_counter_as_new(kind: str) -> None:
    algorithm = algorithm_for(limit_of(kind, 3, SECOND))
    state = algorithm.charge(None, BILLION + 1, LATELY)
    fresh_in = algorithm.fresh_in(state, LATELY)
    assert algorithm.used(deepcopy(state), LATELY + fresh_in - 1) > 0
    assert algorithm.used(deepcopy(state), LATELY + fresh_in) == 0
    assert algorithm.remaining(state, LATELY + fresh_in + 10**6 * MINUTE) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_refund_of_all_debt_leaves_a_full_counter(kind: str) -> None:
    algorithm = algorithm_for(limit_of(kind, 3, SECOND))
    state = algorithm.charge(None, 3 + BILLION, LATELY)
    state = algorithm.refund(state, BILLION, LATELY)
    assert algorithm.used(state, LATELY) == 3
    assert algorithm.fresh_in(algorithm.refund(state, BILLION, LATELY), LATELY) == 0
