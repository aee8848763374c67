"""What is charged when the outcome is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import CostError, UsageError
from headgate.integrations import RequestLimiter
from headgate.integrations.wsgi import RateLimitMiddleware, StatusApp, WsgiRequest, report
from headgate.policy.loader import read_policy
from headgate.testing import ManualClock
from tests.support.wsgi_caller import call, environ, hello

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment


def test_a_whole_answer_is_settled_even_if_nobody_reads_it() -> None:
    limiter = RequestLimiter(limits="1/hour", charge_when=lambda _: False, clock=ManualClock(100))
    app = RateLimitMiddleware(hello, limiter)
    started: list[str] = []

    def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        started.append(status[:3])

    for _ in range(3):
        app(environ(), start)
    assert started == ["200"] * 3


def test_reports_are_about_requests_that_something_limits() -> None:
    with pytest.raises(UsageError, match="nothing limits this request"):
        report(environ(), tokens=1)
    with pytest.raises(UsageError, match="nothing limits this request"):
        report(object(), tokens=1)


def test_a_report_is_noted_in_the_passage_of_the_request() -> None:
    seen: list[dict[str, int]] = []

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        report(environ, tokens=3)
        report(WsgiRequest(environ), {"in-tokens": 4}, tokens=5)
        with pytest.raises(CostError):
            report(environ, tokens=-1)
        seen.append(dict(environ["headgate"].used))
        return hello(environ, start_response)

    call(RateLimitMiddleware(app, limits="9/hour", clock=ManualClock(100)))
    assert seen == [{"tokens": 5, "in-tokens": 4}]


def test_what_was_reported_is_charged_in_place_of_what_was_held() -> None:
    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        report(environ, default=3)
        return hello(environ, start_response)

    limiter = RequestLimiter(
        limits="100/hour", cost=50, charge_when=lambda _: True, clock=ManualClock(100)
    )
    limited = RateLimitMiddleware(app, limiter)
    remaining = [call(limited).headers["X-RateLimit-Remaining"] for _ in range(3)]
    assert remaining == ["50", "47", "44"]


RULES = """
version: 1
rules:
  - {id: all, match: {endpoint: /api/**}, key_by: ip, limit: 5/minute}
  - {id: hidden, key_by: ip, limit: 7/minute, headers: redacted}
"""


def test_the_page_tells_the_limits_of_the_caller_and_consumes_none() -> None:
    limiter = RequestLimiter(policy=read_policy(RULES), limits="9/minute", clock=ManualClock(100))
    call(RateLimitMiddleware(hello, limiter), "GET", "/api/x")
    page = StatusApp(limiter)
    answers = [call(page) for _ in range(3)]
    assert answers[0].body == answers[2].body
    assert answers[0].headers["Cache-Control"] == "no-store"
    assert answers[0].headers["Content-Type"] == "application/json"
    assert answers[0].headers["Content-Length"] == str(len(answers[0].body))
    assert b'"name": "all"' in answers[0].body
    assert b'"remaining": 8' in answers[0].body
    assert b"hidden" not in answers[0].body


def test_the_page_has_no_body_for_head_and_refuses_other_methods() -> None:
    page = StatusApp(RequestLimiter(limits="9/minute", clock=ManualClock(100)))
    assert call(page, "HEAD").body == b""
    assert call(page, "HEAD").headers["Content-Length"] == str(len(call(page).body))
    refused = call(page, "POST")
    assert refused.status == "405 Method Not Allowed"
    assert refused.headers["Allow"] == "GET, HEAD"
