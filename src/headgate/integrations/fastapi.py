"""Limits in a FastAPI app: for all of it, as a dependency, as a decorator.

    app.add_middleware(RateLimitMiddleware, limits="100/minute", exempt=["/health"])

    @app.get("/search", dependencies=[Depends(RateLimit("5/minute"))])
    async def search(q: str): ...

    @app.post("/login")
    @limit("5/minute", charge_when=lambda response: response.status == 401)
    def login(form: Form): ...

The decorator is a dependency too, one that nobody sees: a parameter of the endpoint that FastAPI
fills in, that the documentation of the app says nothing of, and that the function never gets.
"""

# Without `from __future__ import annotations`: FastAPI reads the annotations of `__call__`.
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final, TypeVar, Unpack

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
from headgate.integrations.allowance import Allowance, LimitsOf, Names, shown_name
from headgate.integrations.asgi.request import passage_in
from headgate.integrations.gate import Gate
from headgate.integrations.passage import Passage, Responded
from headgate.integrations.starlette import (
    LimitOptions,
    RateLimitMiddleware,
    TooManyRequests,
    exempt,
    report,
    resolve,
)
from headgate.integrations.starlette.limits import Limited, is_async, named, stacked, wrapped
from headgate.integrations.starlette.routing import place_of
from headgate.integrations.starlette.visiting import Visit, status_of

__all__ = [
    "LimitOptions",
    "Passage",
    "RateLimit",
    "RateLimitMiddleware",
    "TooManyRequests",
    "exempt",
    "limit",
    "report",
    "resolve",
]

F = TypeVar("F")
Asked = list[tuple[Allowance[Any], Names]]

_HIDDEN: Final = "headgate_visit"
"""The parameter that FastAPI fills in, and that the function never gets."""

UNPROCESSABLE: Final = 422


class RateLimit:
    """A dependency that limits routes: of one, of a router or of the whole app.

    The options are explained in `Allowance`; functions are called with the `Request` (or the
    `WebSocket`), and may be async. Without *gate* that of the middleware is used. Without *name*
    each route that it is on counts for itself; with one they share a counter. Its value is the
    `Passage`, to which real costs can be reported.

    Refuses by raising `TooManyRequests`, which the app answers with 429 unless it has a handler for
    it. Without `RateLimitMiddleware` what the endpoint returns as a `Response` of its own has no
    headers, nor has what is raised; and *charge_when* is a `UsageError`, as nobody sees the status.
    """

    def __init__(
        self,
        limits: Limits | LimitsOf[Any],
        *,
        gate: Gate | None = None,
        **options: Unpack[LimitOptions],
    ) -> None:
        self.allowance: Allowance[Any] = Allowance(limits=limits, **options)
        self.gate = gate

    def __repr__(self) -> str:
        return f"RateLimit({self.allowance.limits!r}, name={self.allowance.name!r})"

    async def __call__(
        self, connection: HTTPConnection, response: Response
    ) -> AsyncIterator[Passage]:
        """Ask about a request; FastAPI calls this, and comes back when the response is over."""
        self._check_outcome(passage_in(connection.scope))
        async with _visit(connection, response, self.gate, self._asked) as visit:
            yield visit.passage

    def _asked(self, visit: Visit) -> Asked:
        scope = visit.connection.scope
        method = scope.get("method", "WEBSOCKET")
        place = place_of(scope)
        template = "" if place is None else place.template
        route = f"/{'GET' if method == 'HEAD' else method} {template}"
        shown = shown_name(getattr(scope.get("route"), "name", None) or "route")
        return named([self.allowance], visit.passage, shown, route, None)

    def _check_outcome(self, passage: Passage | None) -> None:
        if self.allowance.charge_when is None or (passage is not None and passage.is_watched):
            return
        raise UsageError(
            f"charge_when of {self!r} needs to see the response, which a dependency does not: add "
            "the middleware, app.add_middleware(RateLimitMiddleware), or use the decorator limit()"
        )


def limit(
    limits: Limits | LimitsOf[Any], *, gate: Gate | None = None, **options: Unpack[LimitOptions]
) -> Callable[[F], F]:
    """Limit an endpoint of FastAPI (or of Starlette), below the decorator that makes it a route.

    The options are explained in `Allowance`; functions are called with the `Request` (or the
    `WebSocket`), and may be async. The endpoint needs no parameter for it. It is asked after the
    dependencies of the route. Several of these on one endpoint are one check, all or nothing.
    Without *name* each route that the function serves counts for itself.

    A refusal is `TooManyRequests`, which the app answers with 429 unless it has a handler for it.
    Without `RateLimitMiddleware` what is raised is sent without headers, and the outcome of an
    error is that of its `HTTPException`, or 500.
    """
    allowance: Allowance[Any] = Allowance(limits=limits, **options)

    def decorate(function: F) -> F:
        return stacked(function, allowance, gate, _wrapped)

    return decorate


class _Arrival:
    """The dependency that a decorated endpoint has."""

    def __init__(self, limited: Limited) -> None:
        self._limited = limited

    async def __call__(
        self, connection: HTTPConnection, response: Response
    ) -> AsyncIterator[Visit]:
        async with _visit(connection, response, self._limited.gate, self._asked) as visit:
            yield visit

    def _asked(self, visit: Visit) -> Asked:
        return self._limited.asked(visit)


@asynccontextmanager
async def _visit(
    connection: HTTPConnection,
    response: Response,
    gate: Gate | None,
    asked: Callable[[Visit], Asked],
) -> AsyncIterator[Visit]:
    """Ask about a request; at the end of the block its response is over.

    *response* is what FastAPI takes headers from for what an endpoint returns.
    """
    visit = Visit(connection, gate)
    if not await visit.enter(asked(visit)):
        raise visit.refusal
    if visit.passage.is_watched:
        yield visit
        return
    visit.tell(response)
    raised: BaseException | None = None
    try:
        yield visit
    except BaseException as error:
        raised = error
        raise
    finally:
        await visit.finish(_responded(visit, response, raised))


def _responded(visit: Visit, told: Response, raised: BaseException | None) -> Responded:
    """How a request ended that only its endpoint has seen."""
    if raised is not None and visit.response is None:
        is_invalid = isinstance(raised, RequestValidationError)
        return Responded(UNPROCESSABLE if is_invalid else status_of(raised), error=raised)
    sent = visit.response or told
    route = visit.connection.scope.get("route")
    status = sent.status_code or getattr(route, "status_code", None) or 200
    return Responded(status, tuple(sent.headers.items()), raised)


def _wrapped(limited: Limited) -> Callable[..., Any]:
    """The endpoint for FastAPI: of the same kind as the function, so that it is run like it."""
    function = limited.function
    call: Callable[..., Any]
    if is_async(function):
        call = _awaited(function, wrapped(limited))
    elif inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        call = _called(function, is_response=False)
    else:
        call = _called(function, is_response=True)
    functools.update_wrapper(call, function)
    call.__signature__ = _signature(function, _Arrival(limited))  # type: ignore[attr-defined]
    return call


def _awaited(
    function: Callable[..., Awaitable[Any]], elsewhere: Callable[..., Awaitable[Any]]
) -> Callable[..., Any]:
    """An async endpoint. *elsewhere* is what is called by who is not FastAPI."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        visit: Visit | None = kwargs.pop(_HIDDEN, None)
        if visit is None:
            return await elsewhere(*args, **kwargs)
        return _told(visit, await function(*args, **kwargs))

    return call


def _called(function: Callable[..., Any], *, is_response: bool) -> Callable[..., Any]:
    """An endpoint that blocks, which FastAPI calls in a thread; or one that yields."""

    def call(*args: Any, **kwargs: Any) -> Any:
        visit: Visit | None = kwargs.pop(_HIDDEN, None)
        if visit is None:
            raise UsageError(
                f"{getattr(function, '__qualname__', function)} was not called as a route of "
                "FastAPI: there, use limit() of headgate.integrations.starlette"
            )
        result = function(*args, **kwargs)
        return _told(visit, result) if is_response else result

    return call


def _told(visit: Visit, result: Any) -> Any:
    """*result* of an endpoint; FastAPI adds no headers to what is a response already."""
    if isinstance(result, Response):
        visit.response = result
        visit.tell(result)
    return result


def _signature(function: Callable[..., Any], arrival: _Arrival) -> inspect.Signature:
    """That of *function* with the hidden parameter."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError:  # a name that is there for type checkers alone: FastAPI decides about it
        signature = inspect.signature(function)
    hidden = inspect.Parameter(
        _HIDDEN,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[Visit, Depends(arrival)],
    )
    given = list(signature.parameters.values())
    has_rest = given and given[-1].kind is inspect.Parameter.VAR_KEYWORD
    given.insert(len(given) - 1 if has_rest else len(given), hidden)
    return signature.replace(parameters=given)
