"""An answer that a caller gets is as the server sent it: nothing of its body has been read."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import requests
from multidict import CIMultiDict
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse
from yarl import URL

from headgate.clients.aiohttp import PacedMiddleware
from headgate.clients.httpx import AsyncPacedTransport, PacedTransport
from headgate.clients.requests import PacedAdapter
from tests.support.httpx_clients import Body

ADDRESS = "https://api.example.com/things"
LAST = {"Retry-After": "3600", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "60"}
statuses = pytest.mark.parametrize("status", [200, 404, 429, 503])


@statuses
def test_of_httpx(status: int) -> None:
    body = Body(3)
    inner = httpx.MockTransport(lambda _: httpx.Response(status, headers=LAST, stream=body))
    with (
        httpx.Client(transport=PacedTransport(inner)) as client,
        client.stream("GET", ADDRESS) as response,
    ):
        assert (response.status_code, body.left, body.closed) == (status, 3, False)
        assert next(response.iter_raw()) == b"x" * 1_000
        assert body.left == 2


@statuses
def test_of_httpx_on_an_event_loop(status: int) -> None:
    body = Body(3)
    inner = httpx.MockTransport(lambda _: httpx.Response(status, headers=LAST, stream=body))

    async def story() -> None:
        async with (
            httpx.AsyncClient(transport=AsyncPacedTransport(inner)) as client,
            client.stream("GET", ADDRESS) as response,
        ):
            assert (response.status_code, body.left, body.closed) == (status, 3, False)
            assert len(await response.aread()) == 3_000

    asyncio.run(story())


class File:
    """What urllib3 reads a body from; knows how much of it was read."""

    def __init__(self) -> None:
        self.read_off = 0
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        self.read_off += 1
        return b"x" if self.read_off < 4 else b""

    def close(self) -> None:
        self.closed = True


@statuses
def test_of_requests(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    file: Any = File()

    def send(adapter: HTTPAdapter, request: Any, **_: object) -> requests.Response:
        raw = HTTPResponse(file, headers=LAST, status=status, preload_content=False)
        return adapter.build_response(request, raw)

    monkeypatch.setattr(HTTPAdapter, "send", send)
    with requests.Session() as session:
        session.mount("https://", PacedAdapter())
        response = session.get(ADDRESS, stream=True)
        assert (response.status_code, file.read_off, file.closed) == (status, 0, False)
        assert response.content == b"xxx"


@statuses
def test_of_aiohttp(status: int) -> None:
    """It has a status and header fields, and no other attribute to read."""
    request: Any = SimpleNamespace(
        url=URL(ADDRESS), body=b"", method="GET", headers=CIMultiDict[str]()
    )
    response: Any = SimpleNamespace(status=status, headers=CIMultiDict(LAST))

    async def handler(_: object) -> Any:
        return response

    async def story() -> None:
        assert await PacedMiddleware()(request, handler) is response

    asyncio.run(story())
