"""What a load test says of recorded requests."""

from __future__ import annotations

from itertools import count

import pytest

from headgate import RateLimiter
from headgate.limits import parse_limits
from headgate.loadtest.judgement import Clocks, judge
from headgate.loadtest.limit_under_test import LimitUnderTest
from headgate.loadtest.record import Record, Result
from headgate.testing import ManualClock
from headgate.units import MILLISECOND, SECOND

EPOCH = 1_763_320_000 * SECOND
"""By how much the recorded times are earlier than the server's."""


def under_test(text: str, **more: object) -> LimitUnderTest:
    return LimitUnderTest(parse_limits(text), **more)  # type: ignore[arg-type]  # options of an LimitUnderTest


def recorded(
    limit: str,
    *,
    rate: int,
    seconds: float = 2.0,
    callers: int = 1,
    latency_ns: int = 2 * MILLISECOND,
    used: int = 0,
) -> Record:
    """What is recorded of *rate* requests a second to a server that limits them by *limit*, after
    *used* units were used. It decides in the middle of *latency_ns*."""
    clock = ManualClock()
    clock.advance_ns(EPOCH)
    limiter = RateLimiter(limit, clock=clock)
    if used:
        limiter.hit("0", used)
    record = Record()
    for place in range(round(rate * seconds)):
        sent = place * SECOND // rate
        clock.set(0)
        clock.advance_ns(EPOCH + sent + latency_ns // 2)
        caller = place % callers
        result = Result.ALLOWED if limiter.hit(str(caller)) else Result.DENIED
        record.add(caller, (sent, sent, sent + latency_ns), result)
    return record


CLOCKS = Clocks(EPOCH)

KINDS = (
    "100/s",
    "100/s burst 20",
    "100/s gcra",
    "100/s leaky_bucket",
    "100/s fixed_window",
    "100/s sliding_window_log",
    "100/s sliding_window_counter",
    "100/s sliding_window_counter subwindows 4",
    "30/minute",
    "10/s peak 50/s for 1s",
)


@pytest.mark.parametrize("limit", KINDS)
def test_a_limiter_that_does_what_it_says_holds(limit: str) -> None:
    found = judge(recorded(limit, rate=300), under_test(limit), CLOCKS)
    assert (found.holds, found.is_short) == (True, False), found.line
    assert found.line.startswith("holds: ")


@pytest.mark.parametrize("limit", KINDS)
def test_a_limiter_that_allows_half_as_much_again_does_not(limit: str) -> None:
    told = under_test(limit)
    more = "; ".join(
        str(one) for one in parse_limits(limit.replace("100/", "150/").replace("30/", "45/"))
    ).replace("burst 20", "burst 30")
    if "peak" in limit:
        more = "15/s peak 75/s for 1s"
    found = judge(recorded(more, rate=450), told, CLOCKS)
    assert found.holds is False, found.line
    assert found.line.startswith("does NOT hold: ")


def test_the_line_tells_how_many_and_how_many_could_be() -> None:
    found = judge(recorded("150/s", rate=400, seconds=1.0), under_test("100/s"), CLOCKS)
    assert found.line == "does NOT hold: 299 allowed in 1.00 s; the limit allows at most 199"


def test_callers_have_a_limit_each() -> None:
    record = recorded("50/s", rate=600, callers=3)
    found = judge(record, under_test("50/s"), CLOCKS)
    assert found.holds, found.line
    assert "for each of 3 callers" in found.line


def test_the_caller_who_got_too_much_is_named() -> None:
    record = recorded("10/s", rate=90, callers=3)
    for place in range(40):
        record.add(1, (place, place, place + 1), Result.ALLOWED)
    found = judge(record, under_test("10/s"), CLOCKS)
    assert found.holds is False
    assert "to caller 2 " in found.line


def test_admitting_much_less_is_told() -> None:
    found = judge(recorded("70/s", rate=400, seconds=5.0), under_test("100/s"), CLOCKS)
    assert (found.holds, found.is_short) == (True, True)
    assert found.line.startswith("holds, but allows less than configured: 419 of about 599, ")
    assert "in use at the start?" in found.line


def test_a_counter_that_was_in_use_is_allowed_for() -> None:
    record = recorded("100/minute", rate=100, used=60)
    assert judge(record, under_test("100/minute"), CLOCKS).is_short
    record.used_before[0] = record.used_at_most[0] = 60
    assert not judge(record, under_test("100/minute"), CLOCKS).is_short


def test_nothing_denied_says_nothing() -> None:
    found = judge(recorded("100/s", rate=50), under_test("100/s"), CLOCKS)
    assert found.holds is None
    assert found.line.startswith("unknown: nothing was denied: 100 requests are not more")


def test_nothing_answered_says_nothing() -> None:
    assert judge(Record(), under_test("1/s"), CLOCKS).line == "unknown: there was no response"


def test_a_failure_leaves_room_for_doubt() -> None:
    record = recorded("100/s", rate=300)
    for _ in range(2):
        record.add(0, (0, 0, 1), Result.FAILED)
        record.failures["status 500"] += 1
    found = judge(record, under_test("100/s"), CLOCKS)
    assert found.holds is None
    assert found.line == "unknown: 2 of 602 requests failed (2 x status 500)"


def test_a_failure_leaves_no_doubt_where_it_could_have_been_allowed_as_well() -> None:
    record = recorded("90/s", rate=300)
    for place in range(10):
        record.add(0, (place, place, place + 1), Result.FAILED)
    record.failures["connection reset by peer"] += 10
    found = judge(record, under_test("100/s"), CLOCKS)
    assert (found.holds, found.is_short) == (True, False), found.line
    assert found.line.endswith("; 10 of 610 requests failed")


def test_what_was_not_tested_is_in_the_line() -> None:
    record = recorded("100/s", rate=300)
    record.unsent = 1_200
    found = judge(record, under_test("100/s"), CLOCKS)
    assert found.holds
    assert found.line.endswith("; 1,200 could not be sent in time")
    short = judge(record, under_test("200/s"), CLOCKS)
    assert short.is_short
    assert short.line.endswith("; 1,200 could not be sent in time")


def test_a_status_that_may_mean_allowed_is_asked_about() -> None:
    record = Record()
    for place in range(20):
        record.add(0, (place, place, place), Result.FAILED)
    record.failures.update({"status 502": 12, "status 404": 8})
    line = judge(record, under_test("5/s"), CLOCKS).line
    assert line.endswith("8 x status 404); if 404 means allowed here, give --ok 404")


def test_refusing_everything_proves_nothing() -> None:
    record = Record()
    for place in range(100):
        record.add(0, (place, place, place), Result.DENIED)
    found = judge(record, under_test("20/s"), CLOCKS)
    told = "all of 100 requests were denied, where about 20 should have been allowed"
    assert (found.holds, found.line) == (None, f"unknown: {told}")
    record.used_before[0] = record.used_at_most[0] = 20
    assert judge(record, under_test("20/s"), CLOCKS).line.startswith("holds: 0 allowed")


def test_too_many_are_too_many_whatever_failed() -> None:
    record = recorded("200/s", rate=500)
    record.add(0, (0, 0, 1), Result.FAILED)
    assert judge(record, under_test("100/s"), CLOCKS).holds is False


def test_denials_by_others_say_nothing_of_this_limit() -> None:
    record = Record()
    for place in range(10):
        record.add(0, (place, place, place), Result.ELSEWHERE if place % 2 else Result.ALLOWED)
    record.elsewhere["the rule other"] += 5
    found = judge(record, under_test("100/s"), CLOCKS)
    assert found.holds is None
    assert "all 5 denials were by something else (the rule other)" in found.line


def test_what_others_denied_is_not_due() -> None:
    record = Record()
    for place in range(400):
        result = (
            Result.DENIED if place == 399 else Result.ELSEWHERE if place % 20 else Result.ALLOWED
        )
        moment = place * 2 * MILLISECOND
        record.add(0, (moment, moment, moment), result)
    found = judge(record, under_test("100/s"), CLOCKS)
    assert (found.holds, found.is_short, found.due) == (True, False, 21)


def test_what_an_accuracy_allows_beyond_the_limit_is_allowed() -> None:
    record = recorded("100/s burst 110", rate=500)
    assert judge(record, under_test("100/s"), CLOCKS).holds is False
    assert judge(record, under_test("100/s", extra=(10,)), CLOCKS).holds


def test_a_cost_counts() -> None:
    record = recorded("50/s", rate=300)
    assert judge(record, under_test("100/s", cost=2), CLOCKS).holds
    assert judge(record, under_test("100/s", cost=3), CLOCKS).holds is False


def test_windows_of_a_clock_that_is_a_little_off_are_taken_for_what_they_are() -> None:
    limit, record = under_test("10/s fixed_window"), Record()
    around = [995 * MILLISECOND] * 10 + [1_005 * MILLISECOND] * 10 + [1_100 * MILLISECOND]
    for place, moment in enumerate(around):
        result = Result.ALLOWED if place < 20 else Result.DENIED
        record.add(0, (moment, moment, moment), result)
    assert judge(record, limit, Clocks(EPOCH, error_ns=0)).holds
    assert judge(record, limit, Clocks(EPOCH + 40 * MILLISECOND)).holds
    found = judge(record, limit, Clocks(EPOCH + 40 * MILLISECOND, error_ns=10 * MILLISECOND))
    assert found.holds is False
    assert found.line.endswith("at most 10 (if clocks differ by no more than 0.01 s)")


def test_a_server_whose_clock_runs_a_little_faster_is_not_blamed() -> None:
    clock = ManualClock()
    limiter = RateLimiter("1000/s", clock=clock)
    record = Record()
    for place in count():
        sent = place * SECOND // 2_000
        if sent > 5 * SECOND:
            break
        clock.set(0)
        clock.advance_ns(sent + sent * 400 // 1_000_000)
        result = Result.ALLOWED if limiter.hit("a") else Result.DENIED
        record.add(0, (sent, sent, sent), result)
    assert judge(record, under_test("1000/s"), Clocks(0)).holds
    assert judge(record, under_test("1000/s"), Clocks(0, drift_ppm=0)).holds is False
