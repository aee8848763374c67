"""Limits in a Starlette app: for all of it, for some of its endpoints, for none of some.

    app.add_middleware(RateLimitMiddleware, limits="100/minute", exempt=["/health"])

    @limit("5/minute")
    async def login(request): ...

A FastAPI app has `headgate.integrations.fastapi`, which has dependencies too.
"""

from __future__ import annotations

import functools
from functools import lru_cache
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

from headgate.errors import UsageError, not_installed

try:
    from starlette.concurrency import run_in_threadpool
except ModuleNotFoundError as error:
    raise not_installed("starlette", error) from error

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from headgate.integrations.asgi.middleware import (
    POLICY_VIOLATION,
    HttpContext,
    RateLimitMiddleware,
    deny_websocket,
)
from headgate.integrations.asgi.request import CONTEXT, AsgiRequest, Resolved, context_in, report
from headgate.integrations.decorators import (
    MOST_NAMED,
    LimitedFunction,
    chain,
    is_async,
    limited_in,
)
from headgate.integrations.exemptions import exempt
from headgate.integrations.request_context import SWITCHED, CompletedResponse, RequestContext
from headgate.integrations.request_limiter import RequestLimiter
from headgate.integrations.route_limit import LimitOptions, NamedLimits, RouteLimit
from headgate.integrations.starlette.routing import place_of, resolve, route_of
from headgate.responses import encoded_lines
from headgate.runtime.drivers import adrive

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.engine.stack import Limits
    from headgate.integrations.asgi.request import Message, Receive, Scope, Send
    from headgate.integrations.route_limit import LimitsOf
    from headgate.responses import DenialResponse

__all__ = [
    "LimitOptions",
    "RateLimitMiddleware",
    "Resolved",
    "TooManyRequests",
    "exempt",
    "limit",
    "report",
    "resolve",
]

F = TypeVar("F")


def limit(
    limits: Limits | LimitsOf[Any],
    *,
    limiter: RequestLimiter | None = None,
    **options: Unpack[LimitOptions],
) -> Callable[[F], F]:
    """Limit an endpoint of Starlette: a function, or a method of an `HTTPEndpoint`.

    The options are those of a `RouteLimit`; functions are called with the `Request` (or the
    `WebSocket`), and may be async. Without *limiter* that of the middleware is used. Without *name*
    each route that the function serves has its own counter; a function that is no endpoint has one
    counter for all callers. Several on one endpoint are one check, all or nothing. A denial is
    `TooManyRequests`, which the app answers with 429 unless it has a handler for it; a websocket is
    denied before it is accepted.

    Without `RateLimitMiddleware` the headers are added to the response of the endpoint, and to an
    `HTTPException` that it raises; the status of any other error is 500.
    """
    return LimitedEndpoint.decorator(RouteLimit(limits=limits, **options), limiter)


# Endpoints with limits. Counters have the same names in every process.
#
# The counter of an endpoint is named after the route and the function. The function alone would not
# do: a lambda, or a method that several classes inherit, has the same name everywhere. Any other
# function is named after itself; if its name is not its own, after the route of the request too.


class LimitedEndpoint(LimitedFunction):
    """An endpoint with limits."""

    def __init__(self, function: Any, *options: Any) -> None:
        super().__init__(function, *options)
        path = getattr(function, "__qualname__", "<")  # a partial has none, nor has an instance
        self._has_own_name = "<" not in path and not isinstance(function, MethodType)
        self._counters: dict[int, tuple[object, object, type, str]] = {}

    def limits_of(self, context: RequestContext, scope: Scope, owner: object = None) -> NamedLimits:
        """The limits with their names in a request. *owner*: the object whose method was called."""
        route = route_of(scope)
        known = self._counters.get(id(route))  # a route has no hash
        endpoint, kind = scope.get("endpoint"), type(owner)
        if known is None or known[0] is not route or known[1:3] != (endpoint, kind):
            known = route, endpoint, kind, self._counter(scope, owner)
            if route is not None and len(self._counters) < MOST_NAMED:
                self._counters[id(route)] = known
        return self.named(context, known[3])

    def _counter(self, scope: Scope, owner: object) -> str:
        name = self.names.counter
        if self._has_own_name and not self._serves(scope, owner):
            return name
        place = place_of(scope)
        return name if place is None else f"/{place.methods} {place.template} {name[1:]}"

    def _serves(self, scope: Scope, owner: object) -> bool:
        """True if it is the endpoint of the route of the request, or a method of that."""
        endpoint = scope.get("endpoint")
        if isinstance(endpoint, type):
            return type(owner) is endpoint
        return any(limited_in(one, LimitedEndpoint) is self for one in chain(endpoint))

    async def check(
        self, connection: HTTPConnection, owner: object = None
    ) -> tuple[RequestContext, TooManyRequests | None]:
        """Check the request of *connection*: its context, and the denial."""
        scope = connection.scope
        context = context_of(connection, self.limiter)
        limiter = self.limiter or context.limiter
        limits = self.limits_of(context, scope, owner)
        rest = context.start_route(limiter, limits, connection, AsgiRequest(scope))
        if rest is None or await adrive(rest):
            return context, None
        return context, denial_of(connection, context, limiter)

    def wrapper(self) -> Callable[..., Any]:
        """The endpoint for Starlette. A blocking function runs in a thread, as in Starlette."""
        function = self.function
        run = function if is_async(function) else functools.partial(run_in_threadpool, function)

        async def call(*args: Any, **kwargs: Any) -> Any:
            connection = connection_in(args, kwargs, function)
            context, denial = await self.check(connection, args[0] if args else None)
            if denial is not None:
                return await _deny(connection, denial)
            if context.is_managed:
                return await run(*args, **kwargs)
            try:
                result = await run(*args, **kwargs)
            except BaseException as error:
                await fail(context, error)
                raise
            return await _completed(context, connection, result)

        return call


def connection_in(
    args: tuple[Any, ...], kwargs: dict[str, Any], function: Callable[..., Any]
) -> HTTPConnection:
    """The request, or websocket, among the arguments of an endpoint."""
    for given in (*args, *kwargs.values()):
        if isinstance(given, HTTPConnection):
            return given
    raise UsageError(
        f"{getattr(function, '__qualname__', function)} was called without a Request: limit() of "
        "headgate.integrations.starlette is for endpoints that get one; a function of FastAPI "
        "is limited by that of headgate.integrations.fastapi"
    )


# The context of a request, and its end where no middleware sees to it.


_OWN_LIMITER: Final = "__headgate_limiter__"


def context_of(connection: HTTPConnection, limiter: RequestLimiter | None) -> RequestContext:
    """The context of the request; a new one if no part of the app has checked it."""
    scope = connection.scope
    context = context_in(scope)
    if context is None:
        limiter, request = limiter or own_limiter(scope), AsgiRequest(scope)
        if scope["type"] == "http":
            context = HttpContext(limiter, request, _no_send, is_managed=False)
        else:
            context = RequestContext(limiter, request)
        scope[CONTEXT] = context
    return context


async def _no_send(_message: Message) -> None:
    """The `send` of a context before its response has one."""


def own_limiter(scope: Scope) -> RequestLimiter:
    """The limiter of limits without one: it counts in this process.

    Each app has one, shared with all that are mounted in it. The outermost router keeps it, so that
    both end together; a dict cannot keep it, as routers have no hash.
    """
    outermost = scope.get("router") or scope.get("app")
    kept = getattr(outermost, "__dict__", None)
    if not isinstance(kept, dict):
        return _limiter_of_no_app()
    limiter: RequestLimiter | None = kept.get(_OWN_LIMITER)
    return kept.setdefault(_OWN_LIMITER, RequestLimiter()) if limiter is None else limiter


@lru_cache(maxsize=1)
def _limiter_of_no_app() -> RequestLimiter:
    return RequestLimiter()


def add_headers(response: Response, context: RequestContext) -> None:
    """Add the headers about limits to *response*, in place: others may have taken its headers."""
    lines = context.with_encoded_headers(response.raw_headers, response.status_code)
    response.raw_headers[:] = lines


def add_headers_to_error(error: BaseException, context: RequestContext) -> None:
    """Add the headers about limits to *error*, if it is an `HTTPException` of the app."""
    if isinstance(error, HTTPException) and not isinstance(error, TooManyRequests):
        lines = list((error.headers or {}).items())
        error.headers = dict(context.with_headers(lines, error.status_code))


async def fail(context: RequestContext, error: BaseException) -> None:
    """Complete a request whose endpoint raised *error*."""
    add_headers_to_error(error, context)
    await adrive(context.complete(CompletedResponse(status_of(error), error=error)))


async def _completed(context: RequestContext, connection: HTTPConnection, result: Any) -> Any:
    """*result* of an endpoint, so that headers are sent and the end is noticed."""
    if isinstance(result, Response) and not context.has_end:
        add_headers(result, context)
        return result
    if callable(result) and isinstance(context, HttpContext):
        return _CompletingResponse(result, context)
    status = SWITCHED if isinstance(connection, WebSocket) else 200
    await adrive(context.complete(CompletedResponse(status)))
    return result


class _CompletingResponse(Response):
    """A response, or any ASGI app in its place, that completes its request with its last body."""

    _inner: Callable[..., Any]
    _context: HttpContext

    def __init__(self, inner: Callable[..., Any], context: HttpContext) -> None:
        object.__setattr__(self, "_inner", inner)
        object.__setattr__(self, "_context", context)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._inner, name, value)

    @property
    def headers(self) -> Any:
        """The headers of the response itself."""
        return getattr(self._inner, "headers")  # noqa: B009 (mypy: any app may stand here)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        await self._context.serve(self._inner, scope, receive, send)


def status_of(error: BaseException) -> int:
    """The status of the response to *error*, as far as it is known here."""
    if isinstance(error, HTTPException):
        return error.status_code
    if isinstance(error, WebSocketDisconnect):
        return SWITCHED  # a usual end of a websocket
    return 500


# Denials: an exception that is its own response.
#
# A denial is raised, so that an app may answer it: it registers a handler for `TooManyRequests` (or
# for the status 429), as for any other error. Without one, ours is sent.


HANDLERS: Final = "starlette.exception_handlers"
"""The key of a scope under which Starlette has its handlers: by class of error, and by status."""


class TooManyRequests(HTTPException):
    """A denied request: status 429, or 503 if the limit could not be checked.

    *denial* is sent, to the byte, unless a handler of the app sends something else.
    """

    def __init__(self, denial: DenialResponse) -> None:
        words = "Too Many Requests" if denial.status == 429 else "Service Unavailable"
        super().__init__(denial.status, detail=words, headers=dict(denial.headers))
        self.denial = denial


def denial_of(
    connection: HTTPConnection, context: RequestContext, limiter: RequestLimiter
) -> TooManyRequests:
    """The error to raise; the app knows how to answer it."""
    handlers = connection.scope.get(HANDLERS)
    if handlers is not None:
        handlers[0].setdefault(TooManyRequests, _answer)
    return TooManyRequests(context.denial_response(limiter))


async def _deny(connection: HTTPConnection, denial: TooManyRequests) -> Response | None:
    """Deny the request: raise, or return the response where no handler would catch it."""
    if HANDLERS in connection.scope and not isinstance(connection, WebSocket):
        raise denial
    return await _answer(connection, denial)


async def _answer(connection: HTTPConnection, error: Exception) -> Response | None:
    """Answer `TooManyRequests`; it is registered for no other error."""
    assert isinstance(error, TooManyRequests)  # noqa: S101
    denial = error.denial
    if isinstance(connection, WebSocket):
        if connection.client_state is WebSocketState.CONNECTING:
            await deny_websocket(connection.scope, connection.receive, connection.send, denial)
        else:  # it was accepted, or at least received, already
            await connection.close(POLICY_VIOLATION)
        return None
    body = b"" if connection.scope.get("method") == "HEAD" else denial.body
    response = Response(body, denial.status)
    length = (b"content-length", b"%d" % len(denial.body))
    response.raw_headers = [*encoded_lines(denial.headers), length]
    return response
