"""Limits in a FastAPI app: for all of it, as a dependency, as a decorator.

    app.add_middleware(RateLimitMiddleware, limits="100/minute", exempt=["/health"])

    @app.get("/search", dependencies=[Depends(RateLimit("5/minute"))])
    async def search(q: str): ...

    @app.post("/login")
    @limit("5/minute", charge_when=lambda response: response.status_code == 401)
    def login(form: Form): ...

The decorator is a hidden dependency: a parameter of the endpoint that FastAPI fills in, that is not
in the documentation of the app, and that the function never gets. The middleware writes headers and
completes requests; without it, the exit stack of FastAPI's dependencies completes them.
"""

# Without `from __future__ import annotations`: FastAPI reads the annotations of `__call__`.
import inspect
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, Unpack, cast

from headgate.errors import not_installed

try:
    from fastapi import Depends
    from fastapi.exceptions import RequestValidationError
except ModuleNotFoundError as error:
    raise not_installed("fastapi", error) from error

from starlette.requests import HTTPConnection
from starlette.responses import Response

from headgate.engine.stack import Limits
from headgate.errors import UsageError
from headgate.integrations.asgi import AsgiContext, AsgiRequest
from headgate.integrations.check_result import CompletedResponse
from headgate.integrations.decorators import MOST_NAMED, is_async
from headgate.integrations.request_context import RequestContext
from headgate.integrations.request_limiter import RequestLimiter
from headgate.integrations.route_limit import (
    LimitsOf,
    NamedLimits,
    RouteLimit,
    named_limits,
    shown_name,
)
from headgate.integrations.starlette import (
    LimitedEndpoint,
    LimitOptions,
    RateLimitMiddleware,
    TooManyRequests,
    add_headers,
    add_headers_to_error,
    context_of,
    denial_of,
    exempt,
    place_of,
    report,
    resolve,
    route_of,
    status_of,
)
from headgate.runtime.drivers import adrive

if TYPE_CHECKING:
    from types import TracebackType

__all__ = [
    "LimitOptions",
    "RateLimit",
    "RateLimitMiddleware",
    "RequestContext",
    "TooManyRequests",
    "exempt",
    "limit",
    "report",
    "resolve",
]

F = TypeVar("F")

_HIDDEN: Final = "headgate_arrival"
"""The parameter that FastAPI fills in, and that the function never gets."""

_EXIT_STACK: Final = "fastapi_inner_astack"
"""The key of a scope under which FastAPI has the exit stack of dependencies."""

UNPROCESSABLE: Final = 422


class RateLimit:
    """A dependency that limits routes: of one, of a router or of the whole app.

    The options are those of a `RouteLimit`; functions are called with the `Request` (or the
    `WebSocket`), and may be async. Without *limiter* that of the middleware is used. Without *name*
    each route has its own counter; with one they share it. Its value is the `RequestContext`, to
    which real costs can be reported.

    A denial is `TooManyRequests`, which the app answers with 429 unless it has a handler for it.
    Without `RateLimitMiddleware` a `Response` that the endpoint returns itself has no headers, and
    *charge_when* is a `UsageError`, as the status is unknown.
    """

    def __init__(
        self,
        limits: Limits | LimitsOf[Any],
        *,
        limiter: RequestLimiter | None = None,
        **options: Unpack[LimitOptions],
    ) -> None:
        self.limit = RouteLimit(limits=limits, **options)
        self.limiter = limiter
        self._own = named_limits((self.limit,), "", "")
        self._routes: dict[tuple[int, str], tuple[object, str, str, NamedLimits]] = {}
        """By route and method: the route, the names, and the limits as the first of a request."""

    def __repr__(self) -> str:
        return f"RateLimit({self.limit.limits!r}, name={self.limit.name!r})"

    async def __call__(self, connection: HTTPConnection, response: Response) -> RequestContext:
        """Check a request; FastAPI calls this."""
        context = context_of(connection, self.limiter)
        if self.limit.charge_when is not None and not context.is_managed:
            raise UsageError(
                f"charge_when of {self!r} needs to see the response, which a dependency does not: "
                "add the middleware, app.add_middleware(RateLimitMiddleware), or use the decorator "
                "limit()"
            )
        limits, limiter = self._limits_of(context, connection), self.limiter or context.limiter
        rest = context.start_route(limiter, limits, connection, AsgiRequest(connection.scope))
        if rest is not None and not await adrive(rest):
            raise denial_of(connection, context, self.limiter)
        if not context.is_managed:
            _manage(connection, response, context)
        return context

    def _limits_of(self, context: RequestContext, connection: HTTPConnection) -> NamedLimits:
        if self.limit.name is not None:
            return self._own
        scope = connection.scope
        route, method = route_of(scope), scope.get("method", "WEBSOCKET")
        known = self._routes.get((id(route), method))  # a route has no hash
        if known is None or known[0] is not route:
            shown = getattr(scope.get("route"), "name", None) or "route"
            place = place_of(scope)
            template = "" if place is None else place.template
            counter = f"/{'GET' if method == 'HEAD' else method} {template}"
            named = named_limits((self.limit,), shown_name(shown), counter)
            known = route, shown, counter, named
            if route is not None and len(self._routes) < MOST_NAMED:
                self._routes[id(route), method] = known
        _, shown, counter, named = known
        number = context.count_unnamed(shown)
        if number:
            named = named_limits((self.limit,), shown_name(shown), counter, number, number)
        return named


def limit(
    limits: Limits | LimitsOf[Any],
    *,
    limiter: RequestLimiter | None = None,
    **options: Unpack[LimitOptions],
) -> Callable[[F], F]:
    """Limit an endpoint of FastAPI (or of Starlette), below the decorator that makes it a route.

    The options are those of a `RouteLimit`; functions are called with the `Request` (or the
    `WebSocket`), and may be async. The endpoint needs no parameter for it. It is checked after the
    dependencies of the route. Several on one endpoint are one check, all or nothing. Without *name*
    each route that the function serves has its own counter.

    A denial is `TooManyRequests`, which the app answers with 429 unless it has a handler for it.
    Without `RateLimitMiddleware` an error other than an `HTTPException` is sent without headers,
    and its status is 500.
    """
    return _LimitedEndpoint.decorator(RouteLimit(limits=limits, **options), limiter)


class _Arrival:
    """The dependency of a decorated endpoint, which checks its limits."""

    def __init__(self, endpoint: LimitedEndpoint) -> None:
        self._endpoint = endpoint

    async def __call__(self, connection: HTTPConnection, response: Response) -> "_Served":
        endpoint = self._endpoint
        context = context_of(connection, endpoint.limiter)
        rest = endpoint.start(connection, context)
        if rest is not None and not await adrive(rest):
            raise denial_of(connection, context, endpoint.limiter)
        served = _Served(context)
        if not context.is_managed:
            _manage(connection, response, context, served)
        return served


class _Served:
    """A request at a decorated endpoint."""

    def __init__(self, context: AsgiContext) -> None:
        self.context = context
        self.response: Response | None = None

    def result(self, result: Any) -> Any:
        """*result* of the endpoint; FastAPI adds no headers to a `Response` of its own."""
        if isinstance(result, Response) and not self.context.is_managed:
            self.response = result
            add_headers(result, self.context)
        return result


def _manage(
    connection: HTTPConnection,
    response: Response,
    context: AsgiContext,
    served: _Served | None = None,
) -> None:
    """Add headers to an allowed request, and complete it at its end, as no middleware does.

    *response* is the one that FastAPI takes headers from for the result of an endpoint.
    """
    add_headers(response, context)

    async def exit_(
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: "TracebackType | None",
    ) -> None:
        if error is not None:
            add_headers_to_error(error, context)
        if context.has_end:
            own = None if served is None else served.response
            await adrive(context.complete(_completed(connection, own or response, error, own)))

    stack = connection.scope.get(_EXIT_STACK)
    if isinstance(stack, AsyncExitStack):
        stack.push_async_exit(exit_)
    elif context.has_end:
        raise UsageError("add the middleware: app.add_middleware(RateLimitMiddleware)")


def _completed(
    connection: HTTPConnection,
    sent: Response,
    error: BaseException | None,
    own: Response | None,
) -> CompletedResponse:
    """The response to a request that no middleware has seen."""
    if error is not None and own is None:
        is_invalid = isinstance(error, RequestValidationError)
        return CompletedResponse(UNPROCESSABLE if is_invalid else status_of(error), error=error)
    route = connection.scope.get("route")
    status = sent.status_code or getattr(route, "status_code", None) or 200
    return CompletedResponse(status, tuple(sent.headers.items()), error)


class _LimitedEndpoint(LimitedEndpoint):
    """An endpoint of FastAPI with limits."""

    def wrapper(self) -> Callable[..., Any]:
        """The endpoint for FastAPI: of the same kind as the function, so that it is run like it.

        Called by something else than FastAPI, an async one is an endpoint of Starlette.
        """
        function = self.function
        is_stream = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
        elsewhere = super().wrapper()

        async def acall(*args: Any, **kwargs: Any) -> Any:
            served: _Served | None = kwargs.pop(_HIDDEN, None)
            if served is None:
                return await elsewhere(*args, **kwargs)
            return served.result(await function(*args, **kwargs))

        def call(*args: Any, **kwargs: Any) -> Any:  # FastAPI calls it in a thread
            served: _Served | None = kwargs.pop(_HIDDEN, None)
            if served is None:
                raise UsageError(
                    f"{getattr(function, '__qualname__', function)} was not called as a route of "
                    "FastAPI: there, use limit() of headgate.integrations.starlette"
                )
            result = function(*args, **kwargs)
            return result if is_stream else served.result(result)

        return acall if is_async(function) else call

    def wrapped(self, function: F) -> F:
        """The wrapper in place of *function*, with the hidden parameter."""
        wrapper: Any = super().wrapped(function)
        wrapper.__signature__ = _signature(self.function, _Arrival(self))
        return cast("F", wrapper)


def _signature(function: Callable[..., Any], arrival: _Arrival) -> inspect.Signature:
    """The signature of *function* with the hidden parameter."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError:  # a name for type checkers alone: FastAPI decides about it
        signature = inspect.signature(function)
    hidden = inspect.Parameter(
        _HIDDEN,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[_Served, Depends(arrival)],
    )
    given = list(signature.parameters.values())
    has_rest = given and given[-1].kind is inspect.Parameter.VAR_KEYWORD
    given.insert(len(given) - 1 if has_rest else len(given), hidden)
    return signature.replace(parameters=given)
