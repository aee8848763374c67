"""The waits of hosts, paths and policies, and the retry budget."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.clients import Backoff, HostStates, RetryPolicy
from headgate.clients.host_state import (
    MAX_CLOSURES,
    MAX_PATHS,
    WINDOW,
    Closure,
    HostState,
    RetryBudget,
)
from headgate.clients.signals import HOST, PATH, Signal
from headgate.units import SECOND

SERVED = Signal(is_denied=False)


def denied(seconds: int | None, scope: str = PATH, *policies: str) -> Signal:
    wait_ns = None if seconds is None else seconds * SECOND
    return Signal(is_denied=True, waits={scope: wait_ns}, policies=frozenset(policies))


def served(*policies: str, **waits: int) -> Signal:
    times = {policy: seconds * SECOND for policy, seconds in waits.items()}
    return Signal(is_denied=False, waits=times, policies=frozenset(policies))


def closed_for(host: HostState, path: str = "/a") -> float:
    """Seconds from 0 that calls to *path* wait."""
    return host.closure(path).until_ns / SECOND


def test_it_is_closed_for_as_long_as_the_server_says() -> None:
    host = HostState(RetryPolicy())
    host.record("/a", denied(5), SECOND, 0.0)
    assert host.closure("/a") == Closure(6 * SECOND, 5 * SECOND, 1)


def test_a_shorter_wait_does_not_open_it_earlier() -> None:
    host = HostState(RetryPolicy())
    host.record("/a", denied(60), 0, 0.0)
    host.record("/a", denied(1), SECOND, 0.0)
    host.record("/a", SERVED, SECOND, 0.0)
    assert host.closure("/a") == Closure(60 * SECOND, 60 * SECOND, 1)


def test_calls_that_are_denied_together_are_one_denial() -> None:
    host = HostState(RetryPolicy())
    for n in range(40):
        host.record("/a", denied(1), n, 0.0)
    assert host.closure("/a").denials == 1
    host.record("/a", denied(1), 2 * SECOND, 0.0)
    assert host.closure("/a").denials == 2


def test_denials_are_forgotten_when_it_serves_again() -> None:
    host = HostState(RetryPolicy())
    host.record("/a", denied(1), 0, 0.0)
    host.record("/a", SERVED, SECOND, 0.0)
    assert host.closure("/a") == Closure()


def test_a_denial_without_a_time_closes_for_a_part_of_the_backoff_that_grows() -> None:
    host = HostState(RetryPolicy(backoff=Backoff(first=1)))
    host.record("/a", denied(None), 0, 0.5)
    assert closed_for(host) == 0.5
    host.record("/a", denied(0), SECOND, 0.5)
    assert closed_for(host) == 2


def test_a_denial_without_a_scope_closes_nothing() -> None:
    host = HostState(RetryPolicy())
    host.record("/a", Signal(is_denied=True), 0, 1.0)
    assert host.closure("/a") == Closure()


@pytest.mark.parametrize(("look_ahead", "seconds"), [(True, 5), (False, 0)])
def test_a_success_with_nothing_left_closes_if_the_policy_looks_ahead(
    look_ahead: bool, seconds: int
) -> None:
    host = HostState(RetryPolicy(look_ahead=look_ahead))
    host.record("/a", served("daily", daily=5), 0, 0.0)
    assert closed_for(host) == seconds


def test_an_absurd_time_is_bounded() -> None:
    host = HostState(RetryPolicy(max_server_wait=3_600))
    host.record("/a", denied(10**30), 0, 0.0)
    assert closed_for(host) == 3_600


def test_a_wait_without_a_policy_is_for_its_path_alone() -> None:
    host = HostState(RetryPolicy())
    host.record("/a", denied(5), 0, 0.0)
    assert (closed_for(host, "/a"), closed_for(host, "/b")) == (5, 0)


@pytest.mark.parametrize("scope", [PATH, "daily"])
def test_a_wait_is_for_the_whole_host_if_the_retry_policy_says_so(scope: str) -> None:
    host = HostState(RetryPolicy(scope="host"))
    host.record("/a", denied(5, scope), 0, 0.0)
    assert (closed_for(host, "/a"), closed_for(host, "/b")) == (5, 5)


def test_a_wait_of_the_host_is_for_all_paths() -> None:
    host = HostState(RetryPolicy())
    host.record("/a", denied(5, HOST), 0, 0.0)
    assert closed_for(host, "/b") == 5


def test_a_wait_with_a_policy_is_for_all_paths_known_to_be_under_it() -> None:
    host = HostState(RetryPolicy())
    host.record("/b", served("daily", "burst"), 0, 0.0)
    host.record("/c", served("search"), 0, 0.0)
    host.record("/a", denied(5, "daily", "daily"), 0, 0.0)
    waits = {path: closed_for(host, path) for path in ("/a", "/b", "/c", "/new")}
    assert waits == {"/a": 5, "/b": 5, "/c": 0, "/new": 0}


def test_each_policy_has_a_wait_of_its_own() -> None:
    host = HostState(RetryPolicy())
    host.record("/b", served("burst"), 0, 0.0)
    host.record("/a", served("burst", "daily", burst=1, daily=60), 0, 0.0)
    assert (closed_for(host, "/a"), closed_for(host, "/b")) == (60, 1)


def test_a_policy_that_a_path_is_no_longer_under_does_not_close_it() -> None:
    host = HostState(RetryPolicy())
    host.record("/a", denied(60, "daily", "daily"), 0, 0.0)
    host.record("/a", served("monthly"), 0, 0.0)
    assert closed_for(host, "/a") == 0


def test_the_paths_and_closures_of_a_host_are_bounded() -> None:
    host = HostState(RetryPolicy())
    host.record("/kept", denied(10**6), 0, 0.0)
    for n in range(MAX_PATHS + MAX_CLOSURES):
        host.record(f"/{n}", denied(1, PATH, f"policy{n}"), 0, 0.0)
    assert closed_for(host, "/kept") == 86_400
    assert closed_for(host, f"/{MAX_PATHS + MAX_CLOSURES - 1}") == 1
    assert closed_for(host, "/0") == 0


def test_long_paths_that_begin_alike_wait_together() -> None:
    host = HostState(RetryPolicy())
    host.record("/" + "a" * 300, denied(5), 0, 0.0)
    assert closed_for(host, "/" + "a" * 400) == 5


def by_clock(seconds: int) -> Signal:
    return Signal(is_denied=False, waits={PATH: seconds * SECOND}, is_by_clock=True)


@pytest.mark.parametrize(
    ("denied_at", "is_trusted"), [(0.5, True), (1.0, False), (1.5, False), (2.5, True)]
)
def test_the_clock_is_not_trusted_after_a_denial_that_follows_a_wait_by_it(
    denied_at: float, is_trusted: bool
) -> None:
    host = HostState(RetryPolicy())
    host.record("/a", by_clock(1), 0, 0.0)
    host.record("/a", denied(1), round(denied_at * SECOND), 0.0)
    assert host.trusts_clock is is_trusted


def test_the_number_of_hosts_is_bounded_and_the_closed_are_forgotten_last() -> None:
    hosts = HostStates(RetryPolicy(max_hosts=3))
    closed = hosts.get("closed", 0)
    closed.record("/a", denied(60), 0, 0.0)
    for n in range(100):
        hosts.get(f"host{n}", 0)
        assert len(hosts) <= 3
    assert hosts.get("closed", 0) is closed
    assert hosts.get("host99", 0) is hosts.get("host99", 0)


def test_if_all_are_closed_the_one_that_opens_first_is_forgotten() -> None:
    hosts = HostStates(RetryPolicy(max_hosts=2))
    for name, seconds in (("long", 60), ("short", 5)):
        hosts.get(name, 0).record("/a", denied(seconds), 0, 0.0)
    hosts.get("new", 0)
    assert closed_for(hosts.get("long", 0)) == 60
    assert closed_for(hosts.get("short", 0)) == 0


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
