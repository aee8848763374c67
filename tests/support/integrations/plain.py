"""Apps without a framework: the ASGI and the WSGI middleware around a router of a few lines."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from headgate.integrations import asgi, wsgi
from headgate.testing.integration_contract import Answer, IntegrationContract

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from headgate.integrations.asgi import Message
    from headgate.testing.integration_contract import AppSpec, Route

_FORBIDDEN = Answer(403, body=b"forbidden")


def route_of(spec: AppSpec, path: str) -> Route | None:
    """The route of *spec* that serves *path*."""
    for route in spec.routes:
        pattern = re.sub(r"\{\w+\}", "[^/]+", route.mount + route.path)
        if re.fullmatch(pattern, path):
            return route
    return None


class AsgiCall:
    """A request of a plain ASGI app."""

    def __init__(self, scope: Message, receive: Any) -> None:
        self._scope, self._receive = scope, receive

    def header(self, name: str) -> str | None:
        found: dict[bytes, bytes] = dict(self._scope["headers"])
        value = found.get(name.encode())
        return None if value is None else value.decode()

    async def parts(self) -> AsyncIterator[bytes]:
        has_more = True
        while has_more:
            message = await self._receive()
            yield message.get("body", b"")
            has_more = message.get("more_body", False)

    def report(self, amounts: Mapping[str, int]) -> None:
        asgi.report(self._scope, amounts)

    def forbid(self) -> Answer:
        return _FORBIDDEN


async def echo_socket(receive: Any, send: Any) -> None:
    """Answer each message of a websocket with itself."""
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})


async def live(receive: Any, send: Any) -> None:
    """Serve the lifespan of an app."""
    for kind in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{kind}.complete"})


class AsgiContract(IntegrationContract):
    """The ASGI middleware."""

    interface = "asgi"
    has_route_limits = knows_templates = answers_errors = False
    has_websockets = has_lifespan = can_cancel = True

    def build(self, spec: AppSpec) -> Any:
        async def app(scope: Message, receive: Any, send: Any) -> None:
            if scope["type"] == "lifespan":
                await live(receive, send)
            elif scope["type"] == "websocket":
                await echo_socket(receive, send)
            else:
                await self._answer(spec, scope, receive, send)

        return asgi.RateLimitMiddleware(app, **spec.options)

    async def _answer(self, spec: AppSpec, scope: Message, receive: Any, send: Any) -> None:
        route = route_of(spec, scope["path"])
        answer = Answer(404)
        if route is not None:
            answer = await spec.script.aplay(route.behaviour, AsgiCall(scope, receive))
        headers = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        start = {"type": "http.response.start", "status": answer.status, "headers": headers}
        await send(start)
        if isinstance(answer.body, AsyncIterator):
            async for part in answer.body:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        else:
            await send({"type": "http.response.body", "body": answer.body})


class WsgiCall:
    """A request of a plain WSGI app."""

    def __init__(self, environ: WSGIEnvironment) -> None:
        self._environ = environ

    def header(self, name: str) -> str | None:
        return self._environ.get(f"HTTP_{name.upper().replace('-', '_')}")

    def read(self, size: int) -> bytes:
        part: bytes = self._environ["wsgi.input"].read(size)
        return part

    def report(self, amounts: Mapping[str, int]) -> None:
        wsgi.report(self._environ, amounts)

    def forbid(self) -> Answer:
        return _FORBIDDEN


class WsgiContract(IntegrationContract):
    """The WSGI middleware."""

    interface = "wsgi"
    has_route_limits = knows_templates = answers_errors = False

    def build(self, spec: AppSpec) -> WSGIApplication:
        def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            route = route_of(spec, environ["PATH_INFO"])
            answer = Answer(404)
            if route is not None:
                answer = spec.script.play(route.behaviour, WsgiCall(environ))
            status = f"{answer.status} {HTTPStatus(answer.status).phrase}"
            start_response(status, list(answer.headers.items()))
            body: Any = answer.body
            return [body] if isinstance(body, bytes) else body

        return wsgi.RateLimitMiddleware(app, **spec.options)
