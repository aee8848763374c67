"""Requests through the ASGI middleware: who is counted, denials, headers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate.integrations.asgi import RateLimitMiddleware
from headgate.responses import ResponseOptions
from headgate.testing import ManualClock
from tests.support.asgi_connection import Answering, drive, drive_all, exchange, http, statuses

if TYPE_CHECKING:
    from headgate.integrations.asgi import App

ORIGIN = (b"origin", b"https://shop.example")
ALL_WAYS = pytest.mark.parametrize("limits", ["2/hour", "2/hour fixed_window"])
"""The quick way, and the long one."""


def limited(app: App | None = None, limits: Any = "2/hour", **options: Any) -> RateLimitMiddleware:
    clock = ManualClock(1_000_000_800)
    return RateLimitMiddleware(app or Answering(), limits=limits, clock=clock, **options)


@ALL_WAYS
def test_an_admitted_response_tells_what_is_left_in_whole_numbers(limits: str) -> None:
    shown = drive(limited(limits=limits)).headers

    assert shown["x-ratelimit-limit"] == "2"
    assert shown["x-ratelimit-remaining"] == "1"
    assert shown["x-ratelimit-reset"].isdigit()
    assert shown["ratelimit-policy"] == '"default";q=2;w=3600'
    assert shown["ratelimit"].startswith('"default";r=1;t=')
    assert shown["content-type"] == "text/plain"


@pytest.mark.parametrize("headers", [[], [ORIGIN], [(b"access-control-request-method", b"PUT")]])
def test_an_options_that_is_no_preflight_is_charged(headers: list[tuple[bytes, bytes]]) -> None:
    scopes = [http(method="OPTIONS", headers=headers) for _ in range(3)]

    assert statuses(limited(), *scopes) == [200, 200, 429]


@ALL_WAYS
def test_rate_headers_are_exposed_to_scripts_of_other_origins(limits: str) -> None:
    first, _, refused = drive_all(limited(limits=limits), *[http(headers=[ORIGIN])] * 3)
    exposed = first.headers["access-control-expose-headers"]

    assert exposed == (
        "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit-Policy, RateLimit"
    )
    assert refused.headers["access-control-expose-headers"] == f"{exposed}, Retry-After"


@ALL_WAYS
def test_headers_that_the_app_exposes_stay_exposed(limits: str) -> None:
    lines = [
        (b"Access-Control-Expose-Headers", b"x-own"),
        (b"access-control-expose-headers", b"RateLimit, x-more"),
    ]
    app = limited(Answering(headers=lines), limits)
    exposed = drive(app, http(headers=[ORIGIN])).headers["access-control-expose-headers"]

    assert exposed.startswith("x-own, RateLimit, x-more, X-RateLimit-Limit")
    assert exposed.count("RateLimit,") == 1


@ALL_WAYS
def test_what_the_app_says_of_the_same_limit_is_replaced_and_of_others_kept(limits: str) -> None:
    lines = [
        (b"X-RateLimit-Limit", b"99"),
        (b"RateLimit", b'"default";r=77, "theirs";r=5;t=6'),
        (b"ratelimit-policy", b'"theirs";q=8;w=9'),
    ]
    shown = drive(limited(Answering(headers=lines), limits)).lines

    assert [value for name, value in shown if name == b"x-ratelimit-limit"] == [b"2"]
    assert shown[:2] == [(b"ratelimit", b'"theirs";r=5;t=6'), (b"ratelimit-policy", lines[2][1])]
    assert b'"default";r=77' not in b"".join(value for _, value in shown)


@ALL_WAYS
def test_a_header_of_the_app_in_capitals_is_not_sent_beside_ours(limits: str) -> None:
    shown = drive(limited(Answering(headers=[(b"X-RATELIMIT-LIMIT", b"99")]), limits)).lines

    assert [value for name, value in shown if name.lower() == b"x-ratelimit-limit"] == [b"2"]


@ALL_WAYS
def test_a_message_that_the_app_uses_again_is_not_changed(limits: str) -> None:
    start = {"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]}
    body = {"type": "http.response.body", "body": b"x"}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start)
        await send(body)

    drive_all(limited(app, limits), http(), http(headers=[ORIGIN]))

    assert start == {"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]}
    assert body == {"type": "http.response.body", "body": b"x"}


@ALL_WAYS
@pytest.mark.parametrize("asked", [[], [ORIGIN]])
def test_headers_that_can_be_read_only_once_are_all_sent(
    limits: str, asked: list[tuple[bytes, bytes]]
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        once = (line for line in [(b"a", b"1"), (b"set-cookie", b"2"), (b"set-cookie", b"3")])
        await send({"type": "http.response.start", "status": 200, "headers": once})
        await send({"type": "http.response.body"})

    shown = drive(limited(app, limits), http(headers=asked)).lines

    assert shown[:3] == [(b"a", b"1"), (b"set-cookie", b"2"), (b"set-cookie", b"3")]
    assert dict(shown)[b"x-ratelimit-limit"] == b"2"


@ALL_WAYS
def test_a_start_without_headers_is_completed(limits: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    assert drive(limited(app, limits)).remaining == 1


@ALL_WAYS
def test_clients_do_not_share_a_counter(limits: str) -> None:
    clients = [http(client=(f"203.0.113.{n}", 1)) for n in range(5)]

    assert statuses(limited(limits=limits), *clients * 2) == [200] * 10


@pytest.mark.parametrize(
    ("path", "is_exempt"),
    [
        ("/health", True),
        ("/health/", False),
        ("/HEALTH", False),
        ("/STATIC/app.js", False),
        ("/static//login", True),
        ("/static/app.js", True),
        ("/static/a/b.css", True),
        ("/static/../login", False),
        ("/static/..;/login", False),
        ("/static/..\\..\\login", False),
        ("/x/../health", False),
        ("/login", False),
        ("/health/../login", False),
        ("/healthy", False),
    ],
)
def test_only_what_is_exempt_in_every_reading_is_exempt(path: str, is_exempt: bool) -> None:
    app = limited(limits="1/hour", exempt=["/health", "/static/**"])

    assert statuses(app, http(path), http(path)) == [200, 200 if is_exempt else 429]


def test_headers_can_be_chosen() -> None:
    options = ResponseOptions(ratelimit=False, draft03=True)

    assert set(drive(limited(responses=options)).headers) == {
        "content-type",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "ratelimit-limit",
        "ratelimit-remaining",
        "ratelimit-reset",
    }


def test_many_at_once_in_one_loop_are_admitted_exactly() -> None:
    app = limited(limits="50/hour")

    async def herd() -> list[int]:
        shown = await asyncio.gather(*[exchange(app, http()) for _ in range(200)])
        return [one.status for one in shown]

    assert asyncio.run(herd()).count(200) == 50
