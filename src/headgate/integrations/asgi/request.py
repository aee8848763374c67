"""An ASGI scope as a request."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Hashable, Mapping, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.engine.request import NOTHING
from headgate.errors import UsageError
from headgate.integrations.exemptions import EXEMPT_ONES, is_exempt
from headgate.integrations.lazy_request import LOCAL, LazyRequest, write

if TYPE_CHECKING:
    from headgate.engine.request import Reads
    from headgate.integrations.passage import Passage


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PASSAGE: Final = "headgate"
"""Where in a scope the passage of its request is."""


class AsgiRequest(LazyRequest):
    """The request that *scope* is about, HTTP or websocket. The scope is there for whoever needs
    what a framework put in it: `request.scope["user"]`."""

    __slots__ = ("scope",)

    def __init__(self, scope: Scope) -> None:
        lines = scope.get("headers")
        if type(lines) is not list and type(lines) is not tuple:
            scope["headers"] = list(lines or ())  # which may be read only once
        # What `LazyRequest.__init__` does, without the call: one is made for every request.
        write(self, "scope", scope)
        write(self, "_attributes", NOTHING)
        write(self, "_headers", None)
        write(self, "_path", None)

    scope: Scope

    @property
    def method(self) -> str:
        """The method; that of a websocket is GET, as it begins with one."""
        return str(self.scope.get("method", "GET")).upper()

    @property
    def host(self) -> str:
        """What the client takes the server for."""
        return self.header("host") or ""

    @property
    def peer(self) -> str:
        """The address of the other end of the connection."""
        client = self.scope.get("client")
        return (client[0] if client else "") or LOCAL

    def header(self, name: str) -> str | None:
        """The value of the header *name* (in lower case); of several lines the first."""
        wanted = name.encode("latin-1", "replace")
        for field, value in self.scope.get("headers", ()):
            if field == wanted or field.lower() == wanted:
                text: str = value.decode("latin-1")
                return text
        return None

    def parts(self, reads: Reads) -> tuple[Hashable, ...]:
        """The values of all that *reads* names, as the scope has them."""
        if type(self) is not AsgiRequest:  # a subclass may read something else
            return super().parts(reads)
        scope, fields = self.scope, reads.fields
        client = scope.get("client")
        lines = [(name, value) for name, value in scope["headers"] if name.lower() in fields]
        found = (
            AsgiRequest,
            scope.get("method", "GET"),
            scope.get("path", "/"),
            client[0] if client else "",
            *lines,
        )
        return (*found, *self._attributes_read(reads)) if reads.attributes else found

    def _read_headers(self) -> tuple[tuple[str, str], ...]:
        lines = self.scope.get("headers", ())
        return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in lines)

    def _read_path(self) -> str:
        return str(self.scope.get("path", "/"))


def passage_in(scope: Scope) -> Passage | None:
    """The passage of the request of *scope*, if a part of the app has asked about it."""
    found: Passage | None = scope.get(PASSAGE)
    return found


def report(scope: Scope, amounts: Mapping[str, int] | None = None, /, **named: int) -> None:
    """Say what the request of *scope* really cost, by the name of a limit or the id of a rule.

    It is charged at the end of the response, in place of what was held.
    """
    passage = passage_in(scope)
    if passage is None:
        raise UsageError("nothing was asked about this request: is RateLimitMiddleware installed?")
    passage.report({**(amounts or {}), **named})


# Which route of the app a request is for, before the app has looked; if a framework can tell.


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
    found: Resolved | None = import_module("headgate.integrations.starlette").resolve(scope, app)
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
