"""The ASGI middleware: each request is asked about, and its response told of it.

It passes on what it is given: bodies are streamed both ways as they come, and there is one
`http.response.start`. Websockets are limited when they connect. It never blocks the event loop.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack

from headgate.integrations.asgi.fast_path import quick_way
from headgate.integrations.asgi.request import PASSAGE, AsgiRequest, add_route, is_marked_exempt
from headgate.integrations.asgi.sending import (
    ClientGoneError,
    Handshake,
    Listening,
    Response,
    deny,
    refuse,
)
from headgate.integrations.debugging import is_debugged
from headgate.integrations.exemptions import EXEMPT_ONES
from headgate.integrations.gate import gate_of
from headgate.integrations.passage import Passage
from headgate.integrations.passing import (
    abandon_async,
    enter_async,
    finish_async,
    grant_now,
    pass_async,
)
from headgate.integrations.status import status_body_async

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from headgate.integrations.asgi.request import App, Message, Receive, Scope, Send
    from headgate.integrations.gate import Gate, GateOptions
    from headgate.integrations.passing import Meanwhile

    Entering = Callable[[Meanwhile], Coroutine[Any, Any, bool]]


SHUTDOWN: Final = frozenset({"lifespan.shutdown.complete", "lifespan.shutdown.failed"})


_SLOTS: Final = ("__call__", "_is_its_own", "app", "gate")
"""By name, since pyright takes a method that is among literal slots for a variable."""


class RateLimitMiddleware:
    """Limits the requests to *app* as *gate* says, or as a gate made with the same options would.

    The gate that it made itself is closed with the app (`lifespan.shutdown`).
    """

    __slots__ = _SLOTS

    if TYPE_CHECKING:

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def __init__(self, app: App, gate: Gate | None = None, **options: Unpack[GateOptions]) -> None:
        self.app = app
        self.gate = gate_of(gate, options)
        self._is_its_own = gate is None
        _ = self.gate.engine  # a store that would block the loop is told of at once
        # The way that connections take is chosen once, so that no request pays for the choice.
        way = quick_way(self.gate, app, self._connection) or self._connection
        _WAY.__set__(self, way)

    async def _connection(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one connection, of whatever kind."""
        kind = scope["type"]
        if kind == "http":
            request = AsgiRequest(scope)
            outer: Passage | None = scope.get(PASSAGE)
            passage = outer or self._begin(scope, request)
            if outer is None or self.gate not in outer.asked:  # a request is counted once
                waiting = self._enter_now(passage, request)
                if waiting is not None:
                    listening = Listening(receive)
                    if not await self._admit(passage, request, send, waiting(listening.meanwhile)):
                        return
                    receive = listening.receive if listening.has_heard else receive
            if outer is not None:  # another of our middlewares, further out, sees to the response
                await self.app(scope, receive, send)
                return
            response = Response(passage, send, request)
            try:
                await self.app(scope, receive, response.send)
            except BaseException as error:
                response.error = error
                raise
            finally:
                if passage.grants:  # its last message has not ended it
                    await response.finish()
        elif kind == "websocket":
            await self._websocket(scope, receive, send)
        elif kind == "lifespan":
            await self._lifespan(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = AsgiRequest(scope)
        outer: Passage | None = scope.get(PASSAGE)
        passage = outer or self._begin(scope, request)
        has_asked = outer is not None and self.gate in outer.asked
        if not (has_asked or await self._enter(passage, request)):
            refusal = self.gate.refusal(passage, request.header("accept"))
            await deny(scope, receive, send, refusal)
            return
        if outer is not None:
            await self.app(scope, receive, send)
            return
        handshake = Handshake(passage, send)
        try:
            await self.app(scope, receive, handshake.send)
        except BaseException as error:
            handshake.error = error
            raise
        finally:
            await finish_async(passage, handshake.responded)

    def _begin(self, scope: Scope, request: AsgiRequest) -> Passage:
        gate = self.gate
        passage = Passage(
            gate,
            is_watched=True,
            is_cross_origin=request.header("origin") is not None,
            is_debugged=gate.debugging is not None and is_debugged(gate, request),
        )
        scope[PASSAGE] = passage
        return passage

    def _enter_now(self, passage: Passage, request: AsgiRequest) -> Entering | None:
        """Decide a request at once: None if it may go on, else what has to be waited for."""
        gate = self.gate
        rules = gate.rules
        if (
            EXEMPT_ONES
            or gate.calls_functions
            or (rules is not None and rules.in_force.compiled.counts_endpoints)
        ):
            return partial(self._enter, passage, request)
        passage.asked.add(gate)
        entry = gate.entry_now(request)
        if entry is None:
            return None
        verdict = gate.engine.decide_now(entry.plan)
        if verdict is not None and grant_now(passage, gate, entry, verdict):
            return None
        return partial(pass_async, passage, gate, entry, verdict)

    async def _admit(
        self,
        passage: Passage,
        request: AsgiRequest,
        send: Send,
        entering: Coroutine[Any, Any, bool],
    ) -> bool:
        """Wait until *entering* has decided; a request that may not go on is answered."""
        try:
            is_admitted = await entering
        except ClientGoneError:  # there is nobody to answer
            await abandon_async(passage)
            return False
        if not is_admitted:
            await refuse(send, request, self.gate.refusal(passage, request.header("accept")))
        return is_admitted

    async def _enter(
        self, passage: Passage, request: AsgiRequest, meanwhile: Meanwhile | None = None
    ) -> bool:
        passage.asked.add(self.gate)
        if is_marked_exempt(request.scope, self.app):
            return True
        if self.gate.counts_endpoints:
            add_route(request, self.app)
        return await enter_async(passage, self.gate, self.gate.entry(request), meanwhile)

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def receiving() -> Message:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.gate.watch()
            return message

        async def sending(message: Message) -> None:
            if self._is_its_own and message["type"] in SHUTDOWN:
                await self.gate.aclose()
            await send(message)

        await self.app(scope, receiving, sending)


_WAY: Final[Any] = vars(RateLimitMiddleware)["__call__"]
"""The slot: a subclass may have a `__call__` of its own, and call this one."""


# `GET /rate_limit`: what a caller has left, for ASGI apps.


_JSON: Final = (b"content-type", b"application/json")
_NEVER_KEPT: Final = (b"cache-control", b"no-store")
_WHY: Final = b'{"error": "method_not_allowed", "message": "Use GET."}'


class StatusApp:
    """An app that tells the caller every limit of the whole app, and consumes nothing.

    Mount it: `app.mount("/rate_limit", StatusApp(gate))`; and exempt its path, or looking counts.
    """

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"the status app answers HTTP, not {scope['type']!r}")
        request = AsgiRequest(scope)
        headers = [_JSON, _NEVER_KEPT]
        if request.method in ("GET", "HEAD"):
            status, body = 200, await status_body_async(self.gate, request)
        else:
            status, body = 405, _WHY
            headers.append((b"allow", b"GET, HEAD"))
        headers.append((b"content-length", b"%d" % len(body)))
        shown = b"" if request.method == "HEAD" else body
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": shown})
