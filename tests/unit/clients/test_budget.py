"""How much of the traffic may be retries."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.clients.host_state import WINDOW, RetryBudget
from headgate.units import SECOND


def taken(budget: RetryBudget, now_ns: int, asked: int = 1_000) -> int:
    return sum(budget.take_retry(now_ns) for _ in range(asked))


def test_a_share_of_the_requests_may_be_retried() -> None:
    budget = RetryBudget(0.2, 0)
    for _ in range(50):
        budget.add_request(0)
    assert taken(budget, 0) == 10


def test_some_may_be_retried_however_few_the_requests() -> None:
    assert taken(RetryBudget(0.2, 0.5), 0) == 5


def test_what_was_taken_comes_back_after_the_window() -> None:
    budget = RetryBudget(0.2, 0.5)
    assert taken(budget, 0) == 5
    assert taken(budget, (WINDOW - 1) * SECOND) == 0
    assert taken(budget, WINDOW * SECOND) == 5


def test_requests_of_long_ago_earn_nothing() -> None:
    budget = RetryBudget(1, 0)
    budget.add_request(0)
    assert taken(budget, 60 * SECOND) == 0


def test_without_a_budget_there_are_no_retries() -> None:
    budget = RetryBudget(0, 0)
    budget.add_request(0)
    assert taken(budget, 0) == 0


def test_a_clock_that_steps_back_frees_nothing() -> None:
    budget = RetryBudget(0, 0.5)
    assert taken(budget, 1_000 * SECOND) == 5
    assert taken(budget, 0) == 0


@given(
    share=st.floats(0, 1),
    per_second=st.floats(0, 3),
    steps=st.lists(st.tuples(st.integers(0, 3 * SECOND), st.booleans()), max_size=200),
)
def test_the_share_holds_over_the_whole_history(
    share: float, per_second: float, steps: list[tuple[int, bool]]
) -> None:
    budget = RetryBudget(share, per_second)
    now_ns = requests = retries = 0
    for step_ns, is_request in steps:
        now_ns += step_ns
        if is_request:
            budget.add_request(now_ns)
            requests += 1
        else:
            retries += budget.take_retry(now_ns)
        seconds = now_ns // SECOND + 2 * WINDOW
        assert retries <= share * requests + per_second * seconds
