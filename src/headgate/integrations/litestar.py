"""Limits in a Litestar app: a plugin for all of it, and guards for single routes.

    @post("/login", guards=[limit("5/minute")])
    async def login() -> str: ...

    app = Litestar([login], plugins=[RateLimitPlugin(limits="100/minute")])

The plugin adds the ASGI middleware as the outermost one of each route. Litestar finds the route
first, so paths that do not exist are not limited; `headgate.integrations.asgi` around the app does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from headgate.errors import UsageError, not_installed

try:
    from litestar.exceptions import HTTPException, WebSocketException
except ModuleNotFoundError as error:
    raise not_installed("litestar", error) from error

from litestar.middleware import DefineMiddleware
from litestar.plugins import InitPlugin
from litestar.response import Response

from headgate.integrations.asgi import (
    CONTEXT,
    POLICY_VIOLATION,
    AsgiRequest,
    RateLimitMiddleware,
    report,
)
from headgate.integrations.exemptions import exempt as exempt_function
from headgate.integrations.request_limiter import limiter_of
from headgate.integrations.route_limit import RouteLimit, named_limits, shown_name
from headgate.runtime.drivers import adrive

if TYPE_CHECKING:
    from litestar.config.app import AppConfig
    from litestar.connection import ASGIConnection, Request
    from litestar.handlers import BaseRouteHandler

    from headgate.engine.stack import Limits
    from headgate.integrations.request_context import RequestContext
    from headgate.integrations.request_limiter import LimiterOptions, RequestLimiter
    from headgate.integrations.route_limit import LimitOptions, LimitsOf
    from headgate.responses import DenialResponse

    Connection = ASGIConnection[Any, Any, Any, Any]

__all__ = ["RateLimitPlugin", "TooManyRequests", "exempt", "limit", "report"]

F = TypeVar("F")


class RateLimitPlugin(InitPlugin):
    """Limits the requests to an app by *limiter*, or by a new one with the same options.

    A limiter that was made here is closed with the app.
    """

    def __init__(
        self, limiter: RequestLimiter | None = None, **options: Unpack[LimiterOptions]
    ) -> None:
        self.limiter = limiter_of(limiter, options)
        self._owns_limiter = limiter is None
        _ = self.limiter.engine  # reports a wrong store at once

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Add the middleware, the answer to denials, and the end of the limiter."""
        made: Any = RateLimitMiddleware  # Litestar has types of its own for scopes and messages
        app_config.middleware.insert(0, DefineMiddleware(made, limiter=self.limiter))
        handlers: dict[Any, Any] = dict(app_config.exception_handlers)
        handlers.setdefault(TooManyRequests, _answer)
        app_config.exception_handlers = handlers
        app_config.on_startup.append(self._start)
        if self._owns_limiter:
            app_config.on_shutdown.append(self.limiter.aclose)
        return app_config

    async def _start(self) -> None:
        self.limiter.watch()


def limit(limits: Limits | LimitsOf[Any], **options: Unpack[LimitOptions]) -> RateLimitGuard:
    """A guard that limits a handler, or each handler of a controller or a router.

    The options are those of a `RouteLimit`; functions get the connection, and may be async. Without
    *name* each route has a counter of its own. A denial is `TooManyRequests`, which the app answers
    with 429 unless it has a handler for it; a websocket is closed before it is accepted. If one of
    several guards denies, none of them charges. The app needs a `RateLimitPlugin`.
    """
    return RateLimitGuard(RouteLimit(limits=limits, **options))


class RateLimitGuard:
    """The guard that `limit` makes."""

    def __init__(self, one: RouteLimit) -> None:
        self._limit = one

    async def __call__(self, connection: Connection, handler: BaseRouteHandler) -> None:
        """Check the request of *connection*; raise the denial."""
        scope: Any = connection.scope
        context = _context_of(connection)
        shown, counter = shown_name(handler.handler_name), f"{scope['path_template']} {handler}"
        number = 0 if self._limit.name is not None else context.count_unnamed(shown)
        limits = named_limits((self._limit,), shown, counter, number, number)
        rest = context.start_route(context.limiter, limits, connection, AsgiRequest(scope))
        if rest is None or await adrive(rest):
            return
        denial = TooManyRequests(context.denial_response(context.limiter))
        if scope["type"] == "websocket":
            raise WebSocketException(detail=denial.detail, code=POLICY_VIOLATION)
        raise denial


def exempt(function: F) -> F:
    """Exempt a handler from the limits of the whole app: write it below `@get`."""
    if hasattr(function, "handler_name"):
        raise UsageError(f"cannot exempt {function!r}; write @exempt below @get, above a function")
    return exempt_function(function)


class TooManyRequests(HTTPException):
    """A denied request: status 429, or 503 if the limit could not be checked.

    *denial* is sent, to the byte, unless a handler of the app sends something else.
    """

    def __init__(self, denial: DenialResponse) -> None:
        words = "Too Many Requests" if denial.status == 429 else "Service Unavailable"
        headers = dict(denial.headers)
        super().__init__(detail=words, status_code=denial.status, headers=headers)
        self.denial = denial


def _answer(_request: Request[Any, Any, Any], denial: TooManyRequests) -> Response[bytes]:
    headers = {name.lower(): value for name, value in denial.denial.headers}
    kind = headers.pop("content-type")
    return Response(
        denial.denial.body, status_code=denial.status_code, headers=headers, media_type=kind
    )


def _context_of(connection: Connection) -> RequestContext:
    scope: Any = connection.scope
    context: RequestContext | None = scope.get(CONTEXT)
    if context is None:
        raise UsageError(
            "nothing limits this request: add RateLimitPlugin() to the plugins of the app"
        )
    return context
