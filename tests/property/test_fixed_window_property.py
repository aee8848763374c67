"""The fixed window does what counting the events of each window does."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.algorithms import algorithm_for
from headgate.limits import FixedWindow
from tests.support.histories import LATELY, MINUTE, SECOND, STARTS, Step, examples, follow, steps
from tests.support.oracles import FixedWindowOracle
from tests.support.window_limits import HUGE_WINDOWS, WINDOWS, Windowed


@st.composite
def _cases(draw: st.DrawFn) -> tuple[Windowed, int, list[Step]]:
    limit = draw(WINDOWS | HUGE_WINDOWS)
    return limit, draw(STARTS), draw(steps(limit.quota, limit.window, periods=6, debt=8))


@examples(150)
@given(_cases())
@example((Windowed(3, SECOND), 999_999_999, [Step("hit", 0, 3), Step("hit", 1, 3)]))
@example((Windowed(3, SECOND), 0, [Step("charge", 0, 7), Step("hit", 2 * SECOND, 2)]))
@example((Windowed(3, SECOND), 0, [Step("charge", 0, 9), Step("hit", 3 * SECOND - 1, 1)]))
@example((Windowed(3, MINUTE), LATELY, [Step("charge", 0, 7), Step("refund", MINUTE, 3)]))
def test_every_answer_is_that_of_counting_events(case: tuple[Windowed, int, list[Step]]) -> None:
    limit, start, history = case
    algorithm = algorithm_for(FixedWindow(limit.quota, limit.seconds))
    follow(algorithm, FixedWindowOracle(limit.quota, limit.window), start, history)


@examples(50)
@given(_cases())
def test_no_window_since_the_epoch_admits_more_than_the_limit(
    case: tuple[Windowed, int, list[Step]],
) -> None:
    limit, now, history = case
    algorithm = algorithm_for(FixedWindow(limit.quota, limit.seconds))
    state, admitted = None, dict[int, int]()
    for _, later, cost in history:
        now += later
        state, outcome = algorithm.take(state, cost, now)
        if outcome.allowed:
            admitted[now // limit.window] = admitted.get(now // limit.window, 0) + cost
    assert all(count <= limit.quota for count in admitted.values())
