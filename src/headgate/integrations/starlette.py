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
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, Unpack

from headgate.errors import UsageError, not_installed

try:
    from starlette.concurrency import run_in_threadpool
except ModuleNotFoundError as error:
    raise not_installed("starlette", error) from error

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Host, Match, Mount
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from headgate.integrations.asgi import (
    CONTEXT,
    POLICY_VIOLATION,
    AsgiContext,
    AsgiRequest,
    HttpContext,
    RateLimitMiddleware,
    Resolved,
    denial_lines,
    deny_websocket,
    report,
)
from headgate.integrations.check_result import SWITCHED, CompletedResponse
from headgate.integrations.decorators import (
    MOST_NAMED,
    LimitedFunction,
    chain,
    is_async,
    limited_in,
)
from headgate.integrations.exemptions import exempt, is_exempt
from headgate.integrations.request_limiter import RequestLimiter
from headgate.integrations.route_limit import LimitOptions, RouteLimit, named_limits
from headgate.runtime.drivers import adrive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headgate.engine.stack import Limits
    from headgate.integrations.asgi import Message, Receive, Scope, Send
    from headgate.integrations.request_context import RequestContext
    from headgate.integrations.route_limit import LimitsOf, NamedLimits
    from headgate.responses import DenialResponse
    from headgate.runtime.effects import Effects

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
        self._routes: dict[int, tuple[object, object, type, str, NamedLimits]] = {}
        """By route: the route, its endpoint, the class of that, the counter, and the limits."""

    def start(
        self, connection: HTTPConnection, context: RequestContext, owner: object = None
    ) -> Effects[bool] | None:
        """Begin to check the request of *connection*: see `RequestContext.start`.

        *owner*: the object whose method was called.
        """
        scope = connection.scope
        route = route_of(scope)
        known = self._routes.get(id(route))  # a route has no hash
        endpoint, kind = scope.get("endpoint"), type(owner)
        if known is None or known[0] is not route or known[1:3] != (endpoint, kind):
            counter = self._counter(scope, owner)
            known = route, endpoint, kind, counter, self.numbered(counter)
            if route is not None and len(self._routes) < MOST_NAMED:
                self._routes[id(route)] = known
        before = context.count_unnamed(self.names.shown, self.unnamed)
        limits = self.numbered(known[3], before) if before else known[4]
        limiter = self.limiter or context.limiter
        return context.start_route(limiter, limits, connection, AsgiRequest(scope))

    def numbered(self, counter: str, before: int = 0) -> NamedLimits:
        """The limits with their names. *before* limits with the same name came before."""
        return named_limits(self.limits, self.names.shown, counter, self.first, before)

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

    def wrapper(self) -> Callable[..., Any]:
        """The endpoint for Starlette. A blocking function runs in a thread, as in Starlette."""
        function = self.function
        run = function if is_async(function) else functools.partial(run_in_threadpool, function)

        async def call(*args: Any, **kwargs: Any) -> Any:
            owner = args[0] if args else None
            connection = owner if type(owner) is Request else connection_in(args, kwargs, function)
            context = context_of(connection, self.limiter)
            rest = self.start(connection, context, owner)
            if rest is not None and not await adrive(rest):
                return await _deny(connection, denial_of(connection, context, self.limiter))
            if context.is_managed:
                return await run(*args, **kwargs)
            try:
                result = await run(*args, **kwargs)
            except BaseException as error:
                await fail(context, error)
                raise
            if isinstance(result, Response) and not context.open_checks:
                add_headers(result, context)
                return result
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


def context_of(connection: HTTPConnection, limiter: RequestLimiter | None) -> AsgiContext:
    """The context of the request; a new one if no part of the app has checked it."""
    scope = connection.scope
    context: AsgiContext | None = scope.get(CONTEXT)
    if context is None:
        kind = HttpContext if scope["type"] == "http" else AsgiContext
        context = kind(limiter or own_limiter(scope), scope, _no_send, is_managed=False)
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


def add_headers(response: Response, context: AsgiContext) -> None:
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
    connection: HTTPConnection, context: RequestContext, limiter: RequestLimiter | None
) -> TooManyRequests:
    """The error to raise; the app knows how to answer it."""
    handlers = connection.scope.get(HANDLERS)
    if handlers is not None:
        handlers[0].setdefault(TooManyRequests, _answer)
    return TooManyRequests(context.denial_response(limiter or context.limiter))


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
    response.raw_headers = denial_lines(denial)
    return response


# The route of a request, found from anywhere.
#
# A middleware runs before the app has looked for the route. Later, the scope has only the last part
# of the way: the route as it is in its router, and the path of the mount as the client spelled it.
# So the routes are walked again from the outermost router, to the whole template:
# `/api/{version}/users/{id}`.


_REST: Final = "/{path}"
"""What the template of a mount ends with: the part that its app is to look at."""

_MOST_MIDDLEWARES: Final = 100
"""The middlewares that are looked through at most: one may hold itself."""


class _Found(NamedTuple):
    """Where a walk has ended. *route*: None at a mount that cannot be looked into further."""

    template: str
    endpoint: object
    route: object | None


def resolve(scope: Scope, app: object = None) -> Resolved | None:
    """The route that the request of *scope* is for; None if there is none.

    A method that the route does not serve finds it all the same. *app* is what the scope will be
    given to, if it is known: a middleware does, and where the outermost router cannot look
    into what is mounted, the walk goes on there; mounts in between are not in the template. Else
    the template goes as far as the mount. The scope is not changed.
    """
    found = _walk(scope, app)
    if found is None:
        return None
    return Resolved(found.template or "/", _marked_method(found.endpoint, scope))


def _walk(scope: Scope, app: object = None) -> _Found | None:
    if scope["type"] not in ("http", "websocket"):
        return None
    # FastAPI keeps its current route in the scope, which is not that of this walk.
    here = {**scope, "path_params": {}, "fastapi": {}}
    inner = _routes_behind(app)
    outer = _routes_of(scope.get("router") or scope.get("app"))
    found = None
    if outer is not None:
        root_path = scope.get("app_root_path", scope.get("root_path", ""))
        found = _find(outer, {**here, "root_path": root_path}, "")
    if inner is None or inner is outer or (found is not None and found.route is not None):
        return found
    return _find(inner, here, "" if found is None else found.template) or found


def _routes_of(app: object) -> Sequence[Any] | None:
    """The routes of *app*, if it has any and they are Starlette's; a route may be an app too."""
    if isinstance(app, BaseRoute):
        return [app]
    routes = getattr(app, "routes", None)
    if not isinstance(routes, list | tuple) or not all(hasattr(one, "matches") for one in routes):
        return None
    return routes


def _routes_behind(app: object) -> Sequence[Any] | None:
    """The routes of *app*, or of the app that it is a middleware of.

    Not those of `scope["app"]`: that may be several mounts further out, and a path below a mount
    would be taken for one of its own.
    """
    for _ in range(_MOST_MIDDLEWARES):
        routes = _routes_of(app)
        if routes is not None or app is None:
            return routes
        app = getattr(app, "app", None)
    return None


def _find(routes: Iterable[Any], scope: Scope, before: str) -> _Found | None:
    """The route among *routes* that a router would take; *before*: the templates on the way."""
    partial = None
    for route in _flat(routes):
        match, more = route.matches(scope)
        if match is Match.FULL:
            return _found(route, {**scope, **more}, before)
        if match is Match.PARTIAL and partial is None:
            partial = route, more
    if partial is None:
        return None
    route, more = partial
    return _found(route, {**scope, **more}, before)


def _found(route: Any, scope: Scope, before: str) -> _Found:
    own = getattr(route, "path_format", None) or ""
    endpoint = scope.get("endpoint")
    if not isinstance(route, Mount | Host):
        return _Found(before + own, endpoint, route)
    template = before + own.removesuffix(_REST)
    return _find(route.routes, scope, template) or _Found(template, endpoint, None)


def _flat(routes: Iterable[Any]) -> Iterator[Any]:
    """*routes*, with those of FastAPI's included routers in their place, with their prefixes."""
    for route in routes:
        listed = getattr(route, "effective_route_contexts", None)
        if listed is None:
            yield route
        else:
            for context in listed():
                yield context.starlette_route or context


def _marked_method(endpoint: object, scope: Scope) -> object:
    """*endpoint*, or the method of it that will be called if that has a mark of its own."""
    if not isinstance(endpoint, type):
        return endpoint
    name = str(scope.get("method", "")).lower()
    method = getattr(endpoint, name, None)
    if method is None and name == "head":
        method = getattr(endpoint, "get", None)
    return method if is_exempt(method) else endpoint


def route_of(scope: Scope) -> object | None:
    """The route that alone says the place of a request; None if it was mounted, or is unknown."""
    if "app_root_path" in scope:
        return None
    state = scope.get("fastapi")
    included = None if state is None else state.get("effective_route_context")
    return included or scope.get("route")


class Place(NamedTuple):
    """The route that is being served: its template, and the methods that it is for."""

    template: str
    methods: str


def place_of(scope: Scope) -> Place | None:
    """The place of the request of *scope*; None if it is unknown.

    Never the path itself, nor the method of the request: a caller could have a new counter for
    every value in it.
    """
    route = _served(scope)
    own = str(getattr(route, "path_format", ""))
    if route is not None and "app_root_path" not in scope:
        return Place(own, _methods(route))  # nothing is mounted: the route knows all of it
    found = _walk(scope)
    if found is None:
        return None if route is None else Place(own, _methods(route))
    # An app that is mounted inside a middleware of its own cannot be looked into.
    is_whole = found.endpoint is scope.get("endpoint")
    template = found.template if is_whole else found.template + own
    return Place(template, _methods(route or found.route))


def _served(scope: Scope) -> Any:
    """The route that serves the request, as it is in its router; None if it is unknown.

    A route further out, which the mounted app is behind, is not it.
    """
    included = scope.get("fastapi", {}).get("effective_route_context")
    for route in (getattr(included, "starlette_route", None) or included, scope.get("route")):
        if route is not None and getattr(route, "endpoint", None) is scope.get("endpoint"):
            return route
    return None


def _methods(route: object) -> str:
    methods = set(getattr(route, "methods", None) or ())
    if "GET" in methods:
        methods.discard("HEAD")  # which Starlette adds, and FastAPI does not
    return ",".join(sorted(methods)) or "*"
