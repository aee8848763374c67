"""A clock that steps back mints nothing, never raises and locks no caller out."""

from __future__ import annotations

from copy import deepcopy
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.algorithms import algorithm_for
from headgate.algorithms.leaky_queue import LeakyQueueAlgorithm
from headgate.limits import LeakyQueue, SlidingWindowLog
from tests.support.histories import LATELY, MILLISECOND, SECOND, Step, examples, steps
from tests.support.limit_kinds import KIND, KINDS, limit_of

WINDOW = 11 * MILLISECOND
HOUR = 3_600 * SECOND
MINUTE = 60 * SECOND

_JUMPS = st.lists(
    st.tuples(st.integers(-3 * WINDOW, 3 * WINDOW), st.integers(0, 6)), min_size=1, max_size=40
)
_JITTER = [(0, 5), *[(-2, 5), (2, 5)] * 20]


def _most(kind: str, quota: int, elapsed: int) -> Fraction:
    """The most that a limit of *kind* may allow while its clock moves forward by *elapsed*.

    A step back may cut a window of aligned kinds in two, so there are twice as many of them.
    """
    if kind in ("token_bucket", "gcra", "leaky_bucket"):
        return quota + Fraction(quota * elapsed, WINDOW)
    if kind == "log":
        return Fraction(quota * (elapsed // WINDOW + 1))
    return Fraction(quota * (2 * (elapsed // WINDOW) + (2 if kind == "fixed_window" else 3)))


@examples(400)
@given(KIND, st.integers(1, 5), _JUMPS)
@example("log", 1, [(0, 1), (WINDOW, 0), (-1, 1)])
@example("fixed_window", 3, [(0, 3), (WINDOW, 1), (-WINDOW, 3), (WINDOW, 3), (-WINDOW, 3)])
@example("fixed_window", 5, _JITTER)
@example("counter", 5, _JITTER)
@example("cells", 5, _JITTER)
@example("log", 5, _JITTER)
@example("token_bucket", 5, _JITTER)
def test_no_more_is_allowed_than_fits_in_the_time_that_the_clock_went_forward(
    kind: str, quota: int, jumps: list[tuple[int, int]]
) -> None:
    algorithm = algorithm_for(limit_of(kind, quota, WINDOW))
    state: Any = None
    now, allowed, elapsed = LATELY - LATELY % WINDOW + 1, 0, 0
    for jump, cost in jumps:
        now += jump
        elapsed += max(0, jump) if state is not None else 0
        state, outcome = algorithm.take(state, cost, now)
        allowed += cost if outcome.allowed else 0
    assert allowed <= _most(kind, quota, elapsed)


@examples(250)
@given(KIND, st.integers(1, 5), _JUMPS)
@example("log", 2, [(WINDOW, 1), (-WINDOW, 1), (1, 1)])
def test_waits_stay_exact_and_within_the_limits_own_time(
    kind: str, quota: int, jumps: list[tuple[int, int]]
) -> None:
    algorithm = algorithm_for(limit_of(kind, quota, WINDOW))
    longest = WINDOW + {"counter": WINDOW, "cells": WINDOW // 3 + 1}.get(kind, 0)
    state: Any = None
    now = LATELY
    for jump, units in jumps:
        now += jump
        cost = units or 1
        state, outcome = algorithm.take(state, cost, now)
        wait, fresh_in = outcome.retry_after_ns, outcome.reset_after_ns
        assert (wait is None) == (cost > quota)
        if wait:
            assert wait <= longest
            assert not algorithm.take(deepcopy(state), cost, now + wait - 1)[1].allowed
            assert algorithm.take(deepcopy(state), cost, now + wait)[1].allowed
        if fresh_in:
            assert algorithm.used(deepcopy(state), now + fresh_in - 1) > 0
        assert algorithm.used(deepcopy(state), now + fresh_in) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_caller_at_its_limit_waits_no_hour_when_the_clock_steps_back_an_hour(kind: str) -> None:
    algorithm = algorithm_for(limit_of(kind, 5, MINUTE))
    state: Any = None
    for _ in range(5):
        state, outcome = algorithm.take(state, 1, LATELY)
        assert outcome.allowed
    now, allowed = LATELY - HOUR, 0
    for _ in range(4 * 60):
        now += SECOND
        state, outcome = algorithm.take(state, 1, now)
        allowed += outcome.allowed
        assert allowed or now <= LATELY - HOUR + 2 * MINUTE
    assert 5 <= allowed <= 20


@examples(250)
@given(KIND, st.integers(1, 5), _JUMPS)
@example("log", 1, [(0, 1), (65, 0), (-35, 1)])
def test_questions_change_no_later_decision(
    kind: str, quota: int, jumps: list[tuple[int, int]]
) -> None:
    algorithm = algorithm_for(limit_of(kind, quota, WINDOW))
    asked: Any = None
    alone: Any = None
    now = LATELY
    for jump, cost in jumps:
        now += jump
        algorithm.outcome(asked, algorithm.wait(asked, cost or 1, now), now)
        algorithm.used(asked, now)
        algorithm.take(asked, 0, now)
        asked, outcome = algorithm.take(asked, cost, now - jump // 2)
        alone, expected = algorithm.take(alone, cost, now - jump // 2)
        assert outcome == expected


def test_a_denied_take_removes_nothing_from_a_log() -> None:
    algorithm = algorithm_for(SlidingWindowLog(2, 60))
    state, _ = algorithm.take(None, 1, 10 * SECOND)
    state, _ = algorithm.take(state, 1, 50 * SECOND)
    state, outcome = algorithm.take(state, 2, 75 * SECOND)
    assert not outcome.allowed
    assert not algorithm.take(state, 1, 60 * SECOND)[1].allowed


@examples(300)
@given(
    KIND,
    steps(4, WINDOW, verbs=("hit", "hit", "charge", "refund")),
    st.integers(1, 3 * WINDOW) | st.integers(1, WINDOW) | st.integers(1, LATELY),
)
@example("counter", [Step("hit", 0, 4), Step("hit", WINDOW, 1)], WINDOW)
@example("cells", [Step("hit", 0, 4), Step("hit", WINDOW, 1)], WINDOW // 3)
@example("gcra", [Step("charge", 0, 40)], HOUR)
def test_a_step_back_lowers_no_usage_and_keeps_debt(
    kind: str, history: list[Step], back: int
) -> None:
    algorithm = algorithm_for(limit_of(kind, 4, WINDOW))
    state: Any = None
    now = LATELY
    for verb, later, amount in history:
        now += later
        if verb == "hit":
            state, _ = algorithm.take(state, amount, now)
        elif verb == "charge":
            state = algorithm.charge(state, amount, now)
        elif state is not None:
            state = algorithm.refund(state, amount, now)
    used = algorithm.used(state, now)
    assert algorithm.used(state, now - back) >= used
    if state is not None:
        moved = algorithm.rebase(state, now - back)
        assert algorithm.used(moved, now - back) >= used
        assert used <= 4 or algorithm.used(moved, now - back + 1) >= min(used, 5)
        assert algorithm.rebase(moved, now - back) is moved


@examples(100)
@given(
    KIND,
    st.lists(
        st.tuples(
            st.sampled_from(["take", "charge", "refund"]),
            st.integers(-LATELY, LATELY) | st.integers(-WINDOW, WINDOW),
            st.integers(1, 10**9),
        ),
        max_size=20,
    ),
)
def test_no_time_however_wild_raises(kind: str, history: list[tuple[str, int, int]]) -> None:
    algorithm = algorithm_for(limit_of(kind, 3, SECOND))
    state: Any = None
    now = LATELY
    for verb, jump, amount in history:
        now += jump
        if verb == "take":
            state, _ = algorithm.take(state, amount, now)
        elif verb == "charge":
            state = algorithm.charge(state, amount, now)
        elif state is not None:
            state = algorithm.refund(state, amount, now)
        assert 0 <= algorithm.remaining(state, now) <= 3
        assert algorithm.fresh_in(state, now) >= 0
        assert algorithm.used(state, now) >= 0


@examples(200)
@given(
    st.integers(0, 4),
    st.lists(
        st.tuples(st.integers(-HOUR, HOUR) | st.integers(-SECOND, SECOND), st.integers(1, 3)),
        min_size=1,
        max_size=25,
    ),
)
def test_a_queue_goes_on_after_a_step_back(queue: int, jumps: list[tuple[int, int]]) -> None:
    algorithm = LeakyQueueAlgorithm(LeakyQueue(1, queue))
    state: Any = None
    now = LATELY
    for jump, cost in jumps:
        now += jump
        state, outcome = algorithm.take(state, cost, now)
        if not outcome.allowed:
            wait = outcome.retry_after_ns
            assert wait is not None
            assert 0 < wait <= (cost + 3) * SECOND
            assert not algorithm.take(state, cost, now + wait - 1)[1].allowed
            assert algorithm.take(state, cost, now + wait)[1].allowed
        assert outcome.delay_ns <= queue * SECOND
