"""Websockets are limited when they connect."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from headgate.integrations.asgi import RateLimitMiddleware
from headgate.limits import Concurrency
from headgate.testing import ManualClock
from tests.support.asgi_connection import accepting, drive, drive_all, exchange, http, websocket
from tests.support.async_stores import Waiting

if TYPE_CHECKING:
    from headgate.integrations import CompletedResponse

CONNECT = {"type": "websocket.connect"}


def test_an_accepted_websocket_carries_the_headers() -> None:
    shown = drive(RateLimitMiddleware(accepting, limits="2/hour"), websocket())

    assert shown.types == ["websocket.accept"]
    assert shown.headers["x-own"] == "1"
    assert shown.headers["x-ratelimit-remaining"] == "1"
    assert shown.headers["ratelimit-policy"] == '"default";q=2;w=3600'


def test_a_refused_websocket_is_answered_where_the_server_can_do_that() -> None:
    app = RateLimitMiddleware(accepting, limits="1/hour")
    _, refused = drive_all(app, websocket(), websocket())

    assert refused.types == ["websocket.http.response.start", "websocket.http.response.body"]
    assert refused.status == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.headers["content-length"] == str(len(refused.body))
    assert json.loads(refused.body)["error"] == "rate_limit_exceeded"


def test_a_refused_websocket_is_closed_before_it_is_accepted_where_the_server_cannot() -> None:
    app = RateLimitMiddleware(accepting, limits="1/hour")
    _, refused = drive_all(app, websocket(), websocket(can_deny=False))

    assert refused.sent == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize("extensions", [None, {}])
def test_a_server_without_extensions_is_one_that_cannot_answer(extensions: Any) -> None:
    scope = {**websocket(), "extensions": extensions}

    assert drive(RateLimitMiddleware(accepting, limits="1/hour", cost=2), scope).types == [
        "websocket.close"
    ]


@pytest.mark.parametrize("can_deny", [True, False])
def test_the_connect_is_heard_before_a_refusal_is_sent(can_deny: bool) -> None:
    app = RateLimitMiddleware(accepting, limits="1/hour", cost=2)

    assert drive(app, websocket(can_deny=can_deny), CONNECT).received == 1


def test_websockets_and_requests_share_the_limit() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    gated = RateLimitMiddleware(app, limits="1/hour")

    assert drive(gated, http()).status == 200
    assert drive(gated, websocket()).status == 429


def test_messages_of_a_websocket_are_passed_on_both_ways() -> None:
    async def echo(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": (await receive())["text"]})
        await send({"type": "websocket.close", "code": 4000})

    shown = drive(
        RateLimitMiddleware(echo, limits="2/hour"),
        websocket(),
        CONNECT,
        {"type": "websocket.receive", "text": "hello"},
    )

    assert shown.sent[1:] == [
        {"type": "websocket.send", "text": "hello"},
        {"type": "websocket.close", "code": 4000},
    ]


def test_a_denial_of_the_app_carries_the_headers() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.http.response.start", "status": 403, "headers": []})
        await send({"type": "websocket.http.response.body", "body": b"no"})

    shown = drive(RateLimitMiddleware(app, limits="2/hour"), websocket())

    assert shown.status == 403
    assert shown.remaining == 1


@pytest.mark.parametrize("store", [None, Waiting()])
def test_a_slot_is_held_until_the_websocket_closes(store: Any) -> None:
    options = {} if store is None else {"store": store}

    async def scenario() -> None:
        app = RateLimitMiddleware(accepting, limits=Concurrency(1, 3600), **options)
        closing: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        messages = [CONNECT]
        accepted = asyncio.Event()

        async def receive() -> Any:
            return messages.pop() if messages else await closing

        async def send(message: Any) -> None:
            accepted.set()

        first = asyncio.ensure_future(app(websocket(), receive, send))
        await accepted.wait()
        assert (await exchange(app, websocket())).types[0] == "websocket.http.response.start"
        closing.set_result({"type": "websocket.disconnect", "code": 1000})
        await first
        assert (await exchange(app, websocket())).types == ["websocket.accept"]

    asyncio.run(scenario())


def outcomes(app: Any) -> list[CompletedResponse]:
    seen: list[CompletedResponse] = []

    def counts(responded: CompletedResponse) -> bool:
        seen.append(responded)
        return True

    try:
        drive(RateLimitMiddleware(app, limits="9/hour", charge_when=counts), websocket())
    except ZeroDivisionError:
        assert seen[0].status_code == 101 or isinstance(seen[0].error, ZeroDivisionError)
    return seen


def test_what_depends_on_the_outcome_is_settled_when_a_websocket_is_accepted() -> None:
    """Not when it closes: that may be after any hold has lapsed."""
    clock = ManualClock(3_600)
    app = RateLimitMiddleware(
        accepting, limits="2/hour", charge_when=lambda one: one.status_code == 101, clock=clock
    )
    left: list[int] = []

    async def scenario() -> None:
        closing = asyncio.get_running_loop().create_future()
        accepted = asyncio.Event()
        connects = iter([{"type": "websocket.connect"}])

        async def receive() -> Any:
            return next(connects, None) or await closing

        async def send(message: Any) -> None:
            if message["type"] == "websocket.accept":
                accepted.set()

        first = asyncio.ensure_future(app(websocket(), receive, send))
        await accepted.wait()
        await asyncio.sleep(0)
        clock.advance(120)
        left.append((await exchange(app, websocket())).remaining)
        closing.set_result({"type": "websocket.disconnect", "code": 1000})
        await first

    asyncio.run(scenario())

    assert left == [0]


def test_the_outcome_of_a_websocket_tells_what_became_of_it() -> None:
    async def silent(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.close", "code": 1000})

    async def failing(scope: Any, receive: Any, send: Any) -> None:
        raise ZeroDivisionError

    async def failing_later(scope: Any, receive: Any, send: Any) -> None:
        await accepting(scope, receive, send)
        raise ZeroDivisionError

    apps = (accepting, silent, failing, failing_later)
    statuses = [[one.status_code for one in outcomes(app)] for app in apps]

    assert statuses == [[101], [403], [500], [101]]
