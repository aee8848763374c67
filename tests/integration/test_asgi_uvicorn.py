"""The ASGI middleware on a real uvicorn, asked by real clients."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from headgate.integrations.asgi import RateLimitMiddleware
from headgate.limits import Concurrency
from tests.support.servers import wait_until
from tests.support.uvicorn_apps import serving, wire

if TYPE_CHECKING:
    from pathlib import Path

SERVERS = pytest.mark.parametrize("http", ["h11", "httptools"])
BIG = b"x" * 3_000_000


async def hello(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    size = 0
    while True:
        message = await receive()
        size += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"%d" % size})


@SERVERS
def test_a_limit_is_kept_and_told(http: str) -> None:
    app = RateLimitMiddleware(hello, limits="2/hour")
    with serving(app, http=http, lifespan="off") as url, httpx.Client(base_url=url) as client:
        replies = [client.get("/") for _ in range(3)]
        head = client.head("/")

    assert [reply.status_code for reply in replies] == [200, 200, 429]
    assert replies[0].headers["ratelimit-policy"] == '"default";q=2;w=3600'
    assert replies[2].json()["retry_after"] == int(replies[2].headers["retry-after"])
    assert (head.status_code, head.content) == (429, b"")
    assert head.headers["content-length"] == replies[2].headers["content-length"]


@SERVERS
def test_after_a_refused_post_whose_body_nobody_read_the_next_request_is_answered(
    http: str,
) -> None:
    app = RateLimitMiddleware(hello, limits="1/hour", exempt=["/free"])
    with serving(app, http=http, lifespan="off") as url, httpx.Client(base_url=url) as client:
        statuses = [client.post("/", content=BIG).status_code for _ in range(3)]
        free = client.post("/free", content=BIG)

    assert statuses == [200, 429, 429]
    assert (free.status_code, free.text) == (200, str(len(BIG)))


@SERVERS
def test_a_refused_upload_that_waits_to_go_on_is_refused_before_it_does(http: str) -> None:
    async def scenario(url: str) -> str:
        async with wire(url) as connection:
            lines = (
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
            )
            await connection.say(lines)
            return await connection.hear("\r\n")

    app = RateLimitMiddleware(hello, limits="1/hour", cost=2)
    with serving(app, http=http, lifespan="off") as url:
        assert "429" in asyncio.run(scenario(url))


@SERVERS
@pytest.mark.parametrize("limits", ["9/hour", "9/hour fixed_window"])
def test_a_stream_of_events_is_seen_chunk_by_chunk(http: str, limits: str) -> None:
    """The app makes the next event when the client has seen the one before."""

    async def scenario() -> list[bytes]:
        seen = [asyncio.Event() for _ in range(3)]
        loop = asyncio.get_running_loop()

        async def events(scope: Any, receive: Any, send: Any) -> None:
            headers = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            for n in range(3):
                data = b"data: %d\n\n" % n
                await send({"type": "http.response.body", "body": data, "more_body": True})
                gone = asyncio.run_coroutine_threadsafe(seen[n].wait(), loop)
                await asyncio.wrap_future(gone)
            await send({"type": "http.response.body"})

        app = RateLimitMiddleware(events, limits=limits)
        found: list[bytes] = []
        with serving(app, http=http, lifespan="off") as url:
            async with httpx.AsyncClient() as client, client.stream("GET", url) as reply:
                assert reply.headers["x-ratelimit-remaining"] == "8"
                async for chunk in reply.aiter_raw():
                    found.append(chunk)
                    seen[len(found) - 1].set()
        return found

    assert asyncio.run(scenario()) == [b"data: 0\n\n", b"data: 1\n\n", b"data: 2\n\n"]


@SERVERS
def test_a_body_of_chunks_reaches_the_app_chunk_by_chunk(http: str) -> None:
    arrived: list[bytes] = []

    async def reading(scope: Any, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            arrived.append(message["body"])
            if not message["more_body"]:
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    async def scenario(url: str) -> None:
        async with wire(url) as connection:
            await connection.say("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
            for n, text in enumerate(("one", "two"), 1):
                await connection.say_chunk(text)
                wait = asyncio.get_running_loop().run_in_executor
                whole = b"onetwo"[: 3 * n]
                await wait(None, wait_until, lambda part=whole: b"".join(arrived) == part, text)
            await connection.say("0\r\n\r\n")
            assert "200" in await connection.hear("\r\n")

    with serving(RateLimitMiddleware(reading, limits="9/hour"), http=http, lifespan="off") as url:
        asyncio.run(scenario(url))


async def echo(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})


def test_websockets_are_accepted_with_headers_and_refused_with_a_response() -> None:
    async def scenario(url: str) -> None:
        place = url.replace("http", "ws")
        async with connect(place) as first:
            assert first.response is not None
            assert first.response.headers["x-ratelimit-limit"] == "1"
            await first.send("hello")
            assert await first.recv() == "hello"
            with pytest.raises(InvalidStatus) as refused:
                await connect(place)
            shown = refused.value.response
            assert shown.status_code == 429
            assert json.loads(shown.body)["error"] == "rate_limit_exceeded"
        for _ in range(200):  # until the server has seen the end of the first
            try:
                async with connect(place):
                    return
            except InvalidStatus:
                await asyncio.sleep(0.02)
        raise AssertionError("the place was never free again")

    app = RateLimitMiddleware(echo, limits=Concurrency(1, 3600))
    with serving(app, ws="websockets-sansio", lifespan="off") as url:
        asyncio.run(scenario(url))


@SERVERS
def test_a_client_that_goes_frees_its_slot(http: str) -> None:
    async def endless(scope: Any, receive: Any, send: Any) -> None:
        async def until_gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        gone = asyncio.ensure_future(until_gone())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not gone.done():
            await send({"type": "http.response.body", "body": b"tick ", "more_body": True})
            await asyncio.wait([gone], timeout=0.02)

    app = RateLimitMiddleware(endless, limits=Concurrency(1, 3600))
    with serving(app, http=http, lifespan="off") as url, httpx.Client() as client:
        with client.stream("GET", url) as first:
            assert first.status_code == 200
            assert client.get(url).status_code == 429

        def is_free() -> bool:
            with client.stream("GET", url) as reply:
                return reply.status_code == 200

        wait_until(is_free, "the slot is free")


def test_a_peer_on_a_unix_socket_is_counted(tmp_path: Path) -> None:
    path = str(tmp_path / "app.sock")
    app = RateLimitMiddleware(hello, limits="1/hour", trusted_proxies=["127.0.0.1"])
    with (
        serving(app, uds=path, lifespan="off"),
        httpx.Client(transport=httpx.HTTPTransport(uds=path), base_url="http://app") as client,
    ):
        ann, bob = {"x-forwarded-for": "198.51.100.1"}, {"x-forwarded-for": "198.51.100.2"}
        asked: list[dict[str, str]] = [{}, {}, ann, bob, ann]
        statuses = [client.get("/", headers=one).status_code for one in asked]

    assert statuses == [200, 429, 200, 200, 429]
