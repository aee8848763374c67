"""Costs that are known when Django's response is over."""

from __future__ import annotations

import asyncio
import tempfile
from typing import TYPE_CHECKING, Any

import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.http import FileResponse, HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import AsyncClient, Client, RequestFactory

from headgate.integrations.django import report
from headgate.policy.loader import read_policy
from tests.support.django_project import finely, project

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from contextlib import AbstractContextManager


def parts() -> Iterator[bytes]:
    yield from (b"x" * 10, b"y" * 20)


async def async_parts() -> AsyncIterator[bytes]:
    for part in parts():
        await asyncio.sleep(0)
        yield part


def saying(request: HttpRequest) -> HttpResponse:
    return HttpResponse("x" * 30, headers={"X-Tokens": "30"})


def streaming(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(parts(), headers={"X-Tokens": "30"})


async def streaming_async(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(async_parts(), headers={"X-Tokens": "30"})


def reporting(request: HttpRequest) -> StreamingHttpResponse:
    def stream() -> Iterator[bytes]:
        yield b"x"
        report(request, llm=30)

    return StreamingHttpResponse(stream())


def file(request: HttpRequest) -> FileResponse:
    found = tempfile.TemporaryFile()  # noqa: SIM115 (the response closes it)
    found.write(b"x" * 30)
    found.seek(0)
    return FileResponse(found)


VIEWS: Any = {
    "saying": saying,
    "streaming": streaming,
    "streaming_async": streaming_async,
    "reporting": reporting,
    "file": file,
    "empty": lambda _: HttpResponse(headers={"X-Tokens": "0"}),
    "fine": finely,
}
AFTER = pytest.mark.parametrize("after", ["{header: x-tokens}", "{bytes: true}"])


def serving(after: str) -> AbstractContextManager[Client]:
    rule = f"{{id: llm, key_by: ip, limit: 100/hour fixed_window, cost: {{after: {after}}}}}"
    return project(VIEWS, policy=read_policy(f"version: 1\nrules: [{rule}]"))


def rest(client: Client) -> int:
    """What is left for the next request, which costs 1."""
    return int(client.get("/empty").headers["X-RateLimit-Remaining"])


@AFTER
@pytest.mark.parametrize("where", ["/saying", "/streaming", "/reporting"])
def test_views_are_charged_what_they_have_cost(after: str, where: str) -> None:
    with serving(after) as client:
        response: Any = client.get(where)
        if response.streaming:
            assert b"".join(response.streaming_content)
        response.close()
        assert rest(client) == 69


@AFTER
@pytest.mark.parametrize("where", ["/saying", "/streaming", "/streaming_async"])
def test_under_asgi_too(after: str, where: str) -> None:
    async def ask() -> int:
        client: Any = AsyncClient()
        response = await client.get(where)
        if response.streaming and response.is_async:
            _ = [part async for part in response.streaming_content]
        elif response.streaming:
            _ = list(response.streaming_content)
        response.close()
        return int((await client.get("/empty")).headers["X-RateLimit-Remaining"])

    with serving(after):
        assert asyncio.run(ask()) == 69


def test_a_stream_that_is_given_up_is_charged_the_bytes_so_far() -> None:
    with serving("{bytes: true}") as client:
        response: Any = client.get("/streaming")
        next(iter(response.streaming_content))
        response.close()
        assert rest(client) == 89


@pytest.mark.parametrize("has_wrapper", [True, False])
def test_a_file_is_charged_its_bytes_whoever_sends_it(has_wrapper: bool) -> None:
    with serving("{bytes: true}") as client:
        environ = RequestFactory().get("/file").environ

        class Wrapper:
            def __init__(self, file: Any, size: int) -> None:
                self.close = file.close

            def __iter__(self) -> Iterator[bytes]:
                yield b"sent by the server"

        if has_wrapper:
            environ["wsgi.file_wrapper"] = Wrapper
        handler: Any = WSGIHandler()
        result = handler(environ, lambda *_: None)
        sent = b"".join(result)
        result.close()
        assert sent == (b"sent by the server" if has_wrapper else b"x" * 30)
        assert rest(client) == 69


@pytest.mark.parametrize("where", ["/saying", "/streaming"])
def test_the_body_of_a_head_is_not_charged(where: str) -> None:
    with serving("{bytes: true}") as client:
        handler: Any = WSGIHandler()
        result = handler(RequestFactory().head(where).environ, lambda *_: None)
        assert b"".join(result)  # the server leaves it out, not Django
        result.close()
        assert rest(client) == 98
