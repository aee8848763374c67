"""Bodies and messages of all kinds pass the ASGI middleware as they come."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.integrations.asgi import RateLimitMiddleware
from tests.support.asgi_connection import Answering, Exchange, drive, exchange, http
from tests.support.async_stores import Waiting

LIMITS = pytest.mark.parametrize(
    "options",
    [
        {"limits": "99/hour"},
        {"limits": "99/hour fixed_window"},
        {"limits": "99/hour", "charge_when": lambda responded: responded.status_code == 200},
        {"limits": "99/hour", "store": Waiting()},
    ],
    ids=["quick", "long", "held", "waiting"],
)


@LIMITS
def test_the_body_of_a_request_is_read_when_the_app_reads_it(options: dict[str, Any]) -> None:
    read: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        read.append((await receive())["body"])
        await Answering()(scope, receive, send)
        read.append((await receive())["body"])

    chunks = [
        {"type": "http.request", "body": b"one", "more_body": True},
        {"type": "http.request", "body": b"two", "more_body": True},
        {"type": "http.request", "body": b"never read", "more_body": False},
    ]
    shown = drive(RateLimitMiddleware(app, **options), http(method="POST"), *chunks)

    assert read == [b"one", b"two"]
    assert shown.received == 2


def test_the_app_gets_the_receive_of_the_server_itself() -> None:
    async def receive() -> Any:
        raise AssertionError("no one reads")

    async def send(message: Any) -> None:
        pass

    async def app(scope: Any, given: Any, send: Any) -> None:
        assert given is receive

    asyncio.run(RateLimitMiddleware(app, limits="99/hour")(http(), receive, send))


def test_a_refusal_does_not_read_the_body() -> None:
    app = RateLimitMiddleware(Answering(), limits="1/hour", cost=2)
    shown = drive(app, http(method="POST"), {"type": "http.request", "body": b"x" * 9})

    assert shown.status == 429
    assert shown.received == 0


@LIMITS
def test_each_chunk_is_sent_before_the_app_makes_the_next(options: dict[str, Any]) -> None:
    order: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        order.append("begin")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for n in range(3):
            order.append(f"made {n}")
            await send({"type": "http.response.body", "body": b"%d" % n, "more_body": n < 2})

    async def send(message: Any) -> None:
        order.append(f"sent {message.get('body', b'start').decode()}")

    async def receive() -> Any:
        return {"type": "http.request"}

    asyncio.run(RateLimitMiddleware(app, **options)(http(), receive, send))

    expected = ["made 0", "sent 0", "made 1", "sent 1", "made 2", "sent 2"]
    assert order == ["begin", "sent start", *expected]


@LIMITS
def test_a_slow_server_holds_the_app_up(options: dict[str, Any]) -> None:
    """What the server does not take yet is not taken from the app either."""
    taken: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for kind in ("http.response.start", "x"):
            await send({"type": kind, "status": 200})
            taken.append(kind)

    async def scenario() -> None:
        async def send(message: Any) -> None:
            await asyncio.Event().wait()

        async def receive() -> Any:
            return {"type": "http.request"}

        request = asyncio.ensure_future(RateLimitMiddleware(app, **options)(http(), receive, send))
        for _ in range(50):
            await asyncio.sleep(0)
        assert taken == []
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request

    asyncio.run(scenario())


@LIMITS
def test_messages_that_it_does_not_know_are_passed_on_as_they_are(options: dict[str, Any]) -> None:
    messages: list[Any] = [
        {"type": "http.response.debug", "info": {"template": "x"}},
        {"type": "http.response.push", "path": "/style.css", "headers": []},
        {"type": "http.response.early_hint", "links": [b"</a>"]},
        {"type": "http.response.start", "status": 200, "headers": [], "trailers": True},
        {"type": "http.response.zerocopysend", "file": 3, "more_body": True},
        {"type": "http.response.body", "body": b"x", "more_body": False},
        {"type": "http.response.trailers", "headers": [(b"a", b"b")]},
        {"type": "of.tomorrow"},
    ]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    sent = drive(RateLimitMiddleware(app, **options)).sent

    assert len(sent) == len(messages)
    assert [one for one in sent if "status" not in one] == [
        one for one in messages if "status" not in one
    ]
    assert sent[3]["trailers"] is True
    assert dict(sent[3]["headers"])[b"x-ratelimit-limit"] == b"99"


@LIMITS
def test_a_file_that_the_server_sends_itself_is_passed_on(options: dict[str, Any]) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.pathsend", "path": "/file"})

    shown = drive(RateLimitMiddleware(app, **options))

    assert shown.sent[1] == {"type": "http.response.pathsend", "path": "/file"}
    assert shown.remaining >= 90


@LIMITS
def test_exactly_one_start_is_sent_for_each_that_the_app_sends(options: dict[str, Any]) -> None:
    """The server reports a second start, as without the middleware."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await Answering()(scope, receive, send)
        await Answering()(scope, receive, send)

    wrapped = RateLimitMiddleware(app, **options)

    assert (
        drive(RateLimitMiddleware(Answering(), **options)).types.count("http.response.start") == 1
    )
    assert drive(wrapped).types == ["http.response.start", "http.response.body"] * 2


@LIMITS
def test_an_app_that_sends_nothing_is_not_spoken_for(options: dict[str, Any]) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        pass

    assert drive(RateLimitMiddleware(app, **options)).sent == []


@LIMITS
@pytest.mark.parametrize("starts", [False, True])
def test_an_error_of_the_app_is_not_masked(options: dict[str, Any], starts: bool) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if starts:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError("the app's own")

    async def scenario() -> list[str]:
        into = Exchange()
        with pytest.raises(ZeroDivisionError, match="the app's own"):
            await exchange(RateLimitMiddleware(app, **options), http(), into=into)
        return into.types

    assert asyncio.run(scenario()) == (["http.response.start"] if starts else [])


@LIMITS
def test_an_error_of_the_server_is_not_masked(options: dict[str, Any]) -> None:
    async def send(message: Any) -> None:
        raise ConnectionResetError("the client has gone")

    async def receive() -> Any:
        return {"type": "http.request"}

    with pytest.raises(ConnectionResetError, match="the client has gone"):
        asyncio.run(RateLimitMiddleware(Answering(), **options)(http(), receive, send))


def test_connections_of_other_kinds_are_passed_on() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope, receive, send))

    given: Any = ({"type": "of.tomorrow"}, object(), object())
    asyncio.run(RateLimitMiddleware(app, limits="1/hour")(*given))

    assert seen == [given]
