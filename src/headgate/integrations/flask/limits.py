"""Limits of views and of blueprints: stacked ones are asked as one."""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from weakref import WeakSet

from flask import Blueprint, current_app, has_request_context, request
from flask.views import View

from headgate.errors import OptionError, UsageError
from headgate.integrations.flask.admission import admit_to, is_exempt_here, is_preflight_for_flask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flask import Request

    from headgate.integrations.allowance import Allowance


# What functions, views and blueprints are called: in the store, and to clients.
#
# A counter is called the same in all processes and after a restart, and no two parts of an app that
# are limited apart have one name.


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


if TYPE_CHECKING:
    Allowances = tuple[Allowance[Request], ...]

F = TypeVar("F")

_LIMITED: Final = "__headgate_limited__"


def limited(target: F, allowance: Allowance[Request], known: LimitedFunctions) -> F:
    """*target*, a view or a blueprint, with one limit more. Functions are then *known*."""
    if isinstance(target, Blueprint):
        _limit_blueprint(target, allowance)
        return target
    if isinstance(target, type) and issubclass(target, View):
        raise UsageError(
            f"{target.__qualname__} is a class of views: say decorators = [limits.limit(...)] in it"
        )
    if not callable(target):
        raise UsageError(f"cannot limit {target!r}; expected a view or a blueprint")
    one = _limited(target)
    if one is None:
        one = Limited(target, (allowance,), _count_below(target), known.place(target))
    else:
        one = replace(one, allowances=_with(one.allowances, allowance))
    for function in _chain(target):
        known.add(function)
    return _wrapped(one, target)


def refuse_lost_limits(known: LimitedFunctions) -> None:
    """Raise `UsageError` if the view of this request was limited when it was a route already.

    The route is then that of the function without the limit. A function that is a view both with
    and without it is meant to be.
    """
    views = current_app.view_functions
    view = views.get(request.endpoint or "")
    if view in known and not any(_has_limit_around(other, view) for other in views.values()):
        raise UsageError(
            f"the view {request.endpoint!r} has a limit that its route does not know of: put "
            "@limits.limit(...) below @app.route(...); if it is to have none, make the route that "
            "of another function"
        )


@dataclass(frozen=True, slots=True)
class Limited:
    """A function, and what it allows its callers.

    *first* is the number of the first allowance: functions that other decorators have wrapped may
    have some already, further in. *place* is what its counters are called after where it is no
    view.
    """

    function: Callable[..., Any]
    allowances: Allowances
    first: int
    place: str

    def admit(self, wrapper: object) -> None:
        """Ask about the request that is being served; raise the refusal if it is refused."""
        title = title_of(self.function)
        admit_to(self.allowances, place=self._place(wrapper), title=title, first=self.first)

    def _place(self, wrapper: object) -> str:
        """A view is counted by its endpoint, any other function by its name: whoever calls it."""
        endpoint = request.endpoint
        if endpoint is not None:
            view = current_app.view_functions.get(endpoint)
            if any(one is wrapper for one in _chain(view)):
                return place_of_endpoint(endpoint)
        return self.place


class BlueprintLimits:
    """What a blueprint allows the callers of all its views, those of blueprints in it too."""

    def __init__(self, blueprint: Blueprint) -> None:
        self.allowances: Allowances = ()
        self._blueprint = blueprint
        self._first = sum(
            len(one.allowances)
            for one in blueprint.before_request_funcs.get(None, ())
            if isinstance(one, BlueprintLimits)
        )

    def add(self, allowance: Allowance[Request]) -> None:
        """Ask about *allowance* too."""
        self.allowances = _with(self.allowances, allowance)

    def __call__(self) -> None:
        """Ask about the request, before it is served."""
        if is_exempt_here():
            return
        name = registered_name(self._blueprint)
        title = name.rpartition(".")[2]
        place = place_of_blueprint(name)
        is_apart = is_preflight_for_flask()
        admit_to(self.allowances, place=place, title=title, first=self._first, is_apart=is_apart)


def _limit_blueprint(blueprint: Blueprint, allowance: Allowance[Request]) -> None:
    before = blueprint.before_request_funcs.get(None, [])
    latest = before[-1] if before else None
    if not isinstance(latest, BlueprintLimits):
        latest = BlueprintLimits(blueprint)
        blueprint.before_request(latest)
    latest.add(allowance)


def _wrapped(one: Limited, target: F) -> F:
    function = one.function

    @functools.wraps(cast("Callable[..., Any]", target))
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not has_request_context():  # nobody is asking: a command, a test, a job
            return function(*args, **kwargs)
        one.admit(wrapper)
        return current_app.ensure_sync(function)(*args, **kwargs)

    if not hasattr(target, "__name__"):  # partials have none, and Flask looks for one
        wrapper.__name__ = title_of(target)
    setattr(wrapper, _LIMITED, (wrapper, one))
    return cast("F", wrapper)


def _limited(function: object) -> Limited | None:
    """What *function* allows, if it is a wrapper of ours itself. `functools.wraps` copies marks."""
    wrapper, one = getattr(function, _LIMITED, (None, None))
    return one if wrapper is function else None


def _has_limit_around(outer: object, view: object) -> bool:
    """Whether *outer* is *view* with a limit around it."""
    has_limit = False
    for one in _chain(outer):
        if one is view:
            return has_limit
        has_limit = has_limit or _limited(one) is not None
    return False


def _count_below(function: object) -> int:
    """How many allowances there are further in, below the decorators of others."""
    for inner in _chain(function):
        one = _limited(inner)
        if one is not None:
            return one.first + len(one.allowances)
    return 0


def _chain(function: object) -> Iterator[object]:
    """*function*, and what it wraps, as far as `functools.wraps` was used."""
    while function is not None:
        yield function
        if isinstance(function, MethodType):
            function = function.__func__
        else:
            function = inspect.getattr_static(function, "__wrapped__", None)


def _with(allowances: Allowances, one: Allowance[Request]) -> Allowances:
    if one.name is not None and any(other.name == one.name for other in allowances):
        raise OptionError(
            f"name {one.name!r} is given twice in one place: give both limits as one, "
            "as in '5/minute; 100/hour'"
        )
    return (*allowances, one)
