"""Functions with limits: what a decorator made of a function, and which functions it wraps."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headgate.errors import OptionError
from headgate.integrations.route_limit import Names, RouteLimit, shown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headgate.integrations.request_context import RequestContext

Limits = tuple[RouteLimit[Any], ...]
Named = Sequence[tuple[RouteLimit[Any], Names]]
"""Limits with the names that they have in a request."""

D = TypeVar("D", bound="Decorated")

_MARK: Final = "__headgate_limited__"
MOST_NAMED: Final = 1024


class Decorated:
    """A *function* and its *limits*.

    *first* is the number of the first limit: a function that other decorators have wrapped may
    have limits already, further in.
    """

    def __init__(self, function: Callable[..., Any], limits: Limits, first: int) -> None:
        self.function = function
        self.limits = limits
        self.first = first
        self.is_unnamed = all(limit.name is None for limit in limits)
        """True if no limit was given a name."""
        self._named: dict[tuple[str, int], Named] = {}

    def named(self, context: RequestContext, shown: str, counter: str) -> Named:
        """The limits with their names in a request.

        A limit without a name is called *shown*, with a number after the first of the request, and
        its counter *counter* with its number among the limits of the function.
        """
        place = counter, context.unnamed
        found = self._named.get(place)
        if found is None:
            if len(self._named) >= MOST_NAMED:
                self._named.clear()
            found = self._named[place] = name_limits(
                self.limits, shown, counter, context.unnamed, self.first
            )
        context.unnamed += sum([limit.name is None for limit in self.limits])
        return found


def name_limits(limits: Limits, shown: str, counter: str, before: int, first: int) -> Named:
    """*limits* with their names: see `Decorated.named`; *before* unnamed limits came before."""
    named = []
    for number, limit in enumerate(limits, first):
        names = limit.own_names
        if limit.name is None:
            names = Names(shown if before == 0 else f"{shown}-{before + 1}", f"{counter}#{number}")
            before += 1
        named.append((limit, names))
    return named


def mark(wrapper: object, decorated: object) -> None:
    """Record what *wrapper* was made of."""
    # Other decorators copy attributes: so it says of which wrapper it is.
    setattr(wrapper, _MARK, (wrapper, decorated))


def decorated_in(function: object, kind: type[D]) -> D | None:
    """What *function* was made of, if it is itself a wrapper of this *kind*."""
    wrapper, decorated = getattr(function, _MARK, (None, None))
    return decorated if wrapper is function and isinstance(decorated, kind) else None


def count_below(function: object) -> int:
    """The limits that *function* has already, below the decorators of others too."""
    for one in chain(function):
        decorated = decorated_in(one, Decorated)
        if decorated is not None:
            return decorated.first + len(decorated.limits)
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


def added(limits: Limits, one: RouteLimit[Any]) -> Limits:
    """*limits* and *one*; `OptionError` if its name is there already."""
    if one.name is not None and any(other.name == one.name for other in limits):
        raise OptionError(
            f"name {one.name!r} is given twice in one place: give both limits as one, "
            "as in '5/minute; 100/hour'"
        )
    return (*limits, one)


def inner_function(function: Any) -> Any:
    """The function that a partial calls in the end."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def function_names(function: Any) -> Names:
    """The names of *function*, apart from any route."""
    function = inner_function(function)
    path: str = getattr(function, "__qualname__", type(function).__qualname__)
    counter = f":{getattr(function, '__module__', '')}.{path}"
    return Names(shown_name(path.rpartition("<locals>.")[2]), counter)
