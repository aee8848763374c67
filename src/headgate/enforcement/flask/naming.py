"""What functions, views and blueprints are called: in the store, and to clients.

A counter is called the same in all processes and after a restart, and no two parts of an app that
are limited apart have one name.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING
from weakref import WeakSet

from flask import current_app, has_request_context, request

if TYPE_CHECKING:
    from flask import Blueprint


class LimitedFunctions:
    """The functions that a `RateLimits` has limited.

    Those that have one name (closures, lambdas, partials of one function) are numbered in the order
    in which they are limited, which is that of the program.
    """

    def __init__(self) -> None:
        self._known: Counter[str] = Counter()
        self._plain: WeakSet[FunctionType] = WeakSet()

    def __contains__(self, function: object) -> bool:
        return isinstance(function, FunctionType) and function in self._plain

    def add(self, function: object) -> None:
        """Note that there is a limit around *function*; one that a request makes is not noted."""
        if isinstance(function, FunctionType) and not has_request_context():
            self._plain.add(function)

    def place(self, function: object) -> str:
        """What the counters of *function* are called after.

        What is made while a request is served gets no number: each request would have a new one.
        """
        named = _inner(function)
        path = getattr(named, "__qualname__", type(named).__qualname__)
        place = f":{getattr(named, '__module__', '')}.{path}"
        if has_request_context():
            return place
        number = self._known[place]
        self._known[place] += 1
        return f"{place}#{number}" if number else place


def title_of(function: object) -> str:
    """What clients are told that *function* is called."""
    named = _inner(function)
    return str(getattr(named, "__name__", type(named).__name__))


def place_of_endpoint(endpoint: str) -> str:
    """What the counters of the view at *endpoint* are called after: several apps may have one."""
    return f"/endpoint {current_app.name} {endpoint}"


def place_of_blueprint(name: str) -> str:
    """What the counters of the blueprint that is registered as *name* are called after."""
    return f"/blueprint {current_app.name} {name}"


def registered_name(blueprint: Blueprint) -> str:
    """The name, with those of its parents, that *blueprint* has on the way of this request.

    It may be registered more than once, and others elsewhere may be called the same.
    """
    known = current_app.blueprints
    names = (name for name in request.blueprints if known.get(name) is blueprint)
    return next(names, blueprint.name)


def _inner(function: object) -> object:
    """The function that has a name: what a partial calls in the end."""
    while isinstance(function, partial):
        function = function.func
    return function
