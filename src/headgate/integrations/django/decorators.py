"""Limits of single views, sync and async."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, cast

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from headgate.errors import OptionError, UsageError
from headgate.integrations.allowance import Allowance, LimitOptions, Names
from headgate.integrations.django.ending import end, end_async, failed
from headgate.integrations.django.middleware import refused, tell
from headgate.integrations.django.request import (
    DjangoRequest,
    Numbers,
    begin,
    called,
    http_request,
    passage_of,
    told_apart,
    view_of,
)
from headgate.integrations.django.settings import current_gate
from headgate.integrations.gate import Gate
from headgate.integrations.passage import Responded
from headgate.integrations.passing import enter, enter_async, finish, finish_async

if TYPE_CHECKING:
    from types import FrameType

    from headgate.engine.stack import Limits
    from headgate.integrations.allowance import Asking, LimitsOf
    from headgate.integrations.passage import Entry, Passage


# Whether those who call are serving a request: what they make then is gone with it.


_HANDLING: Final = "django.core.handlers.exception"
"""What Django has around each middleware, and around the innermost that calls the view."""

_READING: Final = frozenset(("importlib._bootstrap", "django.urls.resolvers"))
"""What reads modules and the URLconf, with the first request for one. What they make stays."""


def is_serving() -> bool:
    """Whether a request is being served, by the code that calls or by who called that.

    Nobody notes it, for there need not be a middleware of ours: the frames of the callers tell.
    """
    frame = inspect.currentframe()
    while frame is not None:
        module = frame.f_globals.get("__name__")
        if module in _READING:
            return False
        if module == _HANDLING or _has_request(frame):
            return True
        frame = frame.f_back
    return False


def _has_request(frame: FrameType) -> bool:
    """Whether it has a request that a view was found for. That tells in threads of its own, too,
    which begin with the view."""
    return any(
        issubclass(type(value), HttpRequest) and value.resolver_match is not None
        for value in frame.f_locals.values()
    )


View = TypeVar("View", bound=Callable[..., Any])

_STACK: Final = "__headgate_stack__"
_IN_MAKING: Final = "django.utils.decorators"
"""Where the dummies are from that `method_decorator` tries decorators on; they are never async."""


def limit(
    limits: Limits | LimitsOf[Any], *, gate: Gate | None = None, **options: Unpack[LimitOptions]
) -> Callable[[View], View]:
    """Limit a view: a function, sync or async, or with `method_decorator` one of a class.

    The options are those of an `Allowance`; functions get Django's request. *gate*: where it is
    counted, that of the project if not said. Several on one view are one check, all or nothing.

    `UsageError` if it is called for a single request without a *name*: what it makes is called
    after its place among the limits of the view, and counts nothing that was before.
    """
    allowance: Allowance[Any] = Allowance(limits=limits, **options)
    if gate is not None and not isinstance(gate, Gate):
        raise OptionError(f"gate is {gate!r}; expected a Gate")
    if allowance.name is None and is_serving():
        raise UsageError(
            "limit() was called while a request is being served: each call would count for itself. "
            "Apply it where the view is defined, or give it a name"
        )
    numbers = Numbers()

    def limiting(view: View) -> View:
        return _limited(view, allowance, numbers, gate)

    return limiting


@dataclass(frozen=True, slots=True)
class _Stack:
    """The limits of a *view*, the outermost first, and the function that asks about them."""

    view: Callable[..., Any]
    gate: Gate | None
    allowances: tuple[tuple[Allowance[Any], Names], ...]
    limited: list[Callable[..., Any]] = field(default_factory=list)

    def begin(self, request: object) -> _Turn:
        """The turn of *request*. Who finds nobody watching its response has to."""
        http = http_request(request)
        passage = passage_of(http)
        watches = passage is None or not passage.is_watched
        if passage is None:
            passage = begin(http, self.gate or current_gate())
        passage.is_watched = True
        return _Turn(http, passage, self.gate or passage.gate, watches)

    def ask(self, turn: _Turn, request: object) -> Asking[Entry | None]:
        """What is to be asked about *request*."""
        named = self._named(turn.passage)
        entry = yield from turn.gate.entry_for(named, request, DjangoRequest(turn.http))
        return entry

    def _named(self, passage: Passage) -> list[tuple[Allowance[Any], Names]]:
        """The allowances; those without a name are called after the view."""
        given = [one.name for one, _ in self.allowances if one.name is not None]
        unnamed = [names for one, names in self.allowances if one.name is None]
        apart = iter(told_apart(unnamed, passage, given))
        return [(one, next(apart) if one.name is None else names) for one, names in self.allowances]


@dataclass(frozen=True, slots=True)
class _Turn:
    """A request for a limited view. *watches*: its response is seen to here."""

    http: HttpRequest
    passage: Passage
    gate: Gate
    watches: bool

    def leave(self) -> None:
        """Nobody watches any more: a view may call several functions that are limited."""
        if self.watches:
            self.passage.is_watched = False


def _limited(view: View, allowance: Allowance[Any], numbers: Numbers, gate: Gate | None) -> View:
    found: _Stack | None = getattr(view, _STACK, None)
    # Other decorators copy attributes: only what was made here is taken apart again.
    is_ours = found is not None and found.limited[0] is view and found.gate is gate
    inner, below = (found.view, found.allowances) if found is not None and is_ours else (view, ())
    if allowance.name is not None and any(one.name == allowance.name for one, _ in below):
        raise OptionError(f"two limits of {view!r} are called {allowance.name!r}")
    names = called(inner)
    own = Names(names.shown, f"{names.counter}#{numbers.of(names.counter)}")
    stack = _Stack(inner, gate, ((allowance, own), *below))
    instance = view_of(inner)
    if iscoroutinefunction(inner) or getattr(instance, "view_is_async", False):
        limited = _async(stack)
        _ = gate and gate.engine  # found now, as several threads may have the first request
    else:
        if inner.__module__ != _IN_MAKING:
            allowance.refuse_async()
            _ = gate and gate.engine
        limited = _sync(stack)
    stack.limited.append(limited)
    setattr(limited, _STACK, stack)
    return cast("View", limited)


def _sync(stack: _Stack) -> Callable[..., Any]:
    @wraps(stack.view)
    def limited(request: Any, *args: Any, **kwargs: Any) -> Any:
        turn = stack.begin(request)
        passage = turn.passage
        try:
            if not enter(passage, turn.gate, stack.ask(turn, request)):
                response = refused(turn.http, turn.gate, passage)
            else:
                response = stack.view(request, *args, **kwargs)
            if turn.watches and isinstance(response, HttpResponseBase):
                tell(response, passage)
                end(turn.http, response, passage)
            elif turn.watches:  # Django complains of it
                finish(passage, Responded(500))
        except BaseException as error:
            if turn.watches:
                finish(passage, failed(error))
            raise
        finally:
            turn.leave()
        return response

    return limited


def _async(stack: _Stack) -> Callable[..., Any]:
    @wraps(stack.view)
    async def limited(request: Any, *args: Any, **kwargs: Any) -> Any:
        turn = stack.begin(request)
        passage = turn.passage
        try:
            if not await enter_async(passage, turn.gate, stack.ask(turn, request)):
                response = refused(turn.http, turn.gate, passage)
            else:
                response = stack.view(request, *args, **kwargs)
                if inspect.isawaitable(response):
                    response = await response
            if turn.watches and isinstance(response, HttpResponseBase):
                tell(response, passage)
                await end_async(turn.http, response, passage)
            elif turn.watches:
                await finish_async(passage, Responded(500))
        except BaseException as error:
            if turn.watches:
                await finish_async(passage, failed(error))
            raise
        finally:
            turn.leave()
        return response

    return limited
