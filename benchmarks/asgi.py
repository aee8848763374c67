"""ASGI apps, bare and with a limit as users write it, and requests without a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import thread_time_ns
from typing import TYPE_CHECKING, Any

from fastapi import Depends, FastAPI
from fastapi_limiter.depends import RateLimiter as FastAPILimiter
from pyrate_limiter import Duration, Limiter, Rate
from slowapi import Limiter as SlowLimiter
from slowapi.middleware import SlowAPIASGIMiddleware, SlowAPIMiddleware
from slowapi.util import get_remote_address
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from headgate.integrations.asgi import RateLimitMiddleware
from headgate.integrations.fastapi import RateLimit
from headgate.integrations.starlette import limit
from headgate.policy.loader import read_policy

if TYPE_CHECKING:
    import asyncio

    from starlette.requests import Request

App = Callable[[Any, Any, Any], Awaitable[None]]

NEVER_REACHED = "1000000000/minute"
POLICY = f"""
version: 1
rules:
  - {{id: items, match: {{endpoint: /items, method: GET}}, key_by: ip, limit: {NEVER_REACHED}}}
"""


@dataclass(frozen=True, slots=True)
class Contestant:
    """An app with a limit, the name of the same app without it, and the headers it sends."""

    name: str
    app: App
    bare: str
    sends: str = "nothing"


_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/plain")],
}
_BODY = {"type": "http.response.body", "body": b"ok"}


async def plain(_scope: Any, _receive: Any, send: Any) -> None:
    """An app of two messages: all that is measured around it is the middleware."""
    await send(_START)
    await send(_BODY)


async def _items(request: Request) -> Response:  # noqa: ARG001 (slowapi asks for the name)
    return PlainTextResponse("ok")


def _starlette(endpoint: Callable[[Request], Awaitable[Response]] = _items) -> Starlette:
    return Starlette(routes=[Route("/items", endpoint)])


def _fastapi(*dependencies: Any) -> FastAPI:
    app = FastAPI()

    @app.get("/items", dependencies=list(dependencies))
    async def items() -> Response:
        return PlainTextResponse("ok")

    return app


def bare_apps() -> dict[str, App]:
    return {"bare": plain, "starlette": _starlette(), "fastapi": _fastapi()}


def our_apps() -> list[Contestant]:
    in_starlette = _starlette()
    in_starlette.add_middleware(RateLimitMiddleware, limits=NEVER_REACHED)
    in_fastapi = _fastapi()
    in_fastapi.add_middleware(RateLimitMiddleware, limits=NEVER_REACHED)
    decorated = _starlette(limit(NEVER_REACHED)(_items))
    depending = _fastapi(Depends(RateLimit(NEVER_REACHED)))
    depending.add_middleware(RateLimitMiddleware)
    by_key = RateLimitMiddleware(
        plain, limits=NEVER_REACHED, key=lambda request: request.header("x-api-key")
    )
    stacked = RateLimitMiddleware(plain, limits=f"{NEVER_REACHED}; 10000000000/hour")
    ruled = RateLimitMiddleware(plain, policy=read_policy(POLICY))
    return [
        _ours("middleware", RateLimitMiddleware(plain, limits=NEVER_REACHED), "bare"),
        _ours("middleware, key function", by_key, "bare"),
        _ours("middleware, two limits", stacked, "bare"),
        _ours("middleware, a policy", ruled, "bare"),
        _ours("middleware in Starlette", in_starlette, "starlette"),
        _ours("decorator in Starlette", decorated, "starlette"),
        _ours("middleware in FastAPI", in_fastapi, "fastapi"),
        _ours("dependency in FastAPI", depending, "fastapi"),
    ]


async def _nothing() -> None:
    pass


def peers() -> list[Contestant]:
    return [
        Contestant("fastapi, an empty dependency", _fastapi(Depends(_nothing)), "fastapi"),
        *(_slowapi_decorated(headers=headers) for headers in (False, True)),
        _slowapi_middleware(SlowAPIASGIMiddleware, "ASGI middleware", headers=False),
        _slowapi_middleware(SlowAPIASGIMiddleware, "ASGI middleware", headers=True),
        _slowapi_middleware(SlowAPIMiddleware, "middleware", headers=True),
        _fastapi_limiter(),
    ]


def _ours(name: str, app: App, bare: str) -> Contestant:
    return Contestant(f"headgate, {name}", app, bare, sends="all headers")


def _slowapi_decorated(*, headers: bool) -> Contestant:
    limiter = SlowLimiter(key_func=get_remote_address, headers_enabled=headers)
    app = _starlette(limiter.limit(NEVER_REACHED)(_items))
    app.state.limiter = limiter
    sends = "X-RateLimit" if headers else "nothing"
    return Contestant(f"slowapi, decorator, {sends}", app, "starlette", sends=sends)


def _slowapi_middleware(kind: Any, name: str, *, headers: bool) -> Contestant:
    limiter = SlowLimiter(
        key_func=get_remote_address, default_limits=[NEVER_REACHED], headers_enabled=headers
    )
    app = _starlette()
    app.state.limiter = limiter
    app.add_middleware(kind)
    sends = "X-RateLimit" if headers else "nothing"
    return Contestant(f"slowapi, {name}, {sends}", app, "starlette", sends=sends)


def _fastapi_limiter() -> Contestant:
    limiter = Limiter(Rate(1_000_000_000, Duration.MINUTE))
    app = _fastapi(Depends(FastAPILimiter(limiter)))
    return Contestant("fastapi-limiter, dependency", app, "fastapi")


HEADERS = [
    (b"host", b"api.example.com"),
    (b"user-agent", b"benchmark/1.0"),
    (b"accept", b"application/json"),
    (b"accept-encoding", b"gzip, deflate"),
    (b"connection", b"keep-alive"),
    (b"x-api-key", b"0123456789abcdef"),
]
"""The headers of a usual request."""


def new_scope(path: str = "/items") -> dict[str, Any]:
    """A new scope: an app may change it."""
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
    """A function that takes one sample of *app*: nanoseconds a request."""

    async def run(count: int) -> int:
        scopes = [new_scope() for _ in range(count)]
        start = thread_time_ns()
        while scopes:  # a server drops each scope after its request
            await app(scopes.pop(), _receive, _send)
        return thread_time_ns() - start

    fastest = min(loop.run_until_complete(run(50)) for _ in range(5))
    count = max(50, sample_ns * 50 // fastest)
    return lambda: loop.run_until_complete(run(count)) / count


async def response_of(app: App) -> tuple[int, dict[str, str]]:
    """The status and the headers of the response of *app*."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(new_scope(), _receive, send)
    lines = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], lines
