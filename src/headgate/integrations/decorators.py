"""Functions with limits: what the decorator `limit` of a framework makes of a function."""

from __future__ import annotations

import functools
import inspect
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from headgate.errors import OptionError, UsageError
from headgate.integrations.request_limiter import RequestLimiter
from headgate.integrations.route_limit import Names, RouteLimit, named_limits, shown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from headgate.integrations.request_context import RequestContext
    from headgate.integrations.route_limit import NamedLimits

F = TypeVar("F")

_MARK: Final = "__headgate_limited__"
MOST_NAMED: Final = 1024


class LimitedFunction:
    """A *function* and its *limits*, which are one check.

    *first* is the number of the first limit: a function that other decorators have wrapped may
    have limits already, further in. *limiter*: None for that of the app.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        limits: tuple[RouteLimit, ...],
        first: int = 0,
        limiter: RequestLimiter | None = None,
    ) -> None:
        self.function = function
        self.limits = limits
        self.first = first
        self.limiter = limiter
        self.names = function_names(function)
        self.counter = self.names.counter
        """The name of its counters, apart from any route."""
        self.unnamed = sum([limit.name is None for limit in limits])

    @classmethod
    def decorator(cls, one: RouteLimit, limiter: RequestLimiter | None = None) -> Callable[[F], F]:
        """The decorator that limits a function by *one*, and by the limits that it has."""
        if limiter is not None and not isinstance(limiter, RequestLimiter):
            raise OptionError(f"limiter is {limiter!r}; expected a RequestLimiter")

        def decorate(function: F) -> F:
            return cls.around(function, one, limiter).wrapped(function)

        return decorate

    @classmethod
    def around(cls, function: Any, one: RouteLimit, limiter: RequestLimiter | None = None) -> Self:
        """*function* with *one* more limit; a wrapper of ours is taken apart."""
        if isinstance(function, type) or not callable(function):
            raise UsageError(
                f"cannot limit {function!r}; write @limit('5/minute') above a function, or above "
                "a method of a class"
            )
        before = limited_in(function, cls)
        if before is None or type(before) is not cls or before.limiter is not limiter:
            return cls(function, (one,), count_below(function), limiter)
        return before.with_limit(one)

    def with_limit(self, one: RouteLimit) -> Self:
        """This with *one* more limit; `OptionError` if its name is there already."""
        if one.name is not None and any(other.name == one.name for other in self.limits):
            raise OptionError(
                f"name {one.name!r} is given twice in one place: give both limits as one, "
                "as in '5/minute; 100/hour'"
            )
        more = type(self)(self.function, (*self.limits, one), self.first, self.limiter)
        more.counter = self.counter
        return more

    def wrapped(self, function: F) -> F:
        """The wrapper in place of *function*, which a decorator of ours was written above."""
        wrapper: Any = self.wrapper()
        functools.update_wrapper(wrapper, cast("Callable[..., Any]", function))
        # Other decorators copy attributes: so it says of which wrapper it is.
        setattr(wrapper, _MARK, (wrapper, self))
        return cast("F", wrapper)

    def wrapper(self) -> Callable[..., Any]:
        """A function that checks the limits and calls the function."""
        raise NotImplementedError

    def named(self, context: RequestContext, counter: str, shown: str = "") -> NamedLimits:
        """The limits with their names in a request. *shown*: by default the function's name."""
        shown = shown or self.names.shown
        before = context.count_unnamed(shown, self.unnamed)
        return named_limits(self.limits, shown, counter, self.first, before)


L = TypeVar("L", bound=LimitedFunction)


def limited_in(function: object, kind: type[L]) -> L | None:
    """The limited function of this *kind* whose wrapper is *function*; None if there is none."""
    wrapper, limited = getattr(function, _MARK, (None, None))
    return limited if wrapper is function and isinstance(limited, kind) else None


def count_below(function: object) -> int:
    """The number of limits that *function* has already, below the decorators of others too."""
    for one in chain(function):
        limited = limited_in(one, LimitedFunction)
        if limited is not None:
            return limited.first + len(limited.limits)
    return 0


def chain(function: object) -> Iterator[object]:
    """*function*, and the functions that it wraps."""
    while function is not None:
        yield function
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, MethodType):
            function = function.__func__
        else:
            function = inspect.getattr_static(function, "__wrapped__", None)


def inner_function(function: Any) -> Any:
    """The function that a partial calls in the end."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def is_async(function: Any) -> bool:
    """True if *function* has to be awaited."""
    function = inner_function(function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 (its kind, not if there is one)
    )


def function_names(function: Any) -> Names:
    """The names of *function*, apart from any route."""
    function = inner_function(function)
    path: str = getattr(function, "__qualname__", type(function).__qualname__)
    counter = f":{getattr(function, '__module__', '')}.{path}"
    return Names(shown_name(path.rpartition("<locals>.")[2]), counter)
