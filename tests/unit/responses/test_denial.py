"""The whole response to a refused request."""

from __future__ import annotations

import json

import pytest

from headgate.errors import OptionError, UsageError
from headgate.responses import ResponseOptions, headers_for, response_for
from tests.support.decisions import NOW, answer, body_for, decided, outage, refused, told


def test_it_has_the_headers_the_body_its_type_and_is_never_cached() -> None:
    it = answer(told(refused()))
    whole = response_for(it, now_ns=NOW)
    assert whole.status == 429
    assert whole.headers == (
        *headers_for(it, now_ns=NOW),
        ("Content-Type", "application/json"),
        ("Cache-Control", "no-store"),
    )
    assert whole.body == body_for(it, problem=False)[1]


def test_problem_details_are_for_those_who_ask_or_for_all() -> None:
    it = answer(told(refused()))
    asked = response_for(it, now_ns=NOW, accept="application/problem+json")
    for_all = response_for(
        it, now_ns=NOW, options=ResponseOptions(problem=True), accept="text/html"
    )
    assert asked == for_all
    assert ("Content-Type", "application/problem+json") in asked.headers
    assert json.loads(asked.body)["status"] == asked.status


@pytest.mark.parametrize("headers", ["on", "brief", "off", "redacted"])
def test_an_outage_is_503_or_what_the_operator_says(headers: str) -> None:
    it = answer(told(outage(), headers=headers))  # type: ignore[arg-type]
    assert response_for(it, now_ns=NOW).status == 503
    options = ResponseOptions(outage_status=429, problem=True)
    other = response_for(it, now_ns=NOW, options=options)
    assert other.status == json.loads(other.body)["status"] == 429


def test_who_is_over_a_limit_gets_429_even_if_another_could_not_be_checked() -> None:
    it = answer(told(outage(), name="b"), told(refused(retry_ms=3)))
    assert response_for(it, now_ns=NOW).status == 429


def test_what_was_allowed_cannot_be_refused() -> None:
    with pytest.raises(UsageError, match="allowed"):
        response_for(answer(told(decided())), now_ns=NOW)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jitter", 1.5),
        ("jitter", float("nan")),
        ("jitter_most", -1),
        ("outage_spread", float("inf")),
        ("outage_status", 200),
        ("bucket_secret", b"x" * 65),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(OptionError, match=name):
        ResponseOptions(**{name: value})  # type: ignore[arg-type]
