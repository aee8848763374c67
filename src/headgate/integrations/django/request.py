"""A view of Django's requests, their contexts, and the names of limits of views."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from django.http import HttpRequest
from django.urls import Resolver404, resolve
from django.views import View

from headgate.errors import UsageError
from headgate.integrations.request_context import RequestContext
from headgate.integrations.request_view import LOCAL, RequestView, environ_lines
from headgate.integrations.route_limit import Names, free_name, shown_name
from headgate.policy.path import ROUTE

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from django.urls import ResolverMatch

    from headgate.engine.request import Reads
    from headgate.integrations.request_limiter import RequestLimiter


CONTEXT: Final = "headgate"
"""The attribute of a request that has its context. A middleware outside of Django has it in the
WSGI environment or the ASGI scope, under the same name."""

_UNPREFIXED: Final = ("CONTENT_TYPE", "CONTENT_LENGTH")


class DjangoRequest(RequestView):
    """A view of *django*, a request of Django: `request.django.user`.

    The template of its route, such as `/users/<int:id>/`, is found when a rule reads it.
    """

    __slots__ = ("_match", "django")

    django: HttpRequest
    _match: tuple[ResolverMatch | None] | None

    def __init__(self, django: HttpRequest) -> None:
        super().__init__()
        self.django = django
        self._match = None

    @property
    def method(self) -> str:
        """The method."""
        return (self.django.method or "GET").upper()

    @property
    def host(self) -> str:
        """The `Host` header, unchecked."""
        return self.header("host") or ""

    @property
    def peer(self) -> str:
        """The address of the other end of the connection."""
        return str(self.django.META.get("REMOTE_ADDR") or LOCAL)

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

    def header(self, name: str) -> str | None:
        """The value of the header *name*; several lines are one, with commas."""
        field = name.upper().replace("-", "_")
        found: str | None = self.django.META.get(field if field in _UNPREFIXED else f"HTTP_{field}")
        return found

    def parts(self, reads: Reads) -> tuple[Hashable, ...]:
        """The values of all that *reads* names, as Django has them."""
        if type(self) is not DjangoRequest:  # a subclass may read something else
            return super().parts(reads)
        django = self.django
        meta = django.META
        lines = environ_lines(meta, reads)
        found = DjangoRequest, django.method, django.path, meta.get("REMOTE_ADDR"), *lines
        return (*found, *self._attributes_read(reads)) if reads.attributes else found

    def _read_headers(self) -> tuple[tuple[str, str], ...]:
        return tuple(
            (name.removeprefix("HTTP_").replace("_", "-").lower(), value)
            for name, value in self.django.META.items()
            if name.startswith("HTTP_") or (name in _UNPREFIXED and value)
        )

    def _read_path(self) -> str:
        return self.django.path


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


def _resolved(request: HttpRequest) -> ResolverMatch | None:
    try:
        return resolve(request.path_info, getattr(request, "urlconf", None))
    except Resolver404:
        return None


# The names of the limits of views, in headers and of counters.


_PER_VIEW: Counter[str] = Counter()
_counting = threading.Lock()


def view_of(view: Callable[..., Any]) -> View | None:
    """The class-based view that *view* is a bound method of, as `method_decorator` binds it."""
    method = view.func if isinstance(view, partial) else view
    found = getattr(method, "__self__", None)
    return found if isinstance(found, View) else None


def class_of(view: Callable[..., Any]) -> type | None:
    """The class that *view* was made of by `as_view`; Django REST framework calls it `cls`."""
    found = getattr(view, "view_class", None) or getattr(view, "cls", None)
    return found if isinstance(found, type) else None


def view_names(view: Callable[..., Any]) -> Names:
    """The names of *view*: the same in every process, and different from those of other views.

    A view of a class is named after the class: the results of `as_view` all have one name, and so
    has an inherited `dispatch`.
    """
    instance = view_of(view)
    owner = class_of(view) if instance is None else type(instance)
    while isinstance(view, partial):
        view = view.func
    own = getattr(view, "__name__", type(view).__name__)
    if owner is None:
        place = getattr(view, "__qualname__", type(view).__qualname__)
        return Names(shown_name(own), f":{view.__module__}.{place}")
    name = owner.__name__ if instance is None or own == "dispatch" else f"{owner.__name__}.{own}"
    place = owner.__qualname__ if instance is None else f"{owner.__qualname__}.{own}"
    return Names(shown_name(name), f":{owner.__module__}.{place}")


class Numbers:
    """The numbers that one limit has among those of each view that it is for."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, view: str) -> int:
        """Its number at *view*: from 0, in the order in which they were put there."""
        number = self._numbers.get(view)
        if number is None:
            with _counting:
                number = self._numbers.setdefault(view, _PER_VIEW[view])
                _PER_VIEW[view] += 1
        return number


def distinct(
    names: Iterable[Names], context: RequestContext, given: Iterable[str] = ()
) -> list[Names]:
    """*names*, shown so that they differ from each other, from those of the response so far and
    from *given* ones."""
    taken = {told.name for told in (*context.told, *context.denial_told)}.union(given)
    found = []
    for name in names:
        shown = free_name(name.shown, taken)
        taken.add(shown)
        found.append(name._replace(shown=shown))
    return found


def report(request: object, amounts: Mapping[str, int] | None = None, /, **named: int) -> None:
    """Report the real cost of *request*, by the name of a limit or the id of a rule.

    At any time until the response is over, while it is streamed too; the last report counts.
    `UsageError` if no limit has checked the request.
    """
    context = context_of(http_request(request))
    if context is None:
        raise UsageError(
            "report() for a request without limits: add RateLimitMiddleware, or limit the view"
        )
    context.report({**(amounts or {}), **named})
