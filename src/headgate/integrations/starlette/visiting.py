"""One request at one part of the app: asked about, told of, and ended if nobody else sees to it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from headgate.errors import UsageError
from headgate.integrations.asgi import sending
from headgate.integrations.asgi.request import PASSAGE, AsgiRequest, passage_in
from headgate.integrations.asgi.sending import POLICY_VIOLATION, deny, encoded
from headgate.integrations.debugging import is_debugged
from headgate.integrations.exemptions import mark_exempt
from headgate.integrations.gate import Gate
from headgate.integrations.passage import Passage, Responded
from headgate.integrations.passing import enter_async, finish_async

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import HTTPConnection

    from headgate.integrations.allowance import Allowance, Names
    from headgate.integrations.asgi.request import Receive, Scope, Send
    from headgate.responses import Refusal


# Refusals on their way to the client: an exception that words itself.
#
# A refusal is raised, so that an app may word it in its own way: it registers a handler for
# `TooManyRequests` (or for the status 429), like for any other error. One that does not sends ours.


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


if TYPE_CHECKING:
    Asked = Sequence[tuple[Allowance[Any], Names]]

SWITCHING_PROTOCOLS = 101


_OWN_GATE: Final = "__headgate_gate__"


def own_gate(scope: Scope) -> Gate:
    """The gate of what has limits and was given no gate: it counts in this process.

    Each app has one, and so do all that are mounted in it. It is kept by the outermost router, so
    that it goes when that goes; a dict cannot keep it, as routers have no hash.
    """
    outermost = scope.get("router") or scope.get("app")
    kept = getattr(outermost, "__dict__", None)
    if not isinstance(kept, dict):
        return _gate_of_no_app()
    gate: Gate | None = kept.get(_OWN_GATE)
    return kept.setdefault(_OWN_GATE, Gate()) if gate is None else gate


@lru_cache(maxsize=1)
def _gate_of_no_app() -> Gate:
    return Gate()


class Visit:
    """A request, and what it is asked by one part of the app.

    If there is a passage already, and somebody watches it, there is nothing to do but to ask.
    """

    __slots__ = ("connection", "gate", "passage", "response")

    def __init__(self, connection: HTTPConnection, gate: Gate | None) -> None:
        scope = connection.scope
        passage = passage_in(scope)
        if passage is None:
            is_cross_origin = "origin" in connection.headers
            asked = gate or own_gate(scope)
            passage = Passage(
                asked,
                is_cross_origin=is_cross_origin,
                is_debugged=is_debugged(asked, AsgiRequest(scope)),
            )
            scope[PASSAGE] = passage
        self.connection = connection
        self.passage = passage
        self.gate = passage.gate if gate is None else gate
        self.response: Response | None = None

    async def enter(self, asked: Asked) -> bool:
        """Whether the request may go on."""
        request = AsgiRequest(self.connection.scope)
        asking = self.gate.entry_for(asked, self.connection, request)
        return await enter_async(self.passage, self.gate, asking)

    @property
    def refusal(self) -> TooManyRequests:
        """What to raise if it may not."""
        told = self.gate.refusal(self.passage, self.connection.headers.get("accept"))
        return refused(self.connection, told)

    async def refuse(self) -> Response | None:
        """Refuse the request: raise, or return what to send where nobody would catch it."""
        error = self.refusal
        if isinstance(self.connection, WebSocket):
            await deny_websocket(self.connection, error.refusal)
            return None
        if can_raise(self.connection.scope):
            raise error
        return response_for(error.refusal, str(self.connection.scope.get("method", "GET")))

    def tell(self, response: Response) -> None:
        """Add the headers to *response*, unless somebody else will."""
        if not self.passage.is_watched:
            # In place: MutableHeaders that somebody has taken of it stay true.
            told = sending.completed(response.raw_headers, self.passage, response.status_code)
            response.raw_headers[:] = told

    async def completed(self, result: Any) -> Any:
        """What to return in place of *result*, so that headers are sent and the end is seen."""
        if self.passage.is_watched:
            return result
        if isinstance(self.connection, WebSocket) or not callable(result):
            is_socket = isinstance(self.connection, WebSocket)
            await self.finish(Responded(SWITCHING_PROTOCOLS if is_socket else 200))
            return result
        if isinstance(result, Response) and not self.passage.has_an_end:
            self.tell(result)
            return result
        return WatchedResponse(result, self.passage)

    async def fail(self, error: BaseException) -> None:
        """Note that *error* was raised in place of a response."""
        if not self.passage.is_watched:
            await self.finish(Responded(status_of(error), error=error))

    async def finish(self, responded: Responded) -> None:
        """Settle what is to be settled."""
        await finish_async(self.passage, responded)


class WatchedResponse(Response):
    """A response, or any ASGI app in its place, whose end is seen; to all else what it stands for.

    Its end is that of its last body, before any background tasks.
    """

    _inner: Callable[..., Any]
    _passage: Passage

    def __init__(self, inner: Callable[..., Any], passage: Passage) -> None:
        object.__setattr__(self, "_inner", inner)
        object.__setattr__(self, "_passage", passage)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._inner, name, value)

    @property
    def headers(self) -> Any:
        """The headers of the response itself."""
        return getattr(self._inner, "headers")  # noqa: B009 (mypy: any app may stand here)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        response = sending.Response(self._passage, send, AsgiRequest(scope))
        try:
            await self._inner(scope, receive, response.send)
        except BaseException as error:
            response.error = error
            raise
        finally:
            await response.finish()


def status_of(error: BaseException) -> int:
    """The status of the response that *error* becomes, as far as that can be told here."""
    if isinstance(error, HTTPException):
        return error.status_code
    if isinstance(error, WebSocketDisconnect):
        return SWITCHING_PROTOCOLS  # the other end has gone, which is how websockets end
    return 500


# What the functions of an app say: that they are exempt, and what they have cost.


F = TypeVar("F")


def exempt(endpoint: F) -> F:
    """Mark *endpoint* as one that the limits of the whole app are not for.

    It may be a function, a class, or a method of an `HTTPEndpoint`. Limits that it has itself stay.
    Subclasses are not exempt.
    """
    if not callable(endpoint):
        raise UsageError(f"cannot exempt {endpoint!r}; write @exempt above an endpoint")
    return mark_exempt(endpoint)


def report(
    request: HTTPConnection, amounts: Mapping[str, int] | None = None, /, **named: int
) -> None:
    """Say what *request* has really cost, by the name of a limit: `report(request, tokens=812)`.

    A mapping is for names that are no identifiers. Of what is said twice the later counts.
    `UsageError` if nothing has limited this request.
    """
    passage = passage_in(request.scope)
    if passage is None:
        raise UsageError(
            "nothing has limited this request: report() needs RateLimitMiddleware, or a limit "
            "on the endpoint"
        )
    passage.report({**(amounts or {}), **named})
