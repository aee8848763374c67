"""The sliding window log does what keeping the time of every unit does."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.algorithms import algorithm_for
from headgate.limits import SlidingWindowLog
from tests.support.histories import LATELY, MINUTE, SECOND, STARTS, Step, examples, follow, steps
from tests.support.oracles import LogOracle, PlainLogOracle
from tests.support.window_limits import HUGE_WINDOWS, WINDOWS, Windowed

Case = tuple[Windowed, int, list[Step]]
APART = [Step("hit", 0, 1), Step("charge", SECOND // 2, 80)]
"""A debt whose units leave at two points of each window."""


@st.composite
def _cases(draw: st.DrawFn, *, periods: int = 2, debt: int = 3) -> Case:
    limit = draw(WINDOWS)
    history = draw(steps(limit.quota, limit.window, periods=periods, debt=debt))
    return limit, draw(STARTS), history


@st.composite
def _huge_cases(draw: st.DrawFn) -> Case:
    limit = draw(HUGE_WINDOWS)
    verbs = ("hit", "hit", "peek")
    return limit, draw(STARTS), draw(steps(limit.quota, limit.window, verbs=verbs))


@examples(120)
@given(_cases())
@example((Windowed(2, SECOND), LATELY, [Step("hit", 0, 1), Step("hit", 0, 1), Step("hit", 0, 1)]))
@example((Windowed(1, SECOND), 0, [Step("hit", 0, 1), Step("hit", SECOND - 1, 1)]))
@example((Windowed(1, SECOND), 0, [Step("hit", 0, 1), Step("hit", SECOND, 1)]))
@example((Windowed(3, MINUTE), 7, [Step("charge", 0, 9), Step("refund", MINUTE, 2)]))
def test_every_answer_is_that_of_keeping_every_unit(case: Case) -> None:
    limit, start, history = case
    algorithm = algorithm_for(SlidingWindowLog(limit.quota, limit.seconds))
    follow(algorithm, LogOracle(limit.quota, limit.window), start, history)


@examples(120)
@given(_cases(periods=40, debt=30))
@example((Windowed(3, SECOND), 5, [*APART, Step("peek", 9_700_000_000, 1)]))
@example((Windowed(3, SECOND), 5, [*APART, Step("peek", 26_200_000_000, 1)]))
@example((Windowed(3, SECOND), 5, [Step("hit", 0, 1), Step("charge", 9, 80), Step("peek", 9, 1)]))
@example((Windowed(3, SECOND), 5, [Step("charge", 0, 80), Step("peek", 20 * SECOND, 1)]))
def test_debt_is_worked_off_as_if_each_unit_were_played_through(case: Case) -> None:
    limit, start, history = case
    algorithm = algorithm_for(SlidingWindowLog(limit.quota, limit.seconds))
    follow(algorithm, LogOracle(limit.quota, limit.window), start, history)


@examples(80)
@given(_huge_cases())
def test_a_huge_limit_counts_the_events_of_the_last_window(case: Case) -> None:
    limit, start, history = case
    algorithm = algorithm_for(SlidingWindowLog(limit.quota, limit.seconds))
    follow(algorithm, PlainLogOracle(limit.quota, limit.window), start, history)


@examples(50)
@given(_cases(periods=1))
def test_no_window_wherever_it_starts_admits_more_than_the_limit(case: Case) -> None:
    limit, now, history = case
    algorithm = algorithm_for(SlidingWindowLog(limit.quota, limit.seconds))
    state, admitted = None, []
    for _, later, cost in history:
        now += later
        state, outcome = algorithm.take(state, cost, now)
        if outcome.allowed:
            admitted.append((now, cost))
    for begin, _ in admitted:
        window = range(begin, begin + limit.window)
        assert sum(cost for time, cost in admitted if time in window) <= limit.quota
