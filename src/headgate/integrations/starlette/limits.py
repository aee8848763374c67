"""The decorator for endpoints. It asks for no parameter: the request is found wherever it is."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass, field, replace
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection

from headgate.errors import UsageError
from headgate.integrations.allowance import Allowance, LimitOptions, Names, shown_name
from headgate.integrations.starlette.routing import place_of
from headgate.integrations.starlette.visiting import Visit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headgate.engine.stack import Limits
    from headgate.integrations.allowance import LimitsOf
    from headgate.integrations.asgi.request import Scope
    from headgate.integrations.gate import Gate
    from headgate.integrations.passage import Passage


# Functions with limits, and what their counters are called: the same in every process.
#
# What serves a route is called after the route and the function. The function alone would not do:
# what one function makes for many routes, or a lambda, or a method that several classes inherit,
# has the same name everywhere. Any other function is called after itself, whoever calls it; if its
# name is not its own, after the route of the request too.


_LIMITED: Final = "__headgate_limited__"


@dataclass(frozen=True, slots=True, eq=False)
class Limited:
    """A function, and what it allows its callers. *wrap* makes the endpoint of it.

    *first* is the number of the first allowance: functions that other decorators have wrapped may
    have some already, further in.
    """

    function: Callable[..., Any]
    allowances: tuple[Allowance[Any], ...]
    gate: Gate | None
    wrap: Callable[[Limited], Any]
    first: int = 0
    names: Names = field(init=False)
    """What the function is called, apart from any route."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", _called(self.function))

    def asked(self, visit: Visit, owner: object = None) -> list[tuple[Allowance[Any], Names]]:
        """What is asked about a request, under which names. *owner*: whose method was called."""
        counter = self._counter(visit.connection.scope, owner)
        numbers = range(self.first, self.first + len(self.allowances))
        return named(self.allowances, visit.passage, self.names.shown, counter, numbers)

    def _counter(self, scope: Scope, owner: object) -> str:
        name = self.names.counter
        if _has_its_own_name(self.function) and not self._serves(scope, owner):
            return name
        place = place_of(scope)
        return name if place is None else f"/{place.methods} {place.template} {name[1:]}"

    def _serves(self, scope: Scope, owner: object) -> bool:
        """Whether it is the endpoint of the route that the request came by, or a method of it."""
        endpoint = scope.get("endpoint")
        if isinstance(endpoint, type):
            return type(owner) is endpoint
        return any(limited_in(one) is self for one in _chain(endpoint))


def named(
    allowances: Iterable[Allowance[Any]],
    passage: Passage,
    shown: str,
    counter: str,
    numbers: Sequence[int] | None,
) -> list[tuple[Allowance[Any], Names]]:
    """*allowances* with their names.

    One without a name is called *shown*, and its counter *counter*; those after the first have a
    number too. *numbers*: the numbers of the counters; None: in the order of the request.
    """
    found = []
    for place, allowance in enumerate(allowances):
        if allowance.name is not None:
            found.append((allowance, allowance.own_names))
            continue
        before = passage.next_unnamed()
        number = before if numbers is None else numbers[place]
        own = shown if before == 0 else f"{shown}-{before + 1}"
        found.append((allowance, Names(own, f"{counter}#{number}")))
    return found


def note_limited(wrapper: object, limited: Limited) -> None:
    """Note what *wrapper* was made of."""
    # Other decorators copy attributes, and it is not for us to take these off: so it says whose.
    setattr(wrapper, _LIMITED, (wrapper, limited))


def limited_in(function: object) -> Limited | None:
    """What *function* was made of, if it is a wrapper of ours itself."""
    wrapper, limited = getattr(function, _LIMITED, (None, None))
    return limited if wrapper is function else None


def count_below(function: object) -> int:
    """How many allowances *function* has already, below the decorators of others too."""
    for one in _chain(function):
        limited = limited_in(one)
        if limited is not None:
            return limited.first + len(limited.allowances)
    return 0


def _chain(function: object) -> Iterator[object]:
    """*function*, and what it wraps, as far as that can be told."""
    while function is not None:
        yield function
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, MethodType):
            function = function.__func__
        else:
            function = inspect.getattr_static(function, "__wrapped__", None)


def _called(function: Callable[..., Any]) -> Names:
    while isinstance(function, functools.partial):
        function = function.func
    path: str = getattr(function, "__qualname__", type(function).__qualname__)
    counter = f":{getattr(function, '__module__', '')}.{path}"
    return Names(shown_name(path.rpartition("<locals>.")[2]), counter)


def _has_its_own_name(function: Callable[..., Any]) -> bool:
    """Whether nothing else in its module is called the same, as far as that can be told."""
    path = getattr(function, "__qualname__", "<")  # a partial has none, nor has an instance
    return "<" not in path and not isinstance(function, MethodType)


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
        "headgate.integrations.starlette is for endpoints that get one; a function of FastAPI "
        "is limited by that of headgate.integrations.fastapi"
    )
