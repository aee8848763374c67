"""What a response says, with what Headgate has to say."""

from __future__ import annotations

from headgate.engine.request import Request
from headgate.integrations import RequestContext, RequestLimiter
from headgate.integrations.request_context import with_exposed
from headgate.responses import ResponseOptions
from headgate.runtime.drivers import drive
from headgate.testing import ManualClock

OURS = ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"]


def shown(lines: list[tuple[str, str]], *, is_cross_origin: bool = False) -> list[tuple[str, str]]:
    limiter = RequestLimiter(
        limits="9/hour", clock=ManualClock(7), responses=ResponseOptions(ratelimit=False)
    )
    lines_sent = (("origin", "https://a.example"),) if is_cross_origin else ()
    request = Request(peer="1.2.3.4", headers=lines_sent)
    context = RequestContext(limiter, request)
    assert drive(context.begin(limiter, limiter.plan(request)))
    return context.with_all_headers(lines, 200)


def test_ours_follow_what_is_there() -> None:
    lines = shown([("Server", "x"), ("Set-Cookie", "a"), ("Set-Cookie", "b")])

    assert lines[:3] == [("Server", "x"), ("Set-Cookie", "a"), ("Set-Cookie", "b")]
    assert [name for name, _ in lines[3:]] == OURS


def test_ours_take_the_place_of_those_of_the_same_name() -> None:
    assert shown([("x-ratelimit-limit", "1"), ("X-Ratelimit-Reset", "0")])[0] == (OURS[0], "9")


def test_a_request_that_nobody_asked_about_is_told_nothing() -> None:
    limiter = RequestLimiter()

    request = Request(headers=(("origin", "https://a.example"),))
    assert RequestContext(limiter, request).with_all_headers([("a", "b")], 200) == [("a", "b")]


def test_ours_are_exposed_if_another_origin_asks_or_may_read() -> None:
    exposed = ("Access-Control-Expose-Headers", ", ".join(OURS))

    assert shown([], is_cross_origin=True)[-1] == exposed
    assert shown([("access-control-allow-origin", "*")])[-1] == exposed
    assert shown([])[-1][0] == OURS[-1]


def test_what_is_exposed_stays_exposed_and_nothing_twice() -> None:
    lines = [
        ("access-control-expose-headers", "x-own, x-ratelimit-limit,,"),
        (OURS[0], "9"),
        ("Access-Control-Expose-Headers", "*"),
        ("Retry-After", "5"),
    ]

    assert with_exposed(lines, ResponseOptions())[-1] == (
        "Access-Control-Expose-Headers",
        "x-own, x-ratelimit-limit, *, Retry-After",
    )


def test_nothing_is_exposed_that_is_not_sent() -> None:
    assert with_exposed([("a", "b")], ResponseOptions()) == [("a", "b")]
