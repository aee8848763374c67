"""aiohttp apps of the contract, on aiohttp's own server."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, cast

from aiohttp import WSMsgType, web

from headgate.integrations.aiohttp_server import exempt, limit, report, setup
from headgate.testing.integration_contract import IntegrationContract, native_options
from tests.support.integrations.http_servers import NUMBER, HttpServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from headgate.testing.integration_contract import Answer, AppSpec, Route


class AiohttpCall:
    """A request of aiohttp."""

    def __init__(self, request: web.Request) -> None:
        self._request = request

    def header(self, name: str) -> str | None:
        return self._request.headers.get(name)

    def parts(self) -> AsyncIterator[bytes]:
        return cast("AsyncIterator[bytes]", self._request.content.iter_any())

    def report(self, amounts: Mapping[str, int]) -> None:
        report(self._request, amounts)

    def forbid(self) -> Answer:
        raise web.HTTPForbidden


async def respond(request: web.Request, answer: Answer) -> web.StreamResponse:
    """Send *answer*."""
    if not isinstance(answer.body, bytes):
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        await response.prepare(request)
        async for part in cast("AsyncIterator[bytes]", answer.body):
            await response.write(part)
        return response
    return web.Response(body=answer.body, status=answer.status, headers=answer.headers)


async def echo(request: web.Request) -> web.StreamResponse:
    """Answer each message with itself."""
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            await socket.send_str(message.data)
    return socket


class AiohttpContract(IntegrationContract):
    """`setup`, and `limit` on handlers."""

    interface = "asgi"
    has_websockets = has_lifespan = True
    answers_errors = False  # aiohttp answers them outside of all middlewares

    def build(self, spec: AppSpec) -> Any:
        app = web.Application()
        mounted: dict[str, web.Application] = {}
        app.router.add_get("/socket", echo)
        for route in spec.routes:
            owner = mounted.setdefault(route.mount, web.Application()) if route.mount else app
            owner.router.add_route("*", route.path, _handler(spec, route))
        for prefix, owner in mounted.items():
            app.add_subapp(prefix, owner)
        setup(app, **spec.options)
        return app

    def serve(self, app: Any) -> AiohttpServer:
        return AiohttpServer(app)


def _handler(spec: AppSpec, route: Route) -> Callable[..., Any]:
    async def handler(request: web.Request) -> web.StreamResponse:
        if request.method == "OPTIONS":
            raise web.HTTPMethodNotAllowed("OPTIONS", ["GET", "POST"])
        return await respond(
            request, await spec.script.aplay(route.behaviour, AiohttpCall(request))
        )

    found: Callable[..., Any] = handler
    if route.limit is not None:
        found = limit(**native_options(route.limit, lambda request: request.headers))(found)
    return exempt(found) if route.is_exempt else found


class AiohttpServer(HttpServer):
    """aiohttp's own server, in the event loop of a thread."""

    def __init__(self, app: web.Application) -> None:
        super().__init__()
        self._app = app
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiohttp")
        self._thread.start()
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=1
        )
        self._run(self._start())

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    async def _start(self) -> None:
        self._app.middlewares.insert(0, self._watched)
        await self._runner.setup()
        await web.SockSite(self._runner, self.listener).start()

    @web.middleware
    async def _watched(self, request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            return cast("web.StreamResponse", await handler(request))
        finally:
            self.ends.add(request.headers.get(NUMBER, ""))

    def stop(self) -> None:
        self._run(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
