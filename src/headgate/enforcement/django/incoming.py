"""A request of Django's as Headgate sees it, and where the passage of one is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.http import HttpRequest
from django.urls import Resolver404, resolve

from headgate.enforcement.debugging import is_debugged
from headgate.enforcement.lazy import LOCAL, LazyRequest
from headgate.enforcement.passage import Passage
from headgate.errors import UsageError
from headgate.rules.matching.endpoint import ROUTE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.urls import ResolverMatch

    from headgate.enforcement.gate import Gate

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
