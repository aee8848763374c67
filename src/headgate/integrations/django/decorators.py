"""Limits of single views, sync and async."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, cast

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from headgate.errors import OptionError, UsageError
from headgate.integrations.django.middleware import CallView
from headgate.integrations.django.request import (
    DjangoRequest,
    Numbers,
    context_of,
    distinct,
    http_request,
    new_context,
    view_names,
    view_of,
)
from headgate.integrations.django.responses import add_headers, denial_of, ending, failed
from headgate.integrations.django.settings import current_limiter
from headgate.integrations.request_context import CompletedResponse
from headgate.integrations.request_limiter import RequestLimiter
from headgate.integrations.route_limit import LimitOptions, Names, RouteLimit
from headgate.runtime.drivers import adrive, drive

if TYPE_CHECKING:
    from types import FrameType

    from headgate.engine.stack import Limits
    from headgate.integrations.decorated import Named
    from headgate.integrations.request_context import RequestContext
    from headgate.integrations.route_limit import LimitsOf
    from headgate.runtime.effects import Effects


# A decorator that is applied while a request is served is gone with it.


_HANDLING: Final = "django.core.handlers.exception"
"""The module that Django has around each middleware, and around the call of the view."""

_READING: Final = frozenset(("importlib._bootstrap", "django.urls.resolvers"))
"""The modules that read code and the URLconf, with the first request for one. What they make
stays."""


def is_serving() -> bool:
    """True if a request is being served further up the stack.

    It is found in the frames, as there need not be a middleware of ours.
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
    """True if *frame* has a request with a view: also in a thread, which begins with the view."""
    return any(
        issubclass(type(value), HttpRequest) and value.resolver_match is not None
        for value in frame.f_locals.values()
    )


View = TypeVar("View", bound=Callable[..., Any])

_STACK: Final = "__headgate_stack__"
_IN_MAKING: Final = "django.utils.decorators"
"""The module of the dummies that `method_decorator` tries decorators on; they are never async."""


def limit(
    limits: Limits | LimitsOf[Any],
    *,
    limiter: RequestLimiter | None = None,
    **options: Unpack[LimitOptions],
) -> Callable[[View], View]:
    """Limit a view: a function, sync or async, or with `method_decorator` one of a class.

    The options are those of a `RouteLimit`; functions get Django's request. *limiter*: by default
    that of the project. Several on one view are one check, all or nothing.

    `UsageError` if it is called for a single request without a *name*: it is named after its place
    among the limits of the view, so each call would have a new counter.
    """
    one: RouteLimit[Any] = RouteLimit(limits=limits, **options)
    if limiter is not None and not isinstance(limiter, RequestLimiter):
        raise OptionError(f"limiter is {limiter!r}; expected a RequestLimiter")
    if one.name is None and is_serving():
        raise UsageError(
            "limit() was called while a request is being served: each call would count for itself. "
            "Apply it where the view is defined, or give it a name"
        )
    numbers = Numbers()

    def limiting(view: View) -> View:
        return _limited(view, one, numbers, limiter)

    return limiting


class _Stack:
    """The limits of a *view*, the outermost first, and the function that checks them."""

    def __init__(
        self, view: Callable[..., Any], limiter: RequestLimiter | None, limits: Named
    ) -> None:
        self.view = view
        self.limiter = limiter
        self.limits = limits
        self.limited: Callable[..., Any] | None = None

    def serving(self, request: Any, args: Any, kwargs: Any) -> Effects[Any]:
        """Serve *request*; a response that no other part of the app completes is completed here."""
        http = http_request(request)
        context = context_of(http)
        manages = context is None or not context.is_managed
        if context is None:
            context = new_context(http, self.limiter or current_limiter())
        context.is_managed = True
        limiter = self.limiter or context.limiter
        try:
            rest = context.start_route(limiter, self._named(context), request, DjangoRequest(http))
            if rest is not None and not (yield from rest):
                response: Any = denial_of(http, limiter, context)
            else:
                response = yield CallView(self.view, request, *args, **kwargs)
            if manages and isinstance(response, HttpResponseBase):
                add_headers(response, context)
                yield from ending(http, response, context)
            elif manages:  # Django reports it
                yield from context.complete(CompletedResponse(500))
        except GeneratorExit:
            raise
        except BaseException as error:
            if manages:
                yield from context.complete(failed(error))
            raise
        finally:
            if manages:  # a view may call several functions with limits
                context.is_managed = False
        return response

    def _named(self, context: RequestContext) -> Named:
        """The limits; those without a name are named after the view."""
        given = [one.name for one, _ in self.limits if one.name is not None]
        unnamed = [names for one, names in self.limits if one.name is None]
        own = iter(distinct(unnamed, context, given))
        return [(one, next(own) if one.name is None else names) for one, names in self.limits]


def _limited(
    view: View, one: RouteLimit[Any], numbers: Numbers, limiter: RequestLimiter | None
) -> View:
    found: _Stack | None = getattr(view, _STACK, None)
    # Other decorators copy attributes: only our own wrapper is taken apart again.
    is_ours = found is not None and found.limited is view and found.limiter is limiter
    inner: Callable[..., Any] = view
    below: Named = ()
    if found is not None and is_ours:
        inner, below = found.view, found.limits
    if one.name is not None and any(other.name == one.name for other, _ in below):
        raise OptionError(f"two limits of {view!r} are called {one.name!r}")
    names = view_names(inner)
    own = Names(names.shown, f"{names.counter}#{numbers.of(names.counter)}")
    stack = _Stack(inner, limiter, ((one, own), *below))
    is_async = iscoroutinefunction(inner) or getattr(view_of(inner), "view_is_async", False)
    if not is_async and inner.__module__ != _IN_MAKING:
        one.check_blocking()
    if limiter is not None and (is_async or inner.__module__ != _IN_MAKING):
        _ = limiter.engine  # opened now: the first request may come in several threads
    stack.limited = limited = _async(stack) if is_async else _sync(stack)
    setattr(limited, _STACK, stack)
    return cast("View", limited)


def _sync(stack: _Stack) -> Callable[..., Any]:
    @wraps(stack.view)
    def limited(request: Any, *args: Any, **kwargs: Any) -> Any:
        return drive(stack.serving(request, args, kwargs))

    return limited


def _async(stack: _Stack) -> Callable[..., Any]:
    @wraps(stack.view)
    async def limited(request: Any, *args: Any, **kwargs: Any) -> Any:
        return await adrive(stack.serving(request, args, kwargs))

    return limited
