"""Starlette and FastAPI endpoints with limits on a real uvicorn, with and without the middleware.

What needs real connections: bodies that are streamed both ways, clients that go in the middle,
websockets, endpoints that block.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import websockets
from fastapi import Depends, FastAPI, Request, WebSocket
from fastapi.responses import StreamingResponse
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from websockets.exceptions import InvalidStatus

from headgate.integrations import RequestLimiter
from headgate.integrations.fastapi import RateLimit, RateLimitMiddleware, report
from headgate.integrations.fastapi import limit as fastapi_limit
from headgate.integrations.starlette import limit as starlette_limit
from headgate.limits import Concurrency
from headgate.testing import ManualClock
from tests.support.servers import wait_until
from tests.support.uvicorn_apps import serving, wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

KINDS = ("starlette", "fastapi", "dependency")
POST = "POST / HTTP/1.1\r\nhost: app.test\r\ntransfer-encoding: chunked\r\n\r\n"
GET = "GET / HTTP/1.1\r\nhost: app.test\r\n\r\n"


def app_with(
    kind: str,
    endpoint: Callable[..., Any],
    limiter: RequestLimiter | None,
    *limits: Any,
    **options: Any,
) -> Any:
    """An app with a limited endpoint at /, limited in the way of *kind*."""
    methods = ["GET", "POST"]
    if kind == "starlette":
        limited = starlette_limit(*limits, limiter=limiter, **options)(endpoint)
        return Starlette(routes=[Route("/", limited, methods=methods)])
    app = FastAPI()
    if kind == "fastapi":
        limited = fastapi_limit(*limits, limiter=limiter, **options)(endpoint)
        app.add_api_route("/", limited, methods=methods)
    else:
        needed = [Depends(RateLimit(*limits, limiter=limiter, **options))]
        app.add_api_route("/", endpoint, methods=methods, dependencies=needed)
    return app


@contextmanager
def served(
    kind: str, endpoint: Callable[..., Any], *limits: Any, is_watched: bool, **options: Any
) -> Iterator[str]:
    limiter = RequestLimiter(clock=ManualClock(1_000))
    app = app_with(kind, endpoint, None if is_watched else limiter, *limits, **options)
    if is_watched:
        app = RateLimitMiddleware(app, limiter)
    with serving(app) as url:
        yield url


class Shouting(Response):
    """Says all that it hears, louder, while it hears it.

    A `StreamingResponse` cannot: on this server it takes the body itself, to see the client go.
    """

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        is_more = True
        while is_more:
            heard = await receive()
            is_more = heard.get("more_body", False)
            body = heard.get("body", b"").upper()
            await send({"type": "http.response.body", "body": body, "more_body": is_more})


every_way = pytest.mark.parametrize("kind", KINDS)
watched_or_not = pytest.mark.parametrize("is_watched", [True, False], ids=["watched", "alone"])


@every_way
@watched_or_not
def test_bodies_are_streamed_both_ways(kind: str, is_watched: bool) -> None:
    async def echo(request: Request) -> Shouting:
        return Shouting()

    async def conversation(url: str) -> None:
        async with wire(url) as line:
            await line.say(POST)
            for word in ("one", "two", "three"):
                await line.say_chunk(word)  # only what was heard is answered by the next
                assert word.upper() in await line.hear(word.upper())

    # A limit with an end: its response has to be seen through.
    with served(kind, echo, Concurrency(5, ttl=60), is_watched=is_watched) as url:
        asyncio.run(conversation(url))


@every_way
@watched_or_not
def test_a_client_that_goes_in_the_middle_leaves_its_place(kind: str, is_watched: bool) -> None:
    async def endless(request: Request) -> StreamingResponse:
        async def words() -> AsyncIterator[str]:
            while True:
                yield "word "
                await asyncio.sleep(0.005)

        return StreamingResponse(words())

    async def begin_and_go(url: str) -> str:
        async with wire(url) as line:
            await line.say(GET)
            begun = await line.hear("\r\n")
            if "200" in begun:
                await line.hear("word ")
                async with wire(url) as other:
                    await other.say(GET)
                    assert "429" in await other.hear("\r\n")
            return begun

    with served(kind, endless, Concurrency(1, ttl=600), is_watched=is_watched) as url:
        assert "200" in asyncio.run(begin_and_go(url))
        wait_until(lambda: "200" in asyncio.run(begin_and_go(url)), "the place is free again")


@every_way
@watched_or_not
def test_what_was_reported_is_settled_when_the_client_goes(kind: str, is_watched: bool) -> None:
    async def endless(request: Request) -> Any:
        if request.method == "POST":
            report(request, tokens=0)
            return PlainTextResponse("looked") if kind == "starlette" else "looked"

        async def words() -> AsyncIterator[str]:
            while True:
                report(request, tokens=7)
                yield "word "
                await asyncio.sleep(0.005)

        return StreamingResponse(words())

    async def begin_and_go(url: str) -> None:
        async with wire(url) as line:
            await line.say(GET)
            await line.hear("word ")

    def remaining(url: str) -> int:
        reply = httpx.post(url)
        return int(reply.headers["x-ratelimit-remaining"]) if reply.status_code == 200 else -1

    options = {"name": "tokens", "cost": 50, "is_estimate": True}
    with served(kind, endless, "100/hour", is_watched=is_watched, **options) as url:
        asyncio.run(begin_and_go(url))
        wait_until(lambda: remaining(url) == 100 - 7 - 50, "seven are charged")


@every_way
@watched_or_not
def test_an_endpoint_that_blocks_does_not_block_the_others(kind: str, is_watched: bool) -> None:
    both = threading.Barrier(3)

    def blocking(request: Request) -> PlainTextResponse:
        both.wait(timeout=30)  # passed only if all three are served at once
        return PlainTextResponse("together")

    async def at_once(url: str) -> list[int]:
        async with httpx.AsyncClient(timeout=60) as client:
            replies = await asyncio.gather(*(client.get(url) for _ in range(3)))
        return [reply.status_code for reply in replies]

    with served(kind, blocking, "3/hour", is_watched=is_watched) as url:
        assert asyncio.run(at_once(url)) == [200] * 3
        assert httpx.get(url).status_code == 429


@pytest.mark.parametrize("kind", ["starlette", "fastapi"])
@watched_or_not
def test_a_websocket_is_refused_with_a_429_at_its_handshake(kind: str, is_watched: bool) -> None:
    limiter = RequestLimiter(clock=ManualClock(1_000))

    async def echo(websocket: WebSocket) -> None:
        await websocket.accept()
        async for text in websocket.iter_text():
            await websocket.send_text(text)

    limiting = starlette_limit if kind == "starlette" else fastapi_limit
    limited = limiting(Concurrency(1, ttl=600), limiter=None if is_watched else limiter)(echo)
    app: Any
    if kind == "starlette":
        app = Starlette(routes=[WebSocketRoute("/", limited)])
    else:
        app = FastAPI()
        app.add_api_websocket_route("/", limited)

    async def connect(url: str) -> None:
        async with websockets.connect(url) as first:
            await first.send("hello")
            assert await first.recv() == "hello"
            with pytest.raises(InvalidStatus) as refused:
                await websockets.connect(url)
            reply = refused.value.response
            assert reply.status_code == 429
            assert b"rate_limit_exceeded" in (reply.body or b"")

    async def can_connect(url: str) -> bool:
        try:
            async with websockets.connect(url) as again:
                await again.send("hello")
                return await again.recv() == "hello"
        except InvalidStatus:
            return False

    with serving(RateLimitMiddleware(app, limiter) if is_watched else app) as url:
        there = url.replace("http", "ws")
        asyncio.run(connect(there))
        wait_until(lambda: asyncio.run(can_connect(there)), "the place is free again")
