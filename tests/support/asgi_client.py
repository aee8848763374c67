"""A client that calls an ASGI app in this process, one request after another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from headgate.integrations import RequestLimiter
from headgate.integrations.starlette import RateLimitMiddleware
from headgate.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from headgate.integrations.asgi import Message

RATES = ("x-ratelimit-limit", "x-ratelimit-remaining", "ratelimit", "ratelimit-policy")


def still_limiter(**options: Any) -> RequestLimiter:
    """A limiter whose clock stands still: nothing comes back while a test runs."""
    return RequestLimiter(clock=ManualClock(1_000), **options)


def app_of(*routes: Any, limiter: RequestLimiter | None = None, **options: Any) -> Starlette:
    """An app; with a *limiter* it has the middleware."""
    middleware = [] if limiter is None else [Middleware(RateLimitMiddleware, limiter=limiter)]
    return Starlette(routes=list(routes), middleware=middleware, **options)


def watched_and_not(endpoint: Callable[[RequestLimiter | None], Any]) -> list[Starlette]:
    """The app with an endpoint at /: with the middleware, and without."""
    limiter = still_limiter()
    return [
        app_of(Route("/", endpoint(None), methods=["GET", "POST"]), limiter=limiter),
        app_of(Route("/", endpoint(still_limiter()), methods=["GET", "POST"])),
    ]


class Client:
    """Asks *app*, as somebody at *peer*."""

    def __init__(self, app: Any, peer: str = "203.0.113.7") -> None:
        self._transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(peer, 123))

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def sent() -> httpx.Response:
            async with httpx.AsyncClient(
                transport=self._transport, base_url="http://app.test"
            ) as client:
                return await client.request(method, path, **options)

        return asyncio.run(sent())

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.ask("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.ask("POST", path, **options)

    def statuses(self, path: str, times: int, **options: Any) -> list[int]:
        return [self.get(path, **options).status_code for _ in range(times)]

    def together(self, method: str, path: str, times: int, **options: Any) -> list[int]:
        """The statuses of so many requests at once."""

        async def sent() -> list[int]:
            async with httpx.AsyncClient(
                transport=self._transport, base_url="http://app.test"
            ) as client:
                asked = [client.request(method, path, **options) for _ in range(times)]
                return [reply.status_code for reply in await asyncio.gather(*asked)]

        return asyncio.run(sent())


async def converse(
    app: Any,
    path: str,
    receive: Callable[[], Awaitable[Message]],
    *,
    kind: str = "http",
    method: str = "GET",
    extensions: Sequence[str] = (),
) -> list[Message]:
    """All that *app* sends to one connection."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": kind,
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http" if kind == "http" else "ws",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"app.test")],
        "client": ("203.0.113.7", 123),
        "server": ("app.test", 80),
        "extensions": {name: {} for name in extensions},
    }
    if kind == "http":
        scope["method"] = method
    else:
        scope["subprotocols"] = []
    await app(scope, receive, send)
    return sent


def websocket(app: Any, path: str, *, extensions: Sequence[str] = ()) -> list[Message]:
    """All that *app* sends to a websocket that connects, says "hello" and goes."""
    said: Iterator[Message] = iter(
        [
            {"type": "websocket.connect"},
            {"type": "websocket.receive", "text": "hello"},
            {"type": "websocket.disconnect", "code": 1000},
        ]
    )

    async def receive() -> Message:
        return next(said)

    return asyncio.run(converse(app, path, receive, kind="websocket", extensions=extensions))
