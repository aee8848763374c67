"""When an outage begins, escalates and ends."""

import pytest

from headgate.decision import OnFailure
from headgate.runtime.outage import QUIET_NS, ActivePolicy, Outage
from headgate.units import SECOND


def test_it_begins_with_the_first_failure_only() -> None:
    outage = Outage()
    assert [outage.fail(now) for now in (5, 6, 7)] == [True, False, False]
    assert outage.began_ns == 5


def test_it_ends_with_a_success_when_nothing_has_failed_for_a_while() -> None:
    outage = Outage()
    outage.fail(0)
    outage.fail(SECOND)
    assert outage.end(SECOND + QUIET_NS - 1) is None
    ended = outage.end(SECOND + QUIET_NS)
    assert ended is not None
    assert ended.lasted_ns == 2 * SECOND
    assert outage.began_ns is None


def test_it_ends_at_once_where_that_is_certain() -> None:
    outage = Outage()
    outage.fail(0)
    assert outage.end(1, is_certain=True) is not None
    assert outage.end(2, is_certain=True) is None


def test_it_tells_how_requests_were_decided_and_the_next_one_counts_anew() -> None:
    outage = Outage()
    outage.fail(0)
    for mode in ("fail_open", "fail_open", "fallback"):
        outage.count(mode)
    ended = outage.end(9 * SECOND)
    assert ended is not None
    assert ended.decided == {"fail_open": 2, "fallback": 1}
    outage.fail(10 * SECOND)
    again = outage.end(20 * SECOND)
    assert again is not None
    assert again.decided == {}


@pytest.mark.parametrize("then", ["fail_closed", "local"])
def test_what_fails_open_escalates_after_its_time(then: str) -> None:
    on_failure = OnFailure(open_ns=10 * SECOND, then=then)  # type: ignore[arg-type]  # it is one
    outage = Outage()
    outage.fail(100 * SECOND)
    assert outage.active_policy(on_failure, 110 * SECOND - 1) == ActivePolicy("fail_open")
    assert outage.active_policy(on_failure, 110 * SECOND) == ActivePolicy(then, is_escalated=True)  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize("mode", ["fail_open", "fail_closed", "local"])
def test_what_has_no_time_stays_as_it_is(mode: str) -> None:
    outage = Outage()
    outage.fail(0)
    assert outage.active_policy(OnFailure(mode), 10**18).mode == mode  # type: ignore[arg-type]  # it is one


def test_one_success_in_between_starts_the_time_anew_though_it_is_the_same_outage() -> None:
    on_failure = OnFailure(open_ns=10 * SECOND)
    outage = Outage()
    outage.fail(0)
    outage.fail(9 * SECOND)
    assert outage.end(9 * SECOND) is None
    outage.fail(9 * SECOND)
    assert outage.active_policy(on_failure, 18 * SECOND).mode == "fail_open"
    assert outage.active_policy(on_failure, 19 * SECOND).mode == "fail_closed"
    assert outage.began_ns == 0


def test_an_escalation_is_news_once() -> None:
    outage = Outage()
    outage.fail(0)
    assert [outage.escalate(mode) for mode in ("local", "local", "fail_closed")] == [
        True,
        False,
        True,
    ]


def test_a_clock_that_goes_back_ends_nothing_early() -> None:
    outage = Outage()
    outage.fail(10 * SECOND)
    outage.fail(2 * SECOND)
    assert outage.end(10 * SECOND) is None
    assert outage.active_policy(OnFailure(open_ns=SECOND), 5 * SECOND).mode == "fail_open"


def test_a_call_that_succeeds_while_others_are_held_back_starts_the_time_anew() -> None:
    on_failure = OnFailure(open_ns=10 * SECOND)
    outage = Outage()
    outage.fail(0)
    outage.succeed()
    outage.fail(9 * SECOND)
    assert outage.active_policy(on_failure, 18 * SECOND).mode == "fail_open"
    assert outage.began_ns == 0
