"""A request of Django's as Headgate sees it, and where the passage of one is found."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from django.http import HttpRequest
from django.urls import Resolver404, resolve
from django.views import View

from headgate.errors import UsageError
from headgate.integrations.allowance import Names, free_name, shown_name
from headgate.integrations.debugging import is_debugged
from headgate.integrations.lazy_request import LOCAL, LazyRequest, environ_lines
from headgate.integrations.passage import Passage
from headgate.policy.path import ROUTE

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from django.urls import ResolverMatch

    from headgate.engine.request import Reads
    from headgate.integrations.gate import Gate


PASSAGE: Final = "headgate"
"""The attribute of a request that has its passage; what is outside of Django has it in the WSGI
environment or the ASGI scope, under the same name."""

_UNPREFIXED: Final = ("CONTENT_TYPE", "CONTENT_LENGTH")


class DjangoRequest(LazyRequest):
    """The request that Django has as *django*: `request.django.user`.

    The template of its route, such as `/users/<int:id>/`, is found when a rule asks for it.
    """

    __slots__ = ("_match", "django")

    django: HttpRequest
    _match: tuple[ResolverMatch | None] | None

    def __init__(self, django: HttpRequest) -> None:
        super().__init__()
        self._set("django", django)
        self._set("_match", None)

    @property
    def method(self) -> str:
        """The method."""
        return (self.django.method or "GET").upper()

    @property
    def host(self) -> str:
        """What the client takes the server for, unchecked."""
        return self.header("host") or ""

    @property
    def peer(self) -> str:
        """The address of the other end of the connection."""
        return str(self.django.META.get("REMOTE_ADDR") or LOCAL)

    @property
    def attributes(self) -> Mapping[str, str]:
        """What else is known: `route`, if it is for several paths, and what an app adds."""
        match = self.match
        if match is None or self.django.path_info == (route := f"/{match.route}"):
            return self._attributes  # of a route that is one path only, the path says all
        return {ROUTE: route, **self._attributes}

    @property
    def match(self) -> ResolverMatch | None:
        """The view that the URLconf has for it; None if there is none."""
        if self._match is None:
            self._set("_match", (self.django.resolver_match or _resolved(self.django),))
        return None if self._match is None else self._match[0]

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
    """The request of Django's that *request* is, or that Django REST framework has wrapped."""
    found = getattr(request, "_request", request)
    if isinstance(found, HttpRequest):
        return found
    raise UsageError(
        f"a limited view was called with {request!r} in place of a request; "
        "on methods of a class, use method_decorator(limit(...))"
    )


def passage_of(request: HttpRequest) -> Passage | None:
    """The passage of *request*, if anybody has asked about it, inside of Django or outside."""
    found = getattr(request, PASSAGE, None)
    if found is None:
        outside = getattr(request, "scope", request.META)
        found = outside.get(PASSAGE)
    return found if isinstance(found, Passage) else None


def begin(request: HttpRequest, gate: Gate) -> Passage:
    """The new passage of *request*, which whoever calls this sees to its end."""
    is_cross_origin = "HTTP_ORIGIN" in request.META
    passage = Passage(
        gate,
        is_watched=True,
        is_cross_origin=is_cross_origin,
        is_debugged=is_debugged(gate, DjangoRequest(request)),
    )
    setattr(request, PASSAGE, passage)
    return passage


def _resolved(request: HttpRequest) -> ResolverMatch | None:
    try:
        return resolve(request.path_info, getattr(request, "urlconf", None))
    except Resolver404:
        return None


# What the limits of views are called, for clients and in the store.


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


def called(view: Callable[..., Any]) -> Names:
    """What *view* is called: the same in every process, and different from all other views.

    That of a class is called after the class: what `as_view` returns has always the same name, and
    so has a `dispatch` that was inherited.
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


def told_apart(names: Iterable[Names], passage: Passage, given: Iterable[str] = ()) -> list[Names]:
    """*names*, shown so that clients can tell them from each other, from those that were told
    already and from *given* ones."""
    taken = {told.name for told in (*passage.told, *passage.refusal_told)}.union(given)
    found = []
    for name in names:
        shown = free_name(name.shown, taken)
        taken.add(shown)
        found.append(name._replace(shown=shown))
    return found


# What a request really cost, said by the view that knows it.


def report(request: object, amounts: Mapping[str, int] | None = None, /, **named: int) -> None:
    """Say what *request* has used of the limits that were asked for an estimate, by their names, or
    of rules that are charged afterwards, by their ids.

    At any time until the response is over, while it is streamed too; the last word counts.
    `UsageError` if nobody limits the request.
    """
    passage = passage_of(http_request(request))
    if passage is None:
        raise UsageError(
            "report() for a request that nobody limits: add RateLimitMiddleware, or limit the view"
        )
    passage.report({**(amounts or {}), **named})
