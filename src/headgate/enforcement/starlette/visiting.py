"""One request at one part of the app: asked about, told of, and ended if nobody else sees to it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from headgate.enforcement.asgi import sending
from headgate.enforcement.asgi.incoming import PASSAGE, AsgiRequest, passage_in
from headgate.enforcement.debugging import is_debugged
from headgate.enforcement.gate import Gate
from headgate.enforcement.passage import Passage, Responded
from headgate.enforcement.passing import enter_async, finish_async
from headgate.enforcement.starlette.refusing import (
    can_raise,
    deny_websocket,
    refused,
    response_for,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import HTTPConnection

    from headgate.enforcement.allowance import Allowance, Names
    from headgate.enforcement.asgi.incoming import Receive, Scope, Send
    from headgate.enforcement.starlette.refusing import TooManyRequests

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
        response = sending.Response(self._passage, send)
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
