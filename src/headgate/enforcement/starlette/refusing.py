"""Refusals on their way to the client: an exception that words itself.

A refusal is raised, so that an app may word it in its own way: it registers a handler for
`TooManyRequests` (or for the status 429), like for any other error. One that does not sends ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketState

from headgate.enforcement.asgi.sending import POLICY_VIOLATION, deny, encoded

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from headgate.enforcement.asgi.incoming import Scope
    from headgate.responses import Refusal

HANDLERS: Final = "starlette.exception_handlers"
"""Where in a scope Starlette keeps the handlers: by class of error, and by status."""


class TooManyRequests(HTTPException):
    """A request was refused: status 429, or 503 if the limit could not be asked.

    *refusal* is what is sent, to the byte, unless a handler of the app's sends something else.
    """

    def __init__(self, refusal: Refusal) -> None:
        words = "Too Many Requests" if refusal.status == 429 else "Service Unavailable"
        super().__init__(refusal.status, detail=words, headers=dict(refusal.headers))
        self.refusal = refusal


def refused(connection: HTTPConnection, refusal: Refusal) -> TooManyRequests:
    """The error to raise; the app will know how to answer it."""
    handlers = connection.scope.get(HANDLERS)
    if handlers is not None:
        handlers[0].setdefault(TooManyRequests, answer)
    return TooManyRequests(refusal)


def can_raise(scope: Scope) -> bool:
    """Whether somebody further out turns errors into responses."""
    return HANDLERS in scope


async def answer(connection: HTTPConnection, error: Exception) -> Response | None:
    """Send what Headgate says; a handler for `TooManyRequests`, and for nothing else."""
    assert isinstance(error, TooManyRequests)  # noqa: S101 (it is registered for no other)
    if isinstance(connection, WebSocket):
        await deny_websocket(connection, error.refusal)
        return None
    return response_for(error.refusal, str(connection.scope.get("method", "GET")))


def response_for(refusal: Refusal, method: str) -> Response:
    """The response that *refusal* is."""
    body = b"" if method == "HEAD" else refusal.body
    response = Response(body, refusal.status)
    length = (b"content-length", b"%d" % len(refusal.body))
    response.raw_headers = [*encoded(refusal.headers), length]
    return response


async def deny_websocket(websocket: WebSocket, refusal: Refusal) -> None:
    """Refuse *websocket*: as an HTTP response if the server can do that, else by closing it."""
    if websocket.client_state is WebSocketState.CONNECTING:
        await deny(websocket.scope, websocket.receive, websocket.send, refusal)
    else:  # somebody has accepted it, or at least heard of it, already
        await websocket.close(POLICY_VIOLATION)
