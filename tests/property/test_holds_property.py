"""A wait beside reservations is exact, whatever the limit."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.algorithms import algorithm_for
from headgate.algorithms.reservations import Hold, open_holds, outcome_beside, wait_beside
from tests.support.histories import LATELY, MICROSECOND, examples
from tests.support.limit_kinds import KIND, limit_of, oracle_of

WINDOW = MICROSECOND

_HOLDS = st.lists(
    st.builds(Hold, st.integers(0, 5), st.integers(1, 2 * WINDOW)), min_size=1, max_size=4
)
_EVENTS = st.lists(st.tuples(st.integers(0, 400), st.integers(1, 6)), max_size=4)


@examples(200)
@given(KIND, st.integers(1, 5), _EVENTS, _HOLDS, st.integers(1, 6))
@example("log", 3, [(0, 2)], [Hold(1, 500)], 1)
@example("fixed_window", 3, [(0, 3)], [Hold(3, 1_500)], 1)
@example("token_bucket", 3, [], [Hold(5, 2_000)], 3)
def test_the_wait_is_the_first_nanosecond_at_which_the_cost_fits(
    kind: str,
    quota: int,
    events: list[tuple[int, int]],
    lapsing: list[Hold],
    cost: int,
) -> None:
    algorithm, oracle = algorithm_for(limit_of(kind, quota, WINDOW)), oracle_of(kind, quota, WINDOW)
    state: Any = None
    now = LATELY
    for later, units in events:
        now += later
        state = algorithm.charge(state, units, now)
        oracle.add(units, now)
    holds = {str(n): Hold(hold.amount, now + hold.expires_ns) for n, hold in enumerate(lapsing)}
    wait = wait_beside(algorithm, state, holds, cost, now)
    assert (wait is None) == (cost > quota)
    if wait is None:
        return

    def fits(time: int) -> bool:
        held = sum(hold.amount for hold in holds.values() if time < hold.expires_ns)
        return cost + held <= quota and oracle.fits(cost + held, time)

    assert fits(now + wait)
    # Every nanosecond of a window before that, then the edges where an answer can change at all.
    edges = {hold.expires_ns + edge for hold in holds.values() for edge in (-1, 0, 1)}
    assert not any(fits(time) for time in range(max(now, now + wait - 300), now + wait))
    assert not any(fits(time) for time in range(now, now + wait, 97))
    assert not any(fits(time) for time in edges if now <= time < now + wait)


@examples(100)
@given(KIND, st.integers(1, 9), st.integers(0, 9), _HOLDS)
def test_remaining_is_the_largest_cost_that_fits_beside_the_holds(
    kind: str, quota: int, units: int, lapsing: list[Hold]
) -> None:
    algorithm = algorithm_for(limit_of(kind, quota, WINDOW))
    state = algorithm.charge(None, units, LATELY) if units else None
    holds = {str(n): Hold(hold.amount, LATELY + hold.expires_ns) for n, hold in enumerate(lapsing)}
    outcome = outcome_beside(algorithm, state, holds, 0, LATELY)
    fitting = [
        cost
        for cost in range(1, quota + 1)
        if wait_beside(algorithm, state, holds, cost, LATELY) == 0
    ]
    assert outcome.remaining == max(fitting, default=0)
    end = LATELY + outcome.reset_after_ns
    assert not open_holds(holds, end)
    assert algorithm.used(deepcopy(state), end) == 0
    if outcome.reset_after_ns:
        assert open_holds(holds, end - 1) or algorithm.used(state, end - 1)
