"""Rate limits for Django: a middleware, a decorator for views, and their setting.

    MIDDLEWARE = [..., "headgate.integrations.django.RateLimitMiddleware"]
    HEADGATE = {"limits": "100/minute", "store": "redis://localhost:6379/0"}

Under WSGI the middleware blocks, under ASGI it does not: Django says which by what it is given to
call. `responses` says when a request is complete, `settings` reads the setting.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

from headgate.errors import UsageError, not_installed

try:
    from django.http import HttpRequest, HttpResponse
except ModuleNotFoundError as error:
    raise not_installed("django", error) from error

from asgiref.sync import async_to_sync, iscoroutinefunction, markcoroutinefunction
from django.http.response import HttpResponseBase
from django.urls import Resolver404, resolve
from django.views import View
from django.views.decorators.http import require_safe

from headgate.integrations.check_result import CompletedResponse
from headgate.integrations.decorators import LimitedFunction, function_names, inner_function
from headgate.integrations.django.responses import add_headers, denial_of, ending, failed
from headgate.integrations.django.settings import check_setting, current_limiter
from headgate.integrations.exemptions import EXEMPT_ONES, is_exempt
from headgate.integrations.exemptions import exempt as exempt_function
from headgate.integrations.rate_limit_status import status_body
from headgate.integrations.request_context import RequestContext
from headgate.integrations.route_limit import (
    LimitOptions,
    NamedLimits,
    Names,
    RouteLimit,
    named_limits,
    shown_name,
)
from headgate.integrations.wsgi import WsgiRequest
from headgate.policy.path import ROUTE
from headgate.runtime.drivers import adrive, drive
from headgate.runtime.effects import Call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Hashable, Mapping

    from django.urls import ResolverMatch

    from headgate.engine.stack import Limits
    from headgate.integrations.request_limiter import RequestLimiter
    from headgate.integrations.route_limit import LimitsOf
    from headgate.runtime.effects import Effects

    def status(request: HttpRequest) -> HttpResponse:
        """A view of the limits of the caller as JSON. It consumes none of them."""


__all__ = [
    "DjangoRequest",
    "RateLimitMiddleware",
    "current_limiter",
    "exempt",
    "limit",
    "report",
    "status",
]

V = TypeVar("V", bound=Callable[..., Any])

CONTEXT: Final = "headgate"
"""The attribute of a request that has its context. A middleware outside of Django has it in the
WSGI environment or the ASGI scope, under the same name."""


class DjangoRequest(WsgiRequest):
    """A view of *django*, a request of Django: `request.django.user`.

    The template of its route, such as `/users/<int:id>/`, is found when a rule reads it.
    """

    __slots__ = ("_match", "django")

    django: HttpRequest
    _match: tuple[ResolverMatch | None] | None

    def __init__(self, django: HttpRequest) -> None:
        super().__init__(django.META)
        self.django = django
        self._match = None

    @property
    def attributes(self) -> Mapping[str, str]:
        """Further values: `route`, if it is for several paths, and those that an app adds."""
        match = self.match
        if match is None or self.django.path_info == (route := f"/{match.route}"):
            return self._attributes  # of a route that is one path only, the path says all
        return {ROUTE: route, **self._attributes}

    @property
    def match(self) -> ResolverMatch | None:
        """The view that the URLconf has for it; None if there is none."""
        if self._match is None:
            self._match = (self.django.resolver_match or _resolved(self.django),)
        return self._match[0]

    def cookies(self) -> Mapping[str, str]:
        """The cookies as Django reads them."""
        return self.django.COOKIES

    def _place(self) -> tuple[Any, ...]:
        return DjangoRequest, self.django.method, self._read_path()

    def _read_path(self) -> str:  # type: ignore[override]
        """All of it. Under ASGI, URLs are resolved whether or not the path begins with the prefix
        of the script, so the prefix is added where it is missing."""
        prefix = self.django.META.get("SCRIPT_NAME", "").rstrip("/")
        return f"{prefix}/{self.django.path_info.removeprefix('/')}"


def _resolved(request: HttpRequest) -> ResolverMatch | None:
    try:
        return resolve(request.path_info, getattr(request, "urlconf", None))
    except Resolver404:
        return None


def http_request(request: object) -> HttpRequest:
    """The request of Django that *request* is, or that Django REST framework has wrapped."""
    found = getattr(request, "_request", request)
    if isinstance(found, HttpRequest):
        return found
    raise UsageError(
        f"a limited view was called with {request!r} in place of a request; "
        "on methods of a class, use method_decorator(limit(...))"
    )


def context_of(request: HttpRequest) -> RequestContext | None:
    """The context of *request*, if a part of the app has checked it, in Django or outside."""
    found = getattr(request, CONTEXT, None)
    if found is None:
        outside = getattr(request, "scope", request.META)
        found = outside.get(CONTEXT)
    return found if isinstance(found, RequestContext) else None


def new_context(
    request: HttpRequest, limiter: RequestLimiter, *, is_managed: bool = True
) -> RequestContext:
    """A new context of *request*; the caller completes it."""
    context = RequestContext(limiter, DjangoRequest(request), is_managed=is_managed)
    setattr(request, CONTEXT, context)
    return context


def report(request: object, amounts: Mapping[str, int] | None = None, /, **named: int) -> None:
    """Report the real cost of *request*, by the name of a limit or the id of a rule.

    At any time until the response has ended, while it is streamed too; the last report counts.
    `UsageError` if no limit has checked the request.
    """
    context = context_of(http_request(request))
    if context is None:
        raise UsageError(
            "report() for a request without limits: add RateLimitMiddleware, or limit the view"
        )
    context.report(amounts, **named)


def serving(request: HttpRequest, context: RequestContext, response: Effects[Any]) -> Effects[Any]:
    """Add headers to *response*, and complete the request with it."""
    try:
        found = yield from response
        if not isinstance(found, HttpResponseBase):  # Django reports it
            yield from context.complete(CompletedResponse(500))
            return found
        add_headers(found, context)
        yield from ending(request, found, context)
    except GeneratorExit:
        raise
    except BaseException as error:
        yield from context.complete(failed(error))
        raise
    return found


# The middleware.


class RateLimitMiddleware:
    """Limits all requests as the setting `HEADGATE` says, and writes headers for views' limits too.

    It stands in `MIDDLEWARE` after what its key function needs, such as
    `AuthenticationMiddleware`, and else as far up as possible.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)
        self._looked_into: set[Hashable] = set()
        check_setting(is_async=self._is_async)  # so that a wrong one keeps the server from starting

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        """Serve one request."""
        limiter, outer = current_limiter(), context_of(request)
        context = outer or new_context(request, limiter)
        response = self._response(request, context, limiter)
        if outer is None:  # else a middleware further out sends headers and completes the request
            response = serving(request, context, response)
        return adrive(response) if self._is_async else drive(response)

    def _response(
        self, request: HttpRequest, context: RequestContext, limiter: RequestLimiter
    ) -> Effects[HttpResponseBase]:
        checked = DjangoRequest(request)
        if limiter not in context.checked and not self._is_exempt(checked):
            rest = context.start(limiter, checked)
            if rest is not None and not (yield from rest):
                return denial_of(request, limiter, context)
        response: HttpResponseBase = yield Call(partial(self.get_response, request))
        return response

    def _is_exempt(self, request: DjangoRequest) -> bool:
        """True if the view is exempt; it is looked for only if there are such views.

        That is known when the URLconf has been read, which the first look at it does.
        """
        urlconf = getattr(request.django, "urlconf", None)
        if not EXEMPT_ONES and urlconf in self._looked_into:
            return False
        self._looked_into.add(urlconf)
        match = request.match
        return match is not None and _is_exempt_view(match.func)


_ITSELF: Final = "__headgate_exempt_itself__"
"""On what `as_view` returned, to which Django copies the marks of `dispatch`."""


def exempt(view: V) -> V:
    """Exempt *view* from the limits of the project; its own limits stay.

    Subclasses of an exempt class are not exempt.
    """
    if _view_of(view) is not None:
        return view  # bound by a `method_decorator` for a request, which was checked before
    if _class_of(view) is not None:
        setattr(view, _ITSELF, True)
    return exempt_function(view)


def _is_exempt_view(view: Callable[..., Any]) -> bool:
    """True if *view*, as a URLconf has it, is exempt."""
    owner = _class_of(view)
    if owner is None:
        return is_exempt(view)
    if is_exempt(owner) or getattr(view, _ITSELF, False):
        return True
    return is_exempt(vars(owner).get("dispatch"))


@cache
def _status_view() -> Callable[[HttpRequest], HttpResponse]:
    def status(request: HttpRequest) -> HttpResponse:
        page = status_body(current_limiter(), DjangoRequest(request))
        # Under ASGI it runs in a thread, and the store is that of the event loop.
        body = async_to_sync(adrive)(page) if hasattr(request, "scope") else drive(page)
        headers = {"Cache-Control": "no-store"}
        return HttpResponse(body, content_type="application/json", headers=headers)

    return exempt_function(require_safe(status))


def __getattr__(name: str) -> Any:
    # A view that is exempt makes the middleware look for views: it is made when it is used.
    if name == "status":
        return _status_view()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# Limits of single views, sync and async.


_IN_MAKING: Final = "django.utils.decorators"
"""The module of the dummies that `method_decorator` tries decorators on; they are never async."""


def limit(
    limits: Limits | LimitsOf[Any],
    *,
    limiter: RequestLimiter | None = None,
    **options: Unpack[LimitOptions],
) -> Callable[[V], V]:
    """Limit a view: a function, sync or async, or with `method_decorator` one of a class.

    The options are those of a `RouteLimit`; functions get Django's request. *limiter*: by default
    that of the project. Several on one view are one check, all or nothing.

    `UsageError` if it is called for a single request without a *name*: it is named after its place
    among the limits of the view, so each call would have a new counter.
    """
    one = RouteLimit(limits=limits, **options)
    if one.name is None and _is_serving():
        raise UsageError(
            "limit() was called while a request is being served: each call would count for itself. "
            "Apply it where the view is defined, or give it a name"
        )
    return LimitedView.decorator(one, limiter)


_HANDLING: Final = "django.core.handlers.exception"
"""The module that Django has around each middleware, and around the call of the view."""

_READING: Final = frozenset(("importlib._bootstrap", "django.urls.resolvers"))
"""The modules that read code and the URLconf, with the first request for one. What they make
stays."""


def _is_serving() -> bool:
    """True if a request is being served further up the stack.

    It is found in the frames, as there need not be a middleware of ours. A thread begins with the
    view: so a request that has its view is looked for too.
    """
    frame = inspect.currentframe()
    while frame is not None:
        module = frame.f_globals.get("__name__")
        if module in _READING:
            return False
        if module == _HANDLING or any(
            issubclass(type(value), HttpRequest) and value.resolver_match is not None
            for value in frame.f_locals.values()
        ):
            return True
        frame = frame.f_back
    return False


class LimitedView(LimitedFunction):
    """A view with limits."""

    def __init__(self, function: Callable[..., Any], *options: Any) -> None:
        super().__init__(function, *options)
        self.names = _view_names(function)

    def wrapper(self) -> Callable[..., Any]:
        """The view for Django."""
        function = self.function
        instance, in_making = _view_of(function), function.__module__ == _IN_MAKING
        is_async = iscoroutinefunction(function) or getattr(instance, "view_is_async", False)
        for one in () if in_making else self.limits:
            _number_of(one, self.names.counter)
            if not is_async:
                one.check_blocking()
        if self.limiter is not None and not in_making:
            _ = self.limiter.engine  # opened now: the first request may come in several threads

        def view(request: Any, *args: Any, **kwargs: Any) -> Any:
            return drive(self.serve(request, args, kwargs))

        async def async_view(request: Any, *args: Any, **kwargs: Any) -> Any:
            return await adrive(self.serve(request, args, kwargs))

        return async_view if is_async else view

    def serve(self, request: Any, args: Any, kwargs: Any) -> Effects[Any]:
        """Serve *request*; a response that no other part of the app completes is completed here."""
        http = http_request(request)
        context = context_of(http) or new_context(
            http, self.limiter or current_limiter(), is_managed=False
        )
        response = self._response(http, context, request, args, kwargs)
        if context.is_managed:
            return (yield from response)
        context.is_managed = True
        try:
            return (yield from serving(http, context, response))
        finally:
            context.is_managed = False  # a view may call several functions with limits

    def _response(
        self, http: HttpRequest, context: RequestContext, request: Any, args: Any, kwargs: Any
    ) -> Effects[Any]:
        limiter = self.limiter or context.limiter
        rest = context.start_route(limiter, self._limits_in(context), request, DjangoRequest(http))
        if rest is not None and not (yield from rest):
            return denial_of(http, limiter, context)
        return (yield Call(partial(self.function, request, *args, **kwargs)))

    def _limits_in(self, context: RequestContext) -> NamedLimits:
        before = context.count_unnamed(self.names.shown, self.unnamed)
        return _named(self.limits, self.names, before)


_numbers: Counter[str] = Counter()


@cache
def _number_of(one: RouteLimit, view: str) -> int:  # noqa: ARG001 (a part of the key)
    """The number of *one* among the limits of a view: from 0, in the order of the program.

    It belongs to the limit: `method_decorator` decorates a method for each request, and a function
    may be several views, each with limits of its own.
    """
    _numbers[view] += 1
    return _numbers[view] - 1


@lru_cache(maxsize=4096)
def _named(limits: tuple[RouteLimit, ...], view: Names, before: int) -> NamedLimits:
    named = named_limits(limits[::-1], view.shown, "", 0, before).each  # the outermost first
    return NamedLimits(
        (one, names if one.name else names._replace(counter=f"{view.counter}#{number}"))
        for one, names in named
        for number in (_number_of(one, view.counter),)
    )


def _view_of(view: Callable[..., Any]) -> View | None:
    """The class-based view that *view* is a bound method of, as `method_decorator` binds it."""
    found = getattr(inner_function(view), "__self__", None)
    return found if isinstance(found, View) else None


def _class_of(view: Callable[..., Any]) -> type | None:
    """The class that *view* was made of by `as_view`; Django REST framework calls it `cls`."""
    found = getattr(view, "view_class", None) or getattr(view, "cls", None)
    return found if isinstance(found, type) else None


def _view_names(view: Callable[..., Any]) -> Names:
    """The names of *view*: the same in every process, and different from those of other views.

    A view of a class is named after the class: the results of `as_view` all have one name, and so
    has an inherited `dispatch`.
    """
    instance = _view_of(view)
    owner = _class_of(view) if instance is None else type(instance)
    own = getattr(inner_function(view), "__name__", type(view).__name__)
    if owner is None:
        return Names(shown_name(own), function_names(view).counter)
    name = owner.__name__ if instance is None or own == "dispatch" else f"{owner.__name__}.{own}"
    place = owner.__qualname__ if instance is None else f"{owner.__qualname__}.{own}"
    return Names(shown_name(name), f":{owner.__module__}.{place}")
