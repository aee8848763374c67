"""Starlette and FastAPI apps of the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from fastapi import Depends, FastAPI
from fastapi import Request as FastApiRequest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, WebSocketRoute
from starlette.routing import Route as StarletteRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from headgate.integrations import RequestLimiter, fastapi, starlette
from headgate.testing.integration_contract import IntegrationContract, native_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request

    from headgate.testing.integration_contract import Answer, AppSpec, Route

METHODS = ["GET", "POST"]


class StarletteCall:
    """A request of Starlette or FastAPI."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def header(self, name: str) -> str | None:
        return self._request.headers.get(name)

    def parts(self) -> AsyncIterator[bytes]:
        return cast("AsyncIterator[bytes]", self._request.stream())

    def report(self, amounts: Mapping[str, int]) -> None:
        starlette.report(self._request, amounts)

    def forbid(self) -> Answer:
        raise HTTPException(403)


def response_of(answer: Answer) -> Response:
    """The response of Starlette for *answer*."""
    if isinstance(answer.body, AsyncIterator):
        return StreamingResponse(answer.body, answer.status, answer.headers)
    return Response(cast("bytes", answer.body), answer.status, answer.headers)


async def echo(socket: WebSocket) -> None:
    """Answer each message with itself."""
    await socket.accept()
    try:
        while True:
            await socket.send_text(await socket.receive_text())
    except WebSocketDisconnect:
        return


def headers_of(request: Request) -> Mapping[str, str]:
    return request.headers


class StarletteContract(IntegrationContract):
    """The middleware, and `limit` on endpoints."""

    interface = "asgi"
    has_websockets = has_lifespan = can_cancel = True
    answers_errors = False  # Starlette answers them outside of all middlewares

    def build(self, spec: AppSpec) -> Any:
        routes: list[Any] = [WebSocketRoute("/socket", echo)]
        for route in spec.routes:
            one = StarletteRoute(route.path, self._endpoint(spec, route), methods=METHODS)
            routes.append(Mount(route.mount, routes=[one]) if route.mount else one)
        return Starlette(routes=routes, middleware=self.middleware(spec))

    def middleware(self, spec: AppSpec) -> list[Middleware]:
        """The middlewares of the app."""
        return [Middleware(starlette.RateLimitMiddleware, **spec.options)]

    def limiter(self, spec: AppSpec) -> RequestLimiter | None:
        """The limiter of routes; None for that of the middleware."""
        return None

    def _endpoint(self, spec: AppSpec, route: Route) -> Callable[..., Any]:
        async def endpoint(request: Request) -> Response:
            return response_of(await spec.script.aplay(route.behaviour, StarletteCall(request)))

        found: Callable[..., Any] = endpoint
        if route.limit is not None:
            own = native_options(route.limit, headers_of)
            found = starlette.limit(limiter=self.limiter(spec), **own)(found)
        return starlette.exempt(found) if route.is_exempt else found


class StarletteAroundContract(StarletteContract):
    """The middleware around the whole app."""

    answers_errors = True

    def build(self, spec: AppSpec) -> Any:
        return starlette.RateLimitMiddleware(super().build(spec), **spec.options)

    def middleware(self, spec: AppSpec) -> list[Middleware]:
        return []


class StarletteAloneContract(StarletteContract):
    """`limit` on endpoints of an app without the middleware."""

    has_app_limits = False
    _limiter: RequestLimiter | None = None

    def middleware(self, spec: AppSpec) -> list[Middleware]:
        return []

    def limiter(self, spec: AppSpec) -> RequestLimiter:
        if self._limiter is None:
            self._limiter = RequestLimiter(**spec.options)
        return self._limiter


class FastApiContract(IntegrationContract):
    """The middleware, and `limit` on endpoints."""

    interface = "asgi"
    has_websockets = has_lifespan = can_cancel = True
    answers_errors = False  # as in Starlette
    limiter: RequestLimiter | None = None
    """The limiter of routes; None for that of the middleware."""

    def build(self, spec: AppSpec) -> Any:
        @asynccontextmanager
        async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
            yield

        app = FastAPI(lifespan=lifespan)
        mounted: dict[str, FastAPI] = {}
        app.add_api_websocket_route("/socket", echo)
        for route in spec.routes:
            owner = app
            if route.mount:
                owner = mounted.setdefault(route.mount, FastAPI())
                app.mount(route.mount, owner)
            self.add(owner, route, _endpoint_of(spec, route))
        self.limit(app, spec)
        return app

    def limit(self, app: FastAPI, spec: AppSpec) -> None:
        """Limit *app* as a whole."""
        app.add_middleware(fastapi.RateLimitMiddleware, **spec.options)

    def add(self, app: FastAPI, route: Route, endpoint: Callable[..., Any]) -> None:
        """Add *route* to *app*."""
        if route.limit is not None:
            own = native_options(route.limit, headers_of)
            endpoint = fastapi.limit(limiter=self.limiter, **own)(endpoint)
        if route.is_exempt:
            endpoint = fastapi.exempt(endpoint)
        app.add_api_route(route.path, endpoint, methods=[*METHODS, "HEAD"])


class FastApiAloneContract(FastApiContract):
    """`limit` on endpoints of an app without the middleware."""

    has_app_limits = False

    def build(self, spec: AppSpec) -> Any:
        self.limiter = RequestLimiter(**spec.options)
        return super().build(spec)

    def limit(self, app: FastAPI, spec: AppSpec) -> None:
        """Nothing: the routes alone have limits."""


class FastApiDependencyContract(FastApiContract):
    """The middleware, and `RateLimit` as a dependency of routes."""

    def add(self, app: FastAPI, route: Route, endpoint: Callable[..., Any]) -> None:
        found = []
        if route.limit is not None:
            found.append(Depends(fastapi.RateLimit(**native_options(route.limit, headers_of))))
        if route.is_exempt:
            endpoint = fastapi.exempt(endpoint)
        app.add_api_route(route.path, endpoint, methods=[*METHODS, "HEAD"], dependencies=found)


def _endpoint_of(spec: AppSpec, route: Route) -> Callable[..., Any]:
    async def endpoint(request: Any) -> Response:
        return response_of(await spec.script.aplay(route.behaviour, StarletteCall(request)))

    endpoint.__annotations__ = {"request": FastApiRequest, "return": Response}
    return endpoint
