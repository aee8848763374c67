"""The decorator for endpoints. It asks for no parameter: the request is found wherever it is."""

from __future__ import annotations

import functools
import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection

from headgate.enforcement.allowance import Allowance, LimitOptions
from headgate.enforcement.starlette.limited import (
    Limited,
    count_below,
    limited_in,
    note_limited,
)
from headgate.enforcement.starlette.visiting import Visit
from headgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.enforcement.allowance import LimitsOf
    from headgate.enforcement.gate import Gate
    from headgate.plan import Limits

F = TypeVar("F")


def limit(
    limits: Limits | LimitsOf[Any], *, gate: Gate | None = None, **options: Unpack[LimitOptions]
) -> Callable[[F], F]:
    """Limit an endpoint of Starlette: a function, or a method of an `HTTPEndpoint`.

    The options are explained in `Allowance`; functions are called with the `Request` (or the
    `WebSocket`), and may be async. Without *gate* that of the middleware is used. Without *name*
    each route that the function serves counts for itself; a function that is no endpoint counts
    for itself, whoever calls it. Several of these on one endpoint are one check, all or nothing. A
    refusal is `TooManyRequests`, which the app answers with 429 unless it has a handler for it; a
    websocket is refused before it is accepted.

    Without `RateLimitMiddleware` the headers are added to what the endpoint returns, and what it
    raises is sent without them; the outcome of an error is that of its `HTTPException`, or 500.
    """
    allowance: Allowance[Any] = Allowance(limits=limits, **options)

    def decorate(function: F) -> F:
        return stacked(function, allowance, gate, wrapped)

    return decorate


def stacked(
    function: F,
    allowance: Allowance[Any],
    gate: Gate | None,
    wrap: Callable[[Limited], Any],
) -> F:
    """*function* with *allowance*, and with those that it has: still one check."""
    if isinstance(function, type) or not callable(function):
        raise UsageError(
            f"cannot limit {function!r}; write @limit('5/minute') above a function, or above "
            "a method of a class"
        )
    before = limited_in(function)
    if before is not None and before.gate is gate and before.wrap is wrap:
        limited = replace(before, allowances=(*before.allowances, allowance))
    else:
        limited = Limited(function, (allowance,), gate, wrap, first=count_below(function))
    wrapper: F = wrap(limited)
    for name, value in getattr(function, "__dict__", {}).items():
        if name not in wrapper.__dict__:
            setattr(wrapper, name, value)  # marks that were put between two of ours
    note_limited(wrapper, limited)
    return wrapper


def wrapped(limited: Limited) -> Callable[..., Any]:
    """The endpoint for Starlette. What blocks runs in a thread, as Starlette would have it."""
    function = limited.function
    run = function if is_async(function) else functools.partial(run_in_threadpool, function)

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        visit = Visit(connection_in(args, kwargs, function), limited.gate)
        if not await visit.enter(limited.asked(visit, args[0] if args else None)):
            return await visit.refuse()
        try:
            result = await run(*args, **kwargs)
        except BaseException as error:
            await visit.fail(error)
            raise
        return await visit.completed(result)

    return call


def is_async(function: Callable[..., Any]) -> bool:
    """Whether *function* has to be awaited."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 (its kind, not whether there is one)
    )


def connection_in(
    args: tuple[Any, ...], kwargs: dict[str, Any], function: Callable[..., Any]
) -> HTTPConnection:
    """The request, or websocket, among the arguments of an endpoint."""
    for given in (*args, *kwargs.values()):
        if isinstance(given, HTTPConnection):
            return given
    raise UsageError(
        f"{getattr(function, '__qualname__', function)} was called without a Request: limit() of "
        "headgate.enforcement.starlette is for endpoints that get one; a function of FastAPI "
        "is limited by that of headgate.enforcement.fastapi"
    )
