"""What clients of each provider are told about limits."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.clients.signals import wait_until_ns
from headgate.llm import (
    KINDS,
    Figures,
    Protocol,
    denial_body,
    rate_limit_headers,
    retry_headers,
)
from headgate.llm.protocol import Counted, duration, timestamp
from headgate.units import DAY, HOUR, MILLISECOND, MINUTE, SECOND

NOW_NS = 1_800_000_000 * SECOND


@pytest.mark.parametrize(
    ("counted", "kind", "code"),
    [
        ("requests", "requests", "rate_limit_exceeded"),
        ("tokens", "tokens", "rate_limit_exceeded"),
        ("input_tokens", "tokens", "rate_limit_exceeded"),
        ("output_tokens", "tokens", "rate_limit_exceeded"),
        ("spend", "insufficient_quota", "insufficient_quota"),
    ],
)
def test_a_denial_in_the_form_of_openai(counted: Counted, kind: str, code: str) -> None:
    assert json.loads(denial_body("openai", counted, 'Too "many" é')) == {
        "error": {"message": 'Too "many" é', "type": kind, "param": None, "code": code}
    }


@pytest.mark.parametrize("counted", ["requests", "tokens", "spend"])
def test_a_denial_in_the_form_of_anthropic(counted: Counted) -> None:
    assert json.loads(denial_body("anthropic", counted, "Too many")) == {
        "type": "error",
        "error": {"type": "rate_limit_error", "message": "Too many"},
    }


@pytest.mark.parametrize(
    ("wait_ns", "line"),
    [
        (0, ("retry-after-ms", "0")),
        (1, ("retry-after-ms", "1")),
        (1_500 * MILLISECOND, ("retry-after-ms", "1500")),
        (MINUTE, ("retry-after-ms", "60000")),
        (MINUTE + 1, ("x-should-retry", "false")),
        (None, ("x-should-retry", "false")),
    ],
)
def test_an_sdk_is_told_the_exact_wait_or_not_to_retry(
    wait_ns: int | None, line: tuple[str, str]
) -> None:
    assert retry_headers(wait_ns) == [line]


FIGURES: dict[Counted, Figures] = {
    "spend": Figures(50_000_000, 1, DAY),
    "requests": Figures(60, 59, SECOND),
    "tokens": Figures(100_000, 0, 6 * MINUTE),
    "output_tokens": Figures(8_000, 8_000, 0),
}


def test_the_headers_of_openai() -> None:
    assert rate_limit_headers("openai", FIGURES, NOW_NS) == [
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-limit-tokens", "100000"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "6m0s"),
    ]


def test_the_headers_of_anthropic() -> None:
    assert rate_limit_headers("anthropic", FIGURES, NOW_NS + 1) == [
        ("anthropic-ratelimit-requests-limit", "60"),
        ("anthropic-ratelimit-requests-remaining", "59"),
        ("anthropic-ratelimit-requests-reset", "2027-01-15T08:00:02Z"),
        ("anthropic-ratelimit-tokens-limit", "100000"),
        ("anthropic-ratelimit-tokens-remaining", "0"),
        ("anthropic-ratelimit-tokens-reset", "2027-01-15T08:06:01Z"),
        ("anthropic-ratelimit-output-tokens-limit", "8000"),
        ("anthropic-ratelimit-output-tokens-remaining", "8000"),
        ("anthropic-ratelimit-output-tokens-reset", "2027-01-15T08:00:01Z"),
    ]


@pytest.mark.parametrize(("left", "uncached_left"), [(5, 9), (9, 5)])
def test_of_two_limits_of_input_the_one_with_less_left_is_told(
    left: int, uncached_left: int
) -> None:
    lines = rate_limit_headers(
        "anthropic",
        {
            "input_tokens": Figures(10, left, 0),
            "uncached_input_tokens": Figures(10, uncached_left, 0),
        },
        0,
    )
    assert [value for name, value in lines if name.endswith("-remaining")] == ["5"]


def test_denials_know_every_kind_of_cost() -> None:
    assert set(get_args(Counted)) == {"requests", *KINDS}


@pytest.mark.parametrize("protocol", get_args(Protocol))
def test_a_debt_shows_as_nothing_left(protocol: Protocol) -> None:
    lines = rate_limit_headers(protocol, {"tokens": Figures(5, -3, 0)}, 0)
    assert [value for _, value in lines[:2]] == ["5", "0"]


def test_no_limit_has_no_headers() -> None:
    assert rate_limit_headers("openai", {}, 0) == rate_limit_headers("anthropic", {}, 0) == []


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0ms"),
        (1, "1ms"),
        (120 * MILLISECOND, "120ms"),
        (SECOND, "1s"),
        (7_660 * MILLISECOND, "7.66s"),
        (10_001 * MILLISECOND, "10.001s"),
        (20 * SECOND, "20s"),
        (59_999 * MILLISECOND, "59.999s"),
        (MINUTE, "1m0s"),
        (6 * MINUTE + 1, "6m1s"),
        (DAY, "24h0m0s"),
        (HOUR + 2 * MINUTE + 3 * SECOND, "1h2m3s"),
    ],
)
def test_durations_are_written_as_openai_does(nanoseconds: int, text: str) -> None:
    assert duration(nanoseconds) == text


@given(st.integers(0, 100 * DAY))
def test_our_own_clients_read_a_duration_as_no_less_than_it_is(nanoseconds: int) -> None:
    read = wait_until_ns(duration(nanoseconds), NOW_NS)
    assert read is not None
    assert nanoseconds <= read < nanoseconds + SECOND


@given(st.integers(0, 100 * DAY), st.integers(0, SECOND))
def test_our_own_clients_read_a_time_as_no_less_than_it_is(wait_ns: int, passed_ns: int) -> None:
    now_ns = NOW_NS + passed_ns
    read: Any = wait_until_ns(timestamp(now_ns + wait_ns), now_ns)
    assert wait_ns <= read < wait_ns + SECOND


def test_a_time_beyond_the_calendar_is_its_end() -> None:
    assert timestamp(10**30) == "9999-12-31T23:59:59Z"
    assert timestamp(-5) == "1970-01-01T00:00:00Z"
