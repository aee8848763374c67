"""Costs known afterwards on a real uvicorn: clients that read to the end, and that go away."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import FileResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

from headgate.integrations.asgi import RateLimitMiddleware
from headgate.integrations.starlette import report
from headgate.policy.loader import read_policy
from tests.support.servers import wait_until
from tests.support.uvicorn_apps import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from starlette.requests import Request

POLICY = read_policy(
    """
version: 1
rules:
  - id: tokens
    match: {endpoint: [/said, /told]}
    key_by: ip
    limit: 1000000/day fixed_window
    cost: {after: {header: x-tokens}}
  - id: traffic
    match: {endpoint: [/file, /stream, /left]}
    key_by: ip
    limit: 1000000/day fixed_window
    cost: {after: {bytes: true}}
"""
)
PART = b"x" * 1000


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield PART
        await asyncio.sleep(0.01)


async def three() -> AsyncIterator[bytes]:
    for _ in range(3):
        yield PART
        await asyncio.sleep(0)


async def said(_: Request) -> PlainTextResponse:
    return PlainTextResponse("x", headers={"X-Tokens": "812"})


async def told(request: Request) -> StreamingResponse:
    async def stream() -> AsyncIterator[bytes]:
        yield PART
        report(request, tokens=500)

    return StreamingResponse(stream())


def app(file: Path) -> RateLimitMiddleware:
    routes = [
        Route("/said", said),
        Route("/told", told),
        Route("/file", lambda _: FileResponse(file)),
        Route("/stream", lambda _: StreamingResponse(three())),
        Route("/left", lambda _: StreamingResponse(endless())),
    ]
    return RateLimitMiddleware(Starlette(routes=routes), policy=POLICY)


def used(client: httpx.Client, path: str) -> int:
    """What has been used of the rule for *path* before this request, which takes 1 to enter."""
    return 1_000_000 - int(client.head(path).headers["x-ratelimit-remaining"]) - 1


@pytest.mark.parametrize("http", ["h11", "httptools"])
def test_what_responses_cost_is_charged_when_they_are_over(http: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 5000)
    options: Any = {"http": http, "lifespan": "off"}
    with serving(app(file), **options) as url, httpx.Client(base_url=url) as client:
        assert client.get("/said").text == "x"
        wait_until(lambda: used(client, "/said") >= 812, "the tokens are charged")
        client.get("/told")
        wait_until(lambda: used(client, "/said") >= 812 + 500, "those reported are charged")
        client.get("/file")
        client.get("/stream")
        wait_until(lambda: used(client, "/file") >= 8000, "the bytes are charged")
        assert used(client, "/file") < 9000


@pytest.mark.parametrize("http", ["h11", "httptools"])
def test_a_client_that_goes_away_is_charged_the_bytes_so_far(http: str, tmp_path: Path) -> None:
    options: Any = {"http": http, "lifespan": "off"}
    with serving(app(tmp_path), **options) as url, httpx.Client(base_url=url) as client:
        with client.stream("GET", "/left") as reply:
            heard = 0
            for part in reply.iter_raw():
                heard += len(part)
                if heard >= 5 * len(PART):
                    break
        wait_until(lambda: used(client, "/file") >= 5 * len(PART), "the bytes are charged")
