"""An ASGI scope as a request."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Hashable, Mapping, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.engine.request import NOTHING
from headgate.errors import UsageError
from headgate.integrations.request_view import LOCAL, RequestView

if TYPE_CHECKING:
    from headgate.engine.request import Reads
    from headgate.integrations.request_context import RequestContext


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CONTEXT: Final = "headgate"
"""The key of a scope under which the context of its request is."""


class AsgiRequest(RequestView):
    """A view of the request of *scope*, HTTP or websocket. The scope has what a framework put in
    it: `request.scope["user"]`."""

    __slots__ = ("scope",)

    def __init__(self, scope: Scope) -> None:
        lines = scope.get("headers")
        if type(lines) is not list and type(lines) is not tuple:
            scope["headers"] = list(lines or ())  # which may be read only once
        self.scope = scope
        self._attributes = NOTHING
        self._headers = self._path = None

    scope: Scope

    @property
    def method(self) -> str:
        """The method; that of a websocket is GET, as it begins with one."""
        method: str = self.scope.get("method", "GET")
        return method.upper()

    @property
    def peer(self) -> str:
        """The address of the other end of the connection."""
        client = self.scope.get("client")
        return (client[0] if client else "") or LOCAL

    def header(self, name: str) -> str | None:
        """The value of the header *name* (in lower case); of several lines the first."""
        encoded = name.encode("latin-1", "replace")
        for field, value in self.scope.get("headers", ()):
            if field == encoded or field.lower() == encoded:
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


def context_in(scope: Scope) -> RequestContext | None:
    """The context of the request of *scope*, if a part of the app has checked it."""
    found: RequestContext | None = scope.get(CONTEXT)
    return found


def report(request: Any, amounts: Mapping[str, int] | None = None, /, **named: int) -> None:
    """Report the real cost of *request*, by the name of a limit: `report(request, tokens=812)`.

    *request* is a scope, or has one. *amounts* is for names that are no identifiers. The last
    report before the end of the response counts. `UsageError` if no limit has checked the request.
    """
    context = context_in(getattr(request, "scope", request))
    if context is None:
        raise UsageError(
            "nothing has limited this request: report() needs RateLimitMiddleware, or a limit "
            "on the endpoint"
        )
    context.report(amounts, **named)


class Resolved(NamedTuple):
    """A route: its template, as `/users/{id}`, and the function that serves it."""

    template: str
    endpoint: object


def route_in(scope: Scope, app: App) -> Resolved | None:
    """The route of the request of *scope*, before the app has looked for it; None if unknown.

    A framework names its app in the scope. *app* is the one that our middleware wraps, which that
    app may not be able to look into.
    """
    handler = scope.get("route_handler")
    if handler is not None:  # Litestar finds the route before its middlewares run
        return Resolved(scope["path_template"], getattr(handler.fn, "func", handler.fn))
    if "starlette" not in sys.modules:
        return None
    found: Resolved | None = import_module("headgate.integrations.starlette").resolve(scope, app)
    return found
