"""What is read from a response: allowed, denied by this limit or another, or nothing."""

from __future__ import annotations

import json

import pytest

from headgate import RateLimiter
from headgate.limits import parse_limits
from headgate.loadtest.answers import AnswerReader, Reply, retry_after_fault
from headgate.loadtest.limit_under_test import LimitUnderTest
from headgate.loadtest.record import Result
from headgate.responses import Answer, RuleAnswer, response_for
from headgate.testing import ManualClock


def reader(text: str = "100/s", rule_id: str | None = None, **more: frozenset[int]) -> AnswerReader:
    return AnswerReader(LimitUnderTest(parse_limits(text), rule_id), **more)


def denied_by(name: str, limit: str, *, accept: str | None = None, sheds: bool = False) -> Reply:
    """The denial that Headgate sends for the rule *name* with *limit*."""
    limits = parse_limits(limit)
    limiter = RateLimiter(limits, clock=ManualClock())
    limiter.hit("caller", min(one.quota for one in limits))
    told = RuleAnswer(name, limiter.hit("caller"), sheds=sheds)
    sent = response_for(Answer(allowed=False, rules=(told,)), now_ns=0, accept=accept)
    return Reply(sent.status, dict(sent.headers), sent.body)


@pytest.mark.parametrize(
    ("status", "result"),
    [
        (200, Result.ALLOWED),
        (204, Result.ALLOWED),
        (302, Result.FAILED),
        (404, Result.FAILED),
        (429, Result.DENIED),
        (500, Result.FAILED),
        (503, Result.FAILED),
    ],
)
def test_a_status_alone_says_this(status: int, result: Result) -> None:
    assert reader().read(Reply(status, {})).result is result


def test_a_status_can_be_told_to_mean_allowed() -> None:
    assert reader(allowed=frozenset({404})).read(Reply(404, {})).result is Result.ALLOWED


def test_a_failure_says_what_came() -> None:
    assert reader().read(Reply(502, {})).by == "status 502"


@pytest.mark.parametrize("accept", [None, "application/problem+json"])
class TestTheRefusalOfARule:
    def test_is_ours_if_it_has_the_id(self, accept: str | None) -> None:
        reply = denied_by("mine", "5/s", accept=accept)
        assert reader("100/s", "mine").read(reply).result is Result.DENIED

    def test_is_anothers_if_it_has_another_id(self, accept: str | None) -> None:
        reply = denied_by("other", "100/s", accept=accept)
        read = reader("100/s", "mine").read(reply)
        assert read.result is Result.ELSEWHERE
        assert read.by == 'the rule "other";q=100;w=1'

    def test_is_ours_if_the_limit_is_the_same_in_words(self, accept: str | None) -> None:
        for limit in ("100/s", "5/minute sliding_window_log", "10/s; 100/minute"):
            reply = denied_by("any", limit, accept=accept)
            assert reader(limit).read(reply).result is Result.DENIED

    def test_is_anothers_if_the_limit_is_another_in_words(self, accept: str | None) -> None:
        for limit in ("100/s burst 20", "100/minute", "100/s; 1000/hour"):
            reply = denied_by("any", limit, accept=accept)
            assert reader("100/s").read(reply).result is Result.ELSEWHERE

    def test_is_anothers_if_capacity_is_short(self, accept: str | None) -> None:
        reply = denied_by("mine", "100/s", accept=accept, sheds=True)
        assert reply.status == 503
        read = reader("100/s", "mine").read(reply)
        assert (read.result, read.by) == (Result.ELSEWHERE, "a shortage of capacity (mine)")


def test_a_limit_in_words_takes_a_denial_that_tells_no_policy_for_its_own() -> None:
    body = json.dumps({"error": "rate_limit_exceeded", "limit": "any"}).encode()
    assert reader("7/s").read(Reply(429, {}, body)).result is Result.DENIED


@pytest.mark.parametrize("body", [b"", b"no json", b"[1]", b'"x"', b"{}", b"\xff", b"[" * 99_999])
def test_any_body_can_be_read(body: bytes) -> None:
    assert reader("7/s", "mine").read(Reply(429, {}, body)).result is Result.DENIED
    assert reader("7/s", "mine").read(Reply(503, {}, body)).result is Result.FAILED


def test_an_outage_is_a_failure_not_a_denial() -> None:
    plain = b'{"error": "temporarily_unavailable", "limit": "mine"}'
    kind = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
    problem = json.dumps({"type": kind, "title": "Temporarily unavailable"}).encode()
    for status, body in ((429, plain), (503, plain), (503, problem)):
        read = reader("7/s", "mine").read(Reply(status, {}, body))
        assert (read.result, read.by) == (
            Result.FAILED,
            f"status {status}: temporarily_unavailable",
        )


def test_a_503_of_the_app_itself_is_a_failure() -> None:
    for body in (b'{"error": "db is down"}', b'{"limit": "mine"}', b'{"type": "about:blank"}'):
        assert reader("7/s", "mine").read(Reply(503, {}, body)).result is Result.FAILED


def test_what_a_server_says_cannot_command_a_terminal() -> None:
    body = json.dumps({"error": "rate_limit_exceeded", "limit": "\033[2J" + "x" * 999}).encode()
    by = reader("7/s", "mine").read(Reply(429, {}, body)).by
    assert by.isprintable()
    assert len(by) < 250


def test_a_block_is_not_the_limits_doing() -> None:
    read = reader("7/s", "mine").read(Reply(429, {}, b'{"error": "blocked", "limit": "mine"}'))
    assert (read.result, read.by) == (Result.ELSEWHERE, "a block (mine)")


@pytest.mark.parametrize(
    ("headers", "used"),
    [
        ({}, 0),
        ({"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "60"}, 40),
        ({"X-RateLimit-Limit": "7", "X-RateLimit-Remaining": "6"}, 0),  # of another limit
        ({"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "many"}, 0),
        ({"RateLimit": '"other";r=1;t=1, "mine";r=70;t=1'}, 30),
    ],
)
def test_what_is_in_use_is_read_from_what_is_left(headers: dict[str, str], used: int) -> None:
    assert reader("100/s", "mine").used(headers) == used


def test_of_several_limits_nobody_knows_what_is_in_use() -> None:
    headers = {"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "1"}
    assert reader("10/s; 100/m").used(headers) == 0


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (None, "missing"),
        ("", "missing"),
        ("0", "bad"),
        ("-1", "bad"),
        ("1.5", "bad"),
        ("1", None),
        ("23", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
    ],
)
def test_retry_after_is_a_number_from_1_or_a_date(value: str | None, fault: str | None) -> None:
    assert retry_after_fault({} if value is None else {"Retry-After": value}) == fault
