"""A changed limit goes on with what was used: nothing is forgotten, nothing is invented."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.algorithms import ConcurrencyAlgorithm, algorithm_for, carry
from headgate.limits import Concurrency, TokenBucket
from tests.support.histories import LATELY, MINUTE, SECOND, Step, examples, steps
from tests.support.limit_kinds import KIND, limit_of

Numbers = tuple[str, int, int]
"""A kind, a quota and a window."""
_NUMBERS = st.tuples(KIND, st.integers(1, 9), st.sampled_from([SECOND, MINUTE, 7 * SECOND]))


def _state_after(algorithm: Any, history: list[Step], now: int) -> tuple[Any, int]:
    state = None
    for verb, later, amount in history:
        now += later
        if verb == "hit":
            state, _ = algorithm.take(state, amount, now)
        else:
            state = algorithm.charge(state, amount, now)
    return state, now


@examples(400)
@given(_NUMBERS, _NUMBERS, steps(5, SECOND, verbs=("hit", "hit", "charge")))
@example(("counter", 9, SECOND), ("log", 2, SECOND), [Step("hit", 0, 5)])
@example(("log", 9, SECOND), ("log", 2, SECOND), [Step("hit", 0, 5)])
@example(("counter", 9, SECOND), ("counter", 2, SECOND), [Step("hit", 0, 5)])
@example(
    ("cells", 3, 7 * SECOND),
    ("cells", 1, 7 * SECOND),
    [Step("hit", 0, 3), Step("hit", 3 * SECOND, 0)],
)
@example(("token_bucket", 9, SECOND), ("fixed_window", 2, SECOND), [Step("charge", 0, 50)])
def test_what_was_used_is_carried_from_any_limit_to_any_other(
    before: Numbers, after: Numbers, history: list[Step]
) -> None:
    old, new = algorithm_for(limit_of(*before)), algorithm_for(limit_of(*after))
    state, now = _state_after(old, history, LATELY)
    used = old.used(state, now)
    carried = carry(old, state, new, now) if state is not None else None
    assert new.used(carried, now) == used
    fresh_in = new.fresh_in(carried, now)
    assert new.remaining(carried, now + fresh_in) == new.quota


@examples(100)
@given(st.integers(1, 9), st.integers(1, 9), steps(5, SECOND, verbs=("hit", "hit", "charge")))
def test_a_bucket_whose_rate_stays_carries_to_the_fraction(
    before: int, after: int, history: list[Step]
) -> None:
    old, new = algorithm_for(TokenBucket(before, 3)), algorithm_for(TokenBucket(after, 3))
    state, now = _state_after(old, history, LATELY)
    used = old.used(state, now)
    carried = carry(old, state, new, now) if state is not None else None
    assert new.used(carried, now) == used
    assert new.fresh_in(carried, now) == old.fresh_in(state, now)


@examples(100)
@given(_NUMBERS, steps(5, SECOND, verbs=("hit", "hit", "charge")))
def test_an_equal_limit_carries_all_there_is(numbers: Numbers, history: list[Step]) -> None:
    old, new = algorithm_for(limit_of(*numbers)), algorithm_for(limit_of(*numbers))
    state, now = _state_after(old, history, LATELY)
    used = old.used(state, now)
    carried = carry(old, state, new, now) if state is not None else None
    assert new.used(carried, now) == used


@examples(100)
@given(_NUMBERS, steps(5, SECOND, verbs=("hit", "charge")))
def test_slots_and_consumption_do_not_carry_over_to_each_other(
    numbers: Numbers, history: list[Step]
) -> None:
    counts, slots = algorithm_for(limit_of(*numbers)), ConcurrencyAlgorithm(Concurrency(2, 1))
    state, now = _state_after(counts, history, LATELY)
    if state is not None:
        assert carry(counts, state, slots, now) is None
    leases: Any = slots.enter(None, "a", now)
    assert carry(slots, leases, counts, now) is None


@examples(50)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 2 * SECOND))
def test_leases_outlive_a_change_of_their_limit(before: int, after: int, later: int) -> None:
    old, new = (ConcurrencyAlgorithm(Concurrency(limit, 1)) for limit in (before, after))
    state = None
    for lease in range(before):
        state = old.enter(state, str(lease), LATELY)
    assert state is not None
    carried = carry(old, state, new, LATELY)
    now = LATELY + later
    assert new.used(carried, now) == (before if later < SECOND else 0)
    assert new.remaining(carried, now) == max(0, after - new.used(carried, now))


def test_debt_under_a_lowered_log_is_worked_off_at_the_new_pace() -> None:
    old, new = algorithm_for(limit_of("log", 8, SECOND)), algorithm_for(limit_of("log", 3, SECOND))
    state = carry(old, old.charge(None, 8, LATELY), new, LATELY)
    state = new.charge(state, 80, LATELY)
    assert new.fresh_in(state, LATELY) >= 80 // 3 * SECOND


@examples(100)
@given(_NUMBERS, _NUMBERS)
@example(("token_bucket", 5, MINUTE), ("token_bucket", 3, MINUTE))
@example(("fixed_window", 5, MINUTE), ("fixed_window", 3, MINUTE))
def test_going_back_and_forth_between_two_limits_mints_nothing(
    one: Numbers, other: Numbers
) -> None:
    algorithms = [algorithm_for(limit_of(*one)), algorithm_for(limit_of(*other))]
    state, admitted = None, 0
    for turn in range(60):
        mine, its = algorithms[turn % 2], algorithms[turn % 2 - 1]
        if state is not None:
            state = carry(its, state, mine, LATELY)
        state, outcome = mine.take(state, 1, LATELY)
        admitted += outcome.allowed
    assert admitted <= max(algorithm.quota for algorithm in algorithms)
