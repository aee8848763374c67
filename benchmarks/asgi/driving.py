"""Requests through an app as a server would bring them, with nothing around it."""

from __future__ import annotations

from time import thread_time_ns
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from benchmarks.asgi.apps import App

HEADERS = [
    (b"host", b"api.example.com"),
    (b"user-agent", b"benchmark/1.0"),
    (b"accept", b"application/json"),
    (b"accept-encoding", b"gzip, deflate"),
    (b"connection", b"keep-alive"),
    (b"x-api-key", b"0123456789abcdef"),
]
"""What a client sends, more or less."""


def new_scope(path: str = "/items") -> dict[str, Any]:
    """What a server says of a request; an app may change it, so each has its own."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": HEADERS,
        "client": ("203.0.113.7", 50_000),
        "server": ("127.0.0.1", 8000),
        "state": {},
    }


async def _receive() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _send(message: dict[str, Any]) -> None:
    pass


def sample_of(app: App, loop: asyncio.AbstractEventLoop, sample_ns: int) -> Callable[[], float]:
    """What takes one sample of *app*: nanoseconds a request."""

    async def run(count: int) -> int:
        scopes = [new_scope() for _ in range(count)]
        start = thread_time_ns()
        for scope in scopes:
            await app(scope, _receive, _send)
        return thread_time_ns() - start

    fastest = min(loop.run_until_complete(run(50)) for _ in range(5))
    count = max(50, sample_ns * 50 // fastest)
    return lambda: loop.run_until_complete(run(count)) / count


async def response_of(app: App) -> tuple[int, dict[str, str]]:
    """The status and the headers that *app* answers with."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(new_scope(), _receive, send)
    lines = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], lines
