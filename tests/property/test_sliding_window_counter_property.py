"""The sliding window counter does what a count per cell and the formula in fractions do."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.algorithms import algorithm_for
from headgate.limits import SlidingWindowCounter
from tests.support.histories import (
    LATELY,
    MICROSECOND,
    MINUTE,
    SECOND,
    STARTS,
    Step,
    examples,
    follow,
    steps,
)
from tests.support.oracles import CounterOracle
from tests.support.window_limits import HUGE_WINDOWS, WINDOWS, Windowed

Case = tuple[Windowed, int, int, list[Step]]
"""The limit, its subwindows, the start and what happens."""


@st.composite
def _cases(
    draw: st.DrawFn,
    limits: st.SearchStrategy[Windowed] = WINDOWS,
    *,
    periods: int = 3,
    debt: int = 3,
) -> Case:
    limit = draw(limits)
    history = draw(steps(limit.quota, limit.window, periods=periods, debt=debt))
    return limit, draw(st.sampled_from([1, 1, 2, 3, 7])), draw(STARTS), history


def _follow(case: Case) -> None:
    limit, subwindows, start, history = case
    algorithm = algorithm_for(SlidingWindowCounter(limit.quota, limit.seconds, subwindows))
    oracle = CounterOracle(limit.quota, limit.window, subwindows)
    follow(algorithm, oracle, start, history)


@examples(150)
@given(_cases())
@example((Windowed(100, MINUTE), 1, 0, [Step("hit", 0, 80), Step("hit", 78 * SECOND, 20)]))
@example((Windowed(3, MICROSECOND), 7, LATELY, [Step("hit", 0, 3), Step("hit", 1_100, 1)]))
@example((Windowed(3, SECOND), 3, 0, [Step("charge", 0, 8), Step("refund", SECOND, 3)]))
def test_every_answer_is_that_of_counting_cells(case: Case) -> None:
    _follow(case)


@examples(60)
@given(_cases(periods=30, debt=20))
@example((Windowed(3, SECOND), 1, 0, [Step("charge", 0, 80), Step("peek", 20 * SECOND, 1)]))
@example((Windowed(3, SECOND), 3, 0, [Step("hit", 0, 2), Step("charge", 10**8, 80)]))
@example((Windowed(3, SECOND), 3, 0, [Step("hit", 0, 2), Step("charge", 5 * 10**8, 80)]))
@example((Windowed(3, SECOND), 2, 0, [Step("charge", 0, 6), Step("peek", SECOND, 3)]))
def test_debt_is_worked_off_as_if_each_cell_were_played_through(case: Case) -> None:
    _follow(case)


@examples(80)
@given(_cases(HUGE_WINDOWS))
def test_huge_limits_lose_nothing(case: Case) -> None:
    _follow(case)
