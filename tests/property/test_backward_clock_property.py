"""A clock that steps back never mints quota and never raises."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.algorithms import algorithm_for
from tests.support.histories import LATELY, MILLISECOND, SECOND, Step, examples, steps
from tests.support.limit_kinds import KIND, admissible, limit_of

WINDOW = 11 * MILLISECOND

_JUMPS = st.lists(
    st.tuples(st.integers(-3 * WINDOW, 3 * WINDOW), st.integers(0, 6)), min_size=1, max_size=40
)


@examples(250)
@given(KIND, st.integers(1, 5), _JUMPS)
@example("log", 1, [(0, 1), (WINDOW, 0), (-1, 1)])
@example("fixed_window", 3, [(0, 3), (WINDOW, 1), (-WINDOW, 3), (WINDOW, 3), (-WINDOW, 3)])
def test_all_that_is_admitted_fits_between_the_first_time_and_the_last(
    kind: str, quota: int, jumps: list[tuple[int, int]]
) -> None:
    algorithm = algorithm_for(limit_of(kind, quota, WINDOW))
    state: Any = None
    now, admitted, times = LATELY, 0, list[int]()
    for jump, cost in jumps:
        now += jump
        state, outcome = algorithm.take(state, cost, now)
        if outcome.allowed:
            admitted += cost
        if state is not None:
            times.append(now)
    if times:
        assert admitted <= admissible(kind, quota, WINDOW, times[0], max(times))


@examples(250)
@given(KIND, st.integers(1, 5), _JUMPS)
@example("log", 2, [(WINDOW, 1), (-WINDOW, 1), (1, 1)])
def test_waits_stay_exact(kind: str, quota: int, jumps: list[tuple[int, int]]) -> None:
    algorithm = algorithm_for(limit_of(kind, quota, WINDOW))
    state: Any = None
    now = LATELY
    for jump, cost in jumps:
        now += jump
        state, outcome = algorithm.take(state, cost, now)
        wait, fresh_in = outcome.retry_after_ns, outcome.reset_after_ns
        assert (wait is None) == (cost > quota)
        if wait:
            assert not algorithm.take(deepcopy(state), cost, now + wait - 1)[1].allowed
            assert algorithm.take(deepcopy(state), cost, now + wait)[1].allowed
        if fresh_in:
            assert algorithm.used(deepcopy(state), now + fresh_in - 1) > 0
        assert algorithm.used(deepcopy(state), now + fresh_in) == 0


@examples(300)
@given(
    KIND,
    steps(4, WINDOW, verbs=("hit", "hit", "charge", "refund")),
    st.integers(1, 3 * WINDOW) | st.integers(1, WINDOW) | st.integers(1, LATELY),
)
@example("counter", [Step("hit", 0, 4), Step("hit", WINDOW, 1)], WINDOW)
@example("cells", [Step("hit", 0, 4), Step("hit", WINDOW, 1)], WINDOW // 3)
def test_an_earlier_time_is_never_more_generous(kind: str, history: list[Step], back: int) -> None:
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
    for cost in range(1, 5):
        wait = algorithm.wait(state, cost, now)
        earlier = algorithm.wait(state, cost, now - back)
        assert wait is not None
        assert earlier is not None
        assert earlier >= wait
        retried = algorithm.take(deepcopy(state), cost, now - back + earlier)
        assert retried[1].allowed


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
