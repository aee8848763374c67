"""The upstream of the demo: a small app with a page for each kind of rule."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from headgate.config import Address
from headgate.service.http_server import Bounds, HttpServer
from headgate.service.sockets import listen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

_BOUNDS: Final = Bounds(header=64 * 1024, connections=10_000, receive=10.0, idle=75.0)
_MODE: Final = 0o600
_CHAT: Final = (
    "A headgate controls how much water enters a canal: each farm along it gets its fair share."
)
_TOKENS_PER_WORD: Final = 25
_PAGES: Final = {
    "/api/hello": "limited by API key (x-api-key)",
    "POST /login": "limited by client IP",
    "/report": "limited for all clients together",
    "/chat": "limited by tokens, counted after the response",
}


class DemoUpstream:
    """An HTTP/1.1 server on the unix socket *path*, in the event loop that starts it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._server = HttpServer(_app(), bounds=_BOUNDS)

    async def start(self) -> None:
        """Start listening."""
        await self._server.start([listen(Address(path=self._path), mode=_MODE).sock])

    async def aclose(self) -> None:
        """Stop listening, and end the connections."""
        await self._server.drain(linger=0.0, grace=0.0)


def _app() -> Starlette:
    routes = [
        Route("/", _index),
        Route("/api/{page:path}", _api),
        Route("/login", _login, methods=["POST"]),
        Route("/report", _report),
        Route("/chat", _chat),
    ]
    return Starlette(routes=routes)


async def _index(_: Request) -> Response:
    return _json({"service": "demo upstream", "pages": _PAGES})


async def _api(request: Request) -> Response:
    return _json({"hello": "world", "request": f"{request.method} {request.url.path}"})


async def _login(_: Request) -> Response:
    return _json({"error": "wrong password"}, 401)


async def _report(_: Request) -> Response:
    return _json({"report": "no incidents"})


async def _chat(_: Request) -> Response:
    tokens = _TOKENS_PER_WORD * len(_CHAT.split())
    return _json({"answer": _CHAT, "tokens": tokens}, headers={"x-tokens": str(tokens)})


def _json(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(content) + "\n", status, headers, "application/json")
