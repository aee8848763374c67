"""The ASGI middleware: checks each request, and adds headers to its response.

Messages pass as they come: bodies are streamed both ways, and there is one `http.response.start`.
Websockets are checked when they connect. The event loop is never blocked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Unpack

from headgate.integrations.asgi.disconnects import ClientGoneError, DisconnectListener
from headgate.integrations.asgi.request import CONTEXT, AsgiRequest, context_in, route_in
from headgate.integrations.exemptions import EXEMPT_ONES, is_exempt
from headgate.integrations.rate_limit_status import status_body
from headgate.integrations.request_context import (
    SWITCHED,
    CompletedResponse,
    RequestContext,
    announced_size,
    decoded,
)
from headgate.integrations.request_limiter import limiter_of
from headgate.responses import encoded_lines
from headgate.runtime.drivers import adrive

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headgate.engine.request import Request
    from headgate.integrations.asgi.request import App, Message, Receive, Scope, Send
    from headgate.integrations.request_limiter import LimiterOptions, RequestLimiter
    from headgate.responses import DenialResponse
    from headgate.responses.headers import Pairs
    from headgate.runtime.effects import Effects

POLICY_VIOLATION: Final = 1008
"""The close code of a websocket whose handshake was denied (RFC 6455)."""

DENIAL: Final = "websocket.http.response"
"""The extension of servers that can answer a handshake like any other request."""

START: Final = "http.response.start"
LAST: Final = frozenset({"http.response.body", "http.response.pathsend"})
"""The messages that end a response, unless they announce more."""

FILES: Final = frozenset({"http.response.pathsend", "http.response.zerocopysend"})
"""The messages that hand a file to the server."""

SHUTDOWN: Final = frozenset({"lifespan.shutdown.complete", "lifespan.shutdown.failed"})


class RateLimitMiddleware:
    """Limits the requests to *app* by *limiter*, or by a new one with the same options.

    A limiter that it made itself is closed with the app (`lifespan.shutdown`).
    """

    def __init__(
        self, app: App, limiter: RequestLimiter | None = None, **options: Unpack[LimiterOptions]
    ) -> None:
        self.app = app
        self.limiter = limiter_of(limiter, options)
        self._owns_limiter = limiter is None
        _ = self.limiter.engine  # reports a wrong store at once

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or CONTEXT in scope:
            await self._serve_other(scope, receive, send)
            return
        request = AsgiRequest(scope)
        context = scope[CONTEXT] = HttpContext(self.limiter, request, send)
        if EXEMPT_ONES or self.limiter.counts_endpoints:
            rest = self._start(context, request)
        else:
            rest = context.start(self.limiter, request)
        if rest is not None:
            allowed = await self._check(context, request, rest, receive, send)
            if allowed is None:
                return
            receive = allowed
        try:
            await self.app(scope, receive, context.send)
        except BaseException as error:
            context.error = error
            raise
        finally:
            if context.is_open:  # the last message has not completed it
                await context.finish()

    def _start(self, context: RequestContext, request: AsgiRequest) -> Effects[bool] | None:
        """Begin to check a request: see `RequestContext.start`. A limiter checks it once."""
        limiter = self.limiter
        if limiter in context.checked:
            return None
        if EXEMPT_ONES or limiter.counts_endpoints:
            route = route_in(request.scope, self.app)
            if route is not None and is_exempt(route.endpoint):
                context.checked += (limiter,)
                return None
            if route is not None and limiter.counts_endpoints:
                request.add_attributes({"route": route.template})
        return context.start(limiter, request)

    async def _check(
        self,
        context: RequestContext,
        request: AsgiRequest,
        rest: Effects[bool],
        receive: Receive,
        send: Send,
    ) -> Receive | None:
        """Complete the check of a request; the `receive` for the app, or None if it was denied and
        answered."""
        listener = DisconnectListener(receive)
        context.meanwhile = listener.meanwhile
        try:
            is_allowed = await adrive(rest)
        except ClientGoneError:  # no client waits for an answer
            await adrive(context.abandon())
            return None
        finally:
            context.meanwhile = None
        if is_allowed:
            return listener.receive if listener.has_listened else receive
        await send_denial(send, request, context.denial_response(self.limiter))
        return None

    async def _serve_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind, context = scope["type"], context_in(scope)
        if kind == "lifespan":
            await self._serve_lifespan(scope, receive, send)
        elif kind == "websocket":
            await self._serve_websocket(scope, receive, send, context)
        elif kind != "http" or context is None:
            await self.app(scope, receive, send)
        else:  # a middleware of ours further out sends headers and completes the request
            request = AsgiRequest(scope)
            rest = self._start(context, request)
            allowed: Receive | None = receive
            if rest is not None:
                allowed = await self._check(context, request, rest, receive, send)
            if allowed is not None:
                await self.app(scope, allowed, send)

    async def _serve_websocket(
        self, scope: Scope, receive: Receive, send: Send, outer: RequestContext | None
    ) -> None:
        request = AsgiRequest(scope)
        context = outer or WebSocketContext(self.limiter, request, send)
        scope[CONTEXT] = context
        rest = self._start(context, request)
        if rest is not None and not await adrive(rest):
            await deny_websocket(scope, receive, send, context.denial_response(self.limiter))
            return
        if not isinstance(context, WebSocketContext) or outer is not None:
            await self.app(scope, receive, send)
            return
        try:
            await self.app(scope, receive, context.send)
        except BaseException as error:
            context.error = error
            raise
        finally:
            await adrive(context.complete(context.response))

    async def _serve_lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def receiving() -> Message:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.limiter.watch()
            return message

        async def sending(message: Message) -> None:
            if self._owns_limiter and message["type"] in SHUTDOWN:
                await self.limiter.aclose()
            await send(message)

        await self.app(scope, receiving, sending)


class HttpContext(RequestContext):
    """The context of an HTTP request, and the `send` of its response.

    `send` adds headers and completes the request before the last part of the body; or, if the app
    never sends that, when the app ends.
    """

    error: BaseException | None = None
    status = 500
    _headers: Pairs = []  # noqa: RUF012 (replaced, never changed)

    def __init__(
        self,
        limiter: RequestLimiter,
        request: AsgiRequest,
        send: Send,
        *,
        is_managed: bool = True,
    ) -> None:
        self.limiter = limiter
        self.is_managed = is_managed
        self._lines: Pairs = request.scope["headers"]
        self._method = request.scope.get("method")
        self._send = send

    def header(self, name: str) -> str | None:
        """The header *name* of the request."""
        encoded = name.encode("ascii")
        for line in self._lines:
            if line[0].lower() == encoded:
                return line[1].decode("latin-1")
        return None

    @property
    def is_cross_origin(self) -> bool:
        """True if a browser may have sent it for a page of another origin."""
        for line in self._lines:  # noqa: SIM110 (half the time of any())
            if line[0] == b"origin":
                return True
        return False

    def send(self, message: Message) -> Awaitable[None]:
        """Send *message* of the app."""
        kind = message["type"]
        if kind == START:
            self.status = status = message["status"]
            self._headers = headers = list(message.get("headers", ()))
            return self._send({**message, "headers": self.with_encoded_headers(headers, status)})
        if self.counts_bytes:  # before: it may be cancelled half sent
            self.sent += self._size(message)
        if self._results and kind in LAST and not message.get("more_body", False):
            return self._send_last(message)
        return self._send(message)

    async def _send_last(self, message: Message) -> None:
        """Send the last *message*. The request is completed before: the next request of a client
        that has the whole response must find it settled. A file is still to be read."""
        if message["type"] in FILES:
            await self._send(message)
            await self.finish()
            return
        try:
            await self.finish()
        finally:
            await self._send(message)

    async def serve(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request by *app*, where no middleware does it."""
        self._send = send
        try:
            await app(scope, receive, self.send)
        except BaseException as error:
            self.error = error
            raise
        finally:
            await self.finish()

    async def finish(self) -> None:
        """Complete the request; once."""
        if not self.complete_now(self.status, self.error):
            response = CompletedResponse(self.status, decoded(self._headers), self.error)
            await adrive(self.complete(response))

    def _size(self, message: Message) -> int:
        """The bytes of the body in *message*; of a file, those that were announced."""
        if self._method == "HEAD":  # servers leave its body out
            return 0
        kind = message["type"]
        if kind == "http.response.body":
            return len(message.get("body") or b"")
        if kind == "http.response.zerocopysend" and message.get("count") is not None:
            return int(message["count"])
        return (announced_size(decoded(self._headers)) or 0) if kind in FILES else 0


class WebSocketContext(RequestContext):
    """The context of a websocket, and the `send` of its handshake and messages."""

    error: BaseException | None = None

    def __init__(self, limiter: RequestLimiter, request: AsgiRequest, send: Send) -> None:
        super().__init__(limiter, request, is_managed=True)
        self._send = send
        self._status = 403

    @property
    def response(self) -> CompletedResponse:
        """The response: 101 if the websocket was accepted; 500 if the app failed before that."""
        status = self._status
        if status == 403 and self.error is not None:
            status = 500
        elif status == 403 and self.denial is not None:
            status = 429  # closed, as the server has no other way to deny
        return CompletedResponse(status, error=self.error)

    async def send(self, message: Message) -> None:
        """Send *message* of the app."""
        kind = message["type"]
        if kind == "websocket.send" and self.counts_bytes:
            text = message.get("text")
            self.sent += len(message.get("bytes") or b"" if text is None else text.encode())
        is_accept = kind == "websocket.accept"
        if is_accept or kind == f"{DENIAL}.start":
            self._status = SWITCHED if is_accept else message["status"]
            headers = self.with_encoded_headers(list(message.get("headers", ())), self._status)
            message = {**message, "headers": headers}
        await self._send(message)
        if is_accept:
            await adrive(self.settle_at_start(self.response))


async def send_denial(send: Send, request: Request, denial: DenialResponse) -> None:
    """Send *denial* in place of the response of the app."""
    body = b"" if request.method == "HEAD" else denial.body
    await send({"type": START, "status": denial.status, "headers": _lines(denial)})
    await send({"type": "http.response.body", "body": body})


async def deny_websocket(
    scope: Scope, receive: Receive, send: Send, denial: DenialResponse
) -> None:
    """Deny a websocket: by a response if the server can send one, else by closing it."""
    await receive()  # websocket.connect, which comes first
    if DENIAL not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        return
    await send({"type": f"{DENIAL}.start", "status": denial.status, "headers": _lines(denial)})
    await send({"type": f"{DENIAL}.body", "body": denial.body})


def _lines(denial: DenialResponse) -> Pairs:
    return [*encoded_lines(denial.headers), (b"content-length", b"%d" % len(denial.body))]


_WRONG_METHOD: Final = b'{"error": "method_not_allowed", "message": "Use GET."}'


class StatusApp:
    """An app that returns all limits of the caller as JSON, and consumes none.

    Mount it: `app.mount("/rate_limit", StatusApp(limiter))`; and exempt its path.
    """

    def __init__(self, limiter: RequestLimiter) -> None:
        self.limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"the status app answers HTTP, not {scope['type']!r}")
        request = AsgiRequest(scope)
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        if request.method in ("GET", "HEAD"):
            status, body = 200, await adrive(status_body(self.limiter, request))
        else:
            status, body = 405, _WRONG_METHOD
            headers.append((b"allow", b"GET, HEAD"))
        headers.append((b"content-length", b"%d" % len(body)))
        shown = b"" if request.method == "HEAD" else body
        await send({"type": START, "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": shown})
