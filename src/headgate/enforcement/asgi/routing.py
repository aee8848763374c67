"""Which route of the app a request is for, before the app has looked; if a framework can tell."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from headgate.enforcement.marks import EXEMPT_ONES, is_exempt

if TYPE_CHECKING:
    from headgate.enforcement.asgi.incoming import App, AsgiRequest, Scope


class Resolved(NamedTuple):
    """A route: its template, as `/users/{id}`, and the function that serves it."""

    template: str
    endpoint: object


def route_in(scope: Scope, app: App) -> Resolved | None:
    """The route that the request of *scope* is for; None if nobody can tell.

    A framework says in the scope which app it is. *app* is what our middleware is around, which
    that app may not be able to look into.
    """
    if "starlette" not in sys.modules:
        return None
    found: Resolved | None = import_module("headgate.enforcement.starlette").resolve(scope, app)
    return found


def add_route(request: AsgiRequest, app: App) -> None:
    """Say which route of *app* *request* is for, for rules that count by endpoint."""
    found = route_in(request.scope, app)
    if found is not None:
        request.add_attributes({"route": found.template})


def is_marked_exempt(scope: Scope, app: App) -> bool:
    """Whether the function of *app* that serves the request is marked as exempt."""
    if not EXEMPT_ONES:
        return False
    found = route_in(scope, app)
    return found is not None and is_exempt(found.endpoint)
