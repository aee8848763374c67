"""The headers of whole answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.decision import Decision, decide_without_store
from headgate.limits import TokenBucket, parse_limit
from headgate.responses import (
    Answer,
    Load,
    ResponseOptions,
    allowed_lines,
    expose_headers,
    headers_for,
)
from headgate.units import SECOND
from tests.support.decisions import NOW, answer, decided, outage, refused, told

EVERYTHING = ResponseOptions(draft03=True, bucket=True)


def headers(it: Answer, options: ResponseOptions | None = None) -> dict[str, str]:
    lines = headers_for(it, now_ns=NOW, options=options or ResponseOptions())
    assert len(dict(lines)) == len(lines)
    return dict(lines)


def test_an_allowed_request_is_told_what_is_left() -> None:
    assert headers(answer(told(decided()))) == {
        "X-RateLimit-Limit": "100",
        "X-RateLimit-Remaining": "42",
        "X-RateLimit-Reset": "1800000013",
        "RateLimit-Policy": '"per-user";q=100;w=60',
        "RateLimit": '"per-user";r=42;t=12',
    }


def test_a_refused_request_is_told_when_to_come_back() -> None:
    assert headers(answer(told(refused()))) == {
        "X-RateLimit-Limit": "100",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": "1800000023",
        "RateLimit-Policy": '"per-user";q=100;w=60',
        "RateLimit": '"per-user";r=0;t=23',
        "Retry-After": "23",
    }


def test_of_several_rules_the_tightest_is_in_x_and_all_are_in_the_pair() -> None:
    day = told(decided("1000/day fixed_window", left=7), name="daily")
    found = headers(answer(told(decided()), day))
    assert found["X-RateLimit-Limit"] == "1000"
    assert found["X-RateLimit-Remaining"] == "7"
    assert found["RateLimit-Policy"] == '"per-user";q=100;w=60, "daily";q=1000;w=86400'
    assert found["RateLimit"] == '"per-user";r=42;t=12, "daily";r=7;t=12'


def test_a_stack_is_told_limit_by_limit() -> None:
    found = headers(answer(told(decided(), decided("5/s fixed_window", left=4, reset_ms=300))))
    assert found["RateLimit"] == '"per-user";r=42;t=12, "per-user/2";r=4;t=1'
    assert (found["X-RateLimit-Limit"], found["X-RateLimit-Remaining"]) == ("5", "4")


def test_a_counter_as_new_resets_now_and_never_in_the_past() -> None:
    found = headers(answer(told(decided(left=100, reset_ms=0))))
    assert found["X-RateLimit-Reset"] == "1800000001"
    assert found["RateLimit"] == '"per-user";r=100'


def test_no_rules_no_headers() -> None:
    assert headers(Answer(allowed=True), EVERYTHING) == {}


@pytest.mark.parametrize("mode", ["brief", "off", "redacted"])
def test_rules_that_are_not_to_be_told_leave_no_trace_on_what_is_allowed(mode: str) -> None:
    hidden = told(decided(left=1), name="hidden", headers=mode)  # type: ignore[arg-type]
    assert headers(answer(hidden), EVERYTHING) == {}
    assert headers(answer(hidden, told(decided()))) == headers(answer(told(decided())))


def test_a_refusal_by_a_redacted_rule_has_no_headers_whatever_else_applied() -> None:
    hidden = told(refused(), name="hidden", headers="redacted")
    assert headers(answer(hidden), EVERYTHING) == {}
    assert headers(answer(hidden, told(decided()), told(refused(retry_ms=10))), EVERYTHING) == {}


def test_a_redacted_rule_with_the_shorter_wait_does_not_silence_the_other() -> None:
    hidden = told(refused(retry_ms=10), name="hidden", headers="redacted")
    assert headers(answer(hidden, told(refused()))) == headers(answer(told(refused())))


def test_a_refusal_never_shows_a_limit_with_room_as_the_tightest() -> None:
    found = headers(answer(told(refused(), headers="off"), told(decided(), name="b")), EVERYTHING)
    assert found == {
        "RateLimit-Policy": '"b";q=100;w=60',
        "RateLimit": '"b";r=42;t=12',
        "Retry-After": "23",
    }


def test_when_waiting_cannot_help_there_is_no_retry_after() -> None:
    found = headers(answer(told(decided(left=42, retry_ms=None))))
    assert "Retry-After" not in found
    assert found["X-RateLimit-Remaining"] == "42"


@pytest.mark.parametrize("retry_ms", [1, 999, 1000])
def test_retry_after_is_never_0(retry_ms: int) -> None:
    assert headers(answer(told(refused(retry_ms=retry_ms))))["Retry-After"] == "1"


def test_retry_after_is_spread_upwards_when_asked() -> None:
    it = answer(told(refused(retry_ms=100_000)), jitter=0.5)
    assert headers(it)["Retry-After"] == "100"
    assert headers(it, ResponseOptions(jitter=0.2))["Retry-After"] == "110"
    assert headers(it, ResponseOptions(jitter=0.2, jitter_most=4))["Retry-After"] == "102"


def test_figures_that_nobody_counted_are_not_told() -> None:
    decision = decide_without_store("fail_open", [("k", TokenBucket(100, 1))])
    assert headers(answer(told(decision)), EVERYTHING) == {
        "RateLimit-Policy": '"per-user";q=100;w=100'
    }


def test_an_outage_has_a_policy_and_a_short_wait_spread_over_some_seconds() -> None:
    found = headers(answer(told(outage())))
    assert found == {"RateLimit-Policy": '"per-user";q=100;w=60', "Retry-After": "1"}
    assert headers(answer(told(outage()), jitter=0.5))["Retry-After"] == "3"
    assert headers(answer(told(outage()), jitter=1.0))["Retry-After"] == "5"


def test_each_family_can_be_switched() -> None:
    it = answer(told(decided()))
    assert set(headers(it, ResponseOptions(ratelimit=False))) == {
        "X-RateLimit-Limit",
        "X-RateLimit-Remaining",
        "X-RateLimit-Reset",
    }
    assert set(headers(it, ResponseOptions(x_ratelimit=False))) == {"RateLimit-Policy", "RateLimit"}
    assert headers(it, ResponseOptions(x_ratelimit=False, ratelimit=False)) == {}


def test_draft_03_has_the_reset_in_seconds_from_now() -> None:
    options = ResponseOptions(x_ratelimit=False, ratelimit=False, draft03=True)
    assert headers(answer(told(decided())), options) == {
        "RateLimit-Limit": "100",
        "RateLimit-Remaining": "42",
        "RateLimit-Reset": "12",
    }


def test_a_bucket_is_the_same_for_the_same_counter_and_tells_nothing() -> None:
    def bucket(key: str, name: str = "per-user", secret: bytes = b"") -> str:
        options = ResponseOptions(bucket=True, bucket_secret=secret)
        return headers(answer(told(decided(key=key), name=name)), options)["X-RateLimit-Bucket"]

    assert bucket("a") == bucket("a")
    assert len({bucket("a"), bucket("b"), bucket("a", "other"), bucket("a", secret=b"s")}) == 4
    assert bucket("user:42").isalnum()
    assert len(bucket("\N{SNOWMAN}\ud800")) == 24


def test_browsers_are_told_every_name_that_may_be_sent() -> None:
    assert expose_headers() == [
        "X-RateLimit-Limit",
        "X-RateLimit-Remaining",
        "X-RateLimit-Reset",
        "RateLimit-Policy",
        "RateLimit",
        "Headgate-Queue",
        "Headgate-Delay",
        "Retry-After",
        "Idempotency-Replayed",
    ]
    it = replace(answer(told(refused())), loads=(Load("turns"),), delayed_ns=1)
    sent = {*headers(it, EVERYTHING), "Idempotency-Replayed"}
    assert sent == set(expose_headers(EVERYTHING))
    silent = ResponseOptions(x_ratelimit=False, ratelimit=False, pressure=False)
    assert expose_headers(silent) == ["Retry-After", "Idempotency-Replayed"]


def test_limits_without_a_counter_are_stated_by_the_second() -> None:
    assert headers(answer(told(refused("0/minute", retry_ms=None, reset_ms=0)))) == {
        "X-RateLimit-Limit": "0",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": "1800000001",
        "RateLimit-Policy": '"per-user";q=0;w=1',
        "RateLimit": '"per-user";r=0',
    }
    for options in (ResponseOptions(), EVERYTHING):
        for limit in ("0/minute", "unlimited"):
            left = parse_limit(limit).quota
            found = headers(answer(told(decided(limit, left=left, reset_ms=0))), options)
            assert found["RateLimit-Policy"] == f'"per-user";q={left};w=1'
            assert found["RateLimit"] == f'"per-user";r={left}'


def test_a_free_retry_is_marked() -> None:
    retry = replace(answer(told(decided())), is_replay=True)
    assert headers(retry)["Idempotency-Replayed"] == "true"
    assert headers(Answer(allowed=True, is_replay=True)) == {"Idempotency-Replayed": "true"}
    denied = replace(answer(told(refused())), is_replay=True)
    assert "Idempotency-Replayed" not in headers(denied)


def test_the_next_unit_of_a_bucket_comes_back_before_all_units() -> None:
    bucket = parse_limit("10/minute")
    used = Decision("k", bucket, True, 7, 0, 18 * SECOND)
    lines = {
        b"x-ratelimit-limit": b"10",
        b"x-ratelimit-remaining": b"7",
        b"x-ratelimit-reset": b"%d" % (NOW // SECOND + 18),
        b"ratelimit-policy": b'"r";q=10;w=60',
        b"ratelimit": b'"r";r=7;t=6',
    }
    assert dict(allowed_lines([("r", used)], NOW // SECOND * SECOND) or ()) == lines
    fresh = used._replace(remaining=10, reset_after_ns=0)
    assert dict(allowed_lines([("r", fresh)], NOW) or ())[b"ratelimit"] == b'"r";r=10'
