"""Responses that are streamed: passed on part by part, and over when they are."""

from __future__ import annotations

import asyncio
import io
import tempfile
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http import FileResponse, HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import AsyncClient, AsyncRequestFactory, Client, RequestFactory

from headgate import Concurrency
from headgate.integrations.django import RateLimitMiddleware, limit, report
from tests.support.django_project import OURS, get, project, statuses

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

both_ways = pytest.mark.parametrize("middleware", [(), (OURS,)], ids=["alone", "behind"])
one_at_a_time = limit(Concurrency(1, 60))


def parts(request: HttpRequest) -> Iterator[bytes]:
    yield from (b"one", b"two")
    if "fail" in request.GET:
        raise ValueError("in the stream")


@one_at_a_time
def streamed(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
    if "quick" in request.GET:
        return HttpResponse("quick")
    return StreamingHttpResponse(parts(request))


async def async_parts(request: HttpRequest) -> AsyncGenerator[bytes, None]:
    for part in parts(request):
        await asyncio.sleep(0)
        yield part


@one_at_a_time
async def streamed_async(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
    if "quick" in request.GET:
        return HttpResponse("quick")
    return StreamingHttpResponse(async_parts(request))


@both_ways
def test_a_stream_keeps_its_slot_until_its_end(middleware: tuple[str, ...]) -> None:
    with project({"a": streamed}, middleware=middleware) as client:
        response = get(client, "/a")
        assert "RateLimit-Policy" in response.headers
        assert statuses(client, "/a?quick", 2) == [429, 429]
        assert list(response.streaming_content) == [b"one", b"two"]
        assert statuses(client, "/a?quick", 2) == [200, 200]


@both_ways
def test_a_stream_that_is_given_up_or_fails_frees_its_slot(middleware: tuple[str, ...]) -> None:
    with project({"a": streamed}, middleware=middleware) as client:
        get(client, "/a").close()
        response = get(client, "/a?fail")
        with pytest.raises(ValueError, match="in the stream"):
            list(response.streaming_content)
        assert statuses(client, "/a?quick", 1) == [200]


@both_ways
def test_so_do_those_of_async_views(middleware: tuple[str, ...]) -> None:
    async def ask() -> list[int]:
        client: Any = AsyncClient()
        found = []
        response = await client.get("/a")
        found.append((await client.get("/a?quick")).status_code)
        assert [part async for part in response.streaming_content] == [b"one", b"two"]
        found.append((await client.get("/a?quick")).status_code)
        response = await client.get("/a?fail")
        with pytest.raises(ValueError, match="in the stream"):
            [part async for part in response.streaming_content]
        found.append((await client.get("/a?quick")).status_code)
        (await client.get("/a")).close()
        found.append((await client.get("/a?quick")).status_code)
        return found

    with project({"a": streamed_async}, middleware=middleware):
        assert asyncio.run(ask()) == [429, 200, 200, 200]


def test_a_plain_stream_under_asgi_frees_its_slot_too() -> None:
    async def ask() -> list[int]:
        client: Any = AsyncClient()
        response = await client.get("/a")
        found = [(await client.get("/a?quick")).status_code]
        assert list(response.streaming_content) == [b"one", b"two"]
        found.append((await client.get("/a?quick")).status_code)
        response = await client.get("/a?fail")
        with pytest.raises(ValueError, match="in the stream"):
            list(response.streaming_content)
        (await client.get("/a")).close()
        return [*found, (await client.get("/a?quick")).status_code]

    with project({"a": streamed}):
        assert asyncio.run(ask()) == [429, 200, 200]


def test_a_stream_under_asgi_that_django_does_not_close_is_over_all_the_same() -> None:
    async def ask(middleware: Any, request: str) -> int:
        response = await middleware(AsyncRequestFactory().get(request))
        if response.status_code == 200:
            with suppress(ValueError):
                async for _ in response:
                    pass
        return int(response.status_code)

    async def ask_all(stream: Any) -> list[int]:
        async def view(request: HttpRequest) -> StreamingHttpResponse:
            return StreamingHttpResponse(stream(request))

        middleware: Any = RateLimitMiddleware(view)
        return [await ask(middleware, where) for where in ("/", "/?fail", "/", "/")]

    with project({}, limits=Concurrency(1, 60)):
        assert asyncio.run(ask_all(async_parts)) == [200] * 4
    with (
        project({}, limits=Concurrency(1, 60)),
        pytest.warns(Warning, match="must consume synchronous iterators"),
    ):
        assert asyncio.run(ask_all(parts)) == [200] * 4


def test_without_anything_to_end_a_stream_is_the_views_own() -> None:
    async def ask() -> Any:
        own = async_parts(AsyncRequestFactory().get("/"))
        response: Any = StreamingHttpResponse(own)

        async def view(request: HttpRequest) -> Any:
            return response

        middleware: Any = RateLimitMiddleware(view)
        passed = await middleware(AsyncRequestFactory().get("/"))
        assert passed is response
        assert passed._iterator is own
        await own.aclose()
        return passed

    with project({}, limits="5/minute"):
        assert asyncio.run(ask()).headers["X-RateLimit-Remaining"] == "4"


def test_what_a_stream_has_used_is_settled_at_its_end() -> None:
    def telling(request: HttpRequest) -> Iterator[bytes]:
        used = 0
        try:
            for part in (b"one", b"two"):
                used += 10
                yield part
        finally:
            report(request, tokens=used)

    @limit("100/hour", name="tokens", cost=50, is_estimate=True)
    def view(request: HttpRequest) -> StreamingHttpResponse:
        return StreamingHttpResponse(telling(request))

    with project({"a": view}) as client:
        assert b"".join(get(client, "/a").streaming_content) == b"onetwo"  # 20 used
        response = get(client, "/a")
        next(iter(response.streaming_content))
        response.close()  # 10 used
        assert get(client, "/a").headers["X-RateLimit-Remaining"] == str(100 - 30 - 50)


def test_so_is_what_an_async_stream_has_used_whose_client_has_gone() -> None:
    async def telling(request: HttpRequest) -> AsyncGenerator[bytes, None]:
        used = 0
        try:
            while True:
                used += 10
                yield b"part"
        finally:
            report(request, tokens=used)

    async def view(request: HttpRequest) -> StreamingHttpResponse:
        return StreamingHttpResponse(telling(request))

    async def ask() -> str:
        limited: Any = limit("100/hour", name="tokens", cost=50, is_estimate=True)(view)
        response = await limited(AsyncRequestFactory().get("/"))
        async with aclosing(aiter(response)) as content:  # as Django does it
            await anext(content)
            await anext(content)
        await sync_to_async(response.close)()
        remaining: str = (await limited(AsyncRequestFactory().get("/"))).headers["RateLimit"]
        return remaining

    with project({}):
        assert ";r=30" in asyncio.run(ask())  # 20 used and 50 held


async def send_in_vain(where: str, *, parts: int) -> Any:
    """The response of *where*, as Django leaves it if it cannot send more than so many *parts*."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) > parts + 1:
            raise OSError("the client has gone")

    handler: Any = ASGIHandler()
    response = await handler.get_response_async(AsyncRequestFactory().get(where))
    with pytest.raises(OSError, match="has gone"):
        await handler.send_response(response, send)
    return response


@both_ways
def test_an_async_stream_that_cannot_be_sent_is_over(middleware: tuple[str, ...]) -> None:
    async def telling(request: HttpRequest) -> AsyncGenerator[bytes, None]:
        used = 0
        try:
            while True:
                used += 10
                yield b"part"
        finally:
            report(request, tokens=used)

    @limit(Concurrency(1, 60), name="slots")
    @limit("100/hour", name="tokens", cost=50, is_estimate=True)
    async def view(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
        if "quick" in request.GET:
            return HttpResponse("quick")
        return StreamingHttpResponse(telling(request))

    async def ask() -> Any:
        unsent = await send_in_vain("/a", parts=1)
        for _ in range(30):  # the loop closes the stream; the response stays open
            await asyncio.sleep(0)
        assert not unsent.closed
        return await AsyncClient().get("/a?quick")

    with project({"a": view}, middleware=middleware):
        response = asyncio.run(ask())
        assert response.status_code == 200
        assert '"tokens";r=30' in response.headers["RateLimit"]  # 20 used and 50 held


def test_a_file_is_left_to_the_server_to_send() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b"content")
        file.seek(0)

        def view(request: HttpRequest) -> FileResponse:
            return FileResponse(io.BytesIO() if file.closed else file)

        with project({}, limits=Concurrency(1, 60)):
            middleware: Any = RateLimitMiddleware(view)
            response = middleware(RequestFactory().get("/"))
            assert response.file_to_stream is file
            assert middleware(RequestFactory().get("/")).status_code == 429
            response.close()
            assert middleware(RequestFactory().get("/")).status_code == 200


def test_an_async_stream_under_wsgi_frees_its_slot() -> None:
    with project({"a": streamed_async}) as client:
        assert isinstance(client, Client)
        response = get(client, "/a")
        assert statuses(client, "/a?quick", 1) == [429]
        with pytest.warns(Warning, match="must consume asynchronous iterators"):
            assert b"".join(response) == b"onetwo"
        response.close()
        assert statuses(client, "/a?quick", 1) == [200]
