"""What a refusal says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headgate.errors import UsageError
from headgate.responses import Answer, ResponseOptions
from tests.support.decisions import answer, body_for, decided, outage, refused, told

QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"
REDUCED_CAPACITY = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"


def plain(it: Answer, options: ResponseOptions | None = None) -> dict[str, Any]:
    media_type, body = body_for(it, problem=False, options=options or ResponseOptions())
    assert media_type == "application/json"
    return dict(json.loads(body))


def problem(it: Answer) -> dict[str, Any]:
    media_type, body = body_for(it, problem=True)
    assert media_type == "application/problem+json"
    return dict(json.loads(body))


def test_a_refusal_names_the_rule_and_the_wait() -> None:
    assert plain(answer(told(refused()))) == {
        "error": "rate_limit_exceeded",
        "message": "Too many requests: 100 per minute. Try again in 23 seconds.",
        "limit": "per-user",
        "retry_after_ms": 22_400,
        "retry_after": 23,
    }


def test_when_waiting_cannot_help_it_says_so_and_names_no_wait() -> None:
    assert plain(answer(told(decided(retry_ms=None)))) == {
        "error": "rate_limit_exceeded",
        "message": "This request is more than its limit of 100 per minute allows. "
        "Waiting does not help.",
        "limit": "per-user",
    }


def test_the_waits_in_the_body_are_those_of_the_header() -> None:
    found = plain(answer(told(refused()), jitter=1.0), ResponseOptions(jitter=0.5))
    assert (found["retry_after_ms"], found["retry_after"]) == (33_600, 34)
    assert found["message"].endswith("Try again in 34 seconds.")


def test_the_limit_of_a_stack_that_was_hit_is_in_the_message_and_the_rule_is_named() -> None:
    found = plain(answer(told(decided(), refused("5/s", retry_ms=200))))
    assert found["message"] == "Too many requests: 5 per second. Try again in 1 second."
    assert found["limit"] == "per-user"
    assert (found["retry_after_ms"], found["retry_after"]) == (200, 1)


def test_a_redacted_refusal_says_no_more_than_that() -> None:
    it = answer(told(refused(), name="secret", headers="redacted"), told(refused(retry_ms=1)))
    assert plain(it) == {
        "error": "rate_limit_exceeded",
        "message": "Too many requests. Try again later.",
    }
    assert problem(it) == {
        "type": QUOTA_EXCEEDED,
        "title": "Too many requests",
        "status": 429,
        "detail": "Too many requests. Try again later.",
    }


def test_an_outage_is_not_called_a_limit() -> None:
    assert plain(answer(told(outage()))) == {
        "error": "temporarily_unavailable",
        "message": "Temporarily unavailable. Try again in 1 second.",
        "limit": "per-user",
        "retry_after_ms": 1_000,
        "retry_after": 1,
    }
    assert plain(answer(told(outage(), headers="redacted"))) == {
        "error": "temporarily_unavailable",
        "message": "Temporarily unavailable. Try again later.",
    }


def test_a_problem_says_the_same_with_the_words_of_the_standard() -> None:
    assert problem(answer(told(refused()))) == {
        "type": QUOTA_EXCEEDED,
        "title": "Too many requests",
        "status": 429,
        "detail": "Too many requests: 100 per minute. Try again in 23 seconds.",
        "violated-policies": ["per-user"],
        "limit": "per-user",
        "retry_after_ms": 22_400,
        "retry_after": 23,
    }


def test_violated_policies_are_those_that_refused_by_the_names_in_the_headers() -> None:
    found = problem(
        answer(
            told(decided(), refused(retry_ms=5), refused(retry_ms=6)),
            told(decided(), name="fine"),
            told(refused(retry_ms=1), name="hidden", headers="redacted"),
            told(outage(), name="unchecked"),
            told(refused(retry_ms=2), name="quiet", headers="off"),
            told(refused(), name="slow"),
        )
    )
    assert found["violated-policies"] == ["per-user/2", "per-user/3", "slow"]
    assert found["limit"] == "slow"


def test_the_problem_of_an_outage_is_reduced_capacity() -> None:
    found = problem(answer(told(outage()), told(decided(), name="fine")))
    assert found["type"] == REDUCED_CAPACITY
    assert found["status"] == 503
    assert found["violated-policies"] == ["per-user"]


def test_a_refusal_that_no_rule_explains_is_worded_like_a_redacted_one() -> None:
    assert plain(Answer(allowed=False))["message"] == "Too many requests. Try again later."


def test_what_was_allowed_has_no_body() -> None:
    with pytest.raises(UsageError, match="allowed"):
        body_for(answer(told(decided())), problem=False)
