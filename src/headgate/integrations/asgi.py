"""ASGI apps: the middlewares, and a page with the limits of a caller.

`RateLimitMiddleware` checks each request and adds headers to its response. Messages pass as they
come: bodies are streamed both ways, and there is one `http.response.start`. Websockets are checked
when they connect. The event loop is never blocked.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Unpack

from headgate.engine.plan import CompiledRule, Plan, Queueing
from headgate.engine.request import NOTHING
from headgate.errors import OptionError, UsageError
from headgate.integrations.check_result import SWITCHED, CompletedResponse
from headgate.integrations.disconnects import ClientGoneError, DisconnectListener
from headgate.integrations.exemptions import EXEMPT_ONES, is_exempt, is_preflight
from headgate.integrations.fair_queues import FairQueues
from headgate.integrations.model_calls import begin_response, read_call
from headgate.integrations.rate_limit_status import status_body
from headgate.integrations.request_context import (
    MERGED,
    RequestContext,
    announced_size,
)
from headgate.integrations.request_limiter import RequestLimiter, RequestPlan, limiter_of
from headgate.integrations.request_view import LOCAL, RequestView
from headgate.integrations.route_limit import check_function, resolved
from headgate.overload import AsyncFairGate
from headgate.responses import encoded_lines
from headgate.runtime.drivers import adrive

if TYPE_CHECKING:
    from collections.abc import Coroutine, Hashable, Iterable

    from headgate.clock import Clock
    from headgate.engine.plan import Priority
    from headgate.engine.request import Reads, Request
    from headgate.integrations.fair_queues import Places
    from headgate.integrations.request_limiter import LimiterOptions
    from headgate.responses import DenialResponse, ResponseOptions
    from headgate.responses.headers import Pairs
    from headgate.runtime.effects import Effects
    from headgate.units import Seconds

    ValueOf = Callable[[Request], Any]

__all__ = ["AsgiRequest", "FairMiddleware", "RateLimitMiddleware", "StatusApp", "report"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CookieParser = Callable[[Scope], Mapping[str, str]]

CONTEXT: Final = "headgate"
"""The key of a scope under which the context of its request is."""

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

_MERGED: Final = frozenset(name.encode("ascii") for name in MERGED)


class AsgiRequest(RequestView):
    """A view of the request of *scope*, HTTP or websocket. The scope has what a framework put in
    it: `request.scope["user"]`."""

    __slots__ = ("scope",)

    scope: Scope

    def __init__(self, scope: Scope) -> None:
        if type(scope.get("headers")) is not list:
            _list_headers(scope)
        client = scope.get("client")
        self.scope = scope
        self.method = scope.get("method", "GET").upper()  # a websocket begins with GET
        self.peer = (client[0] if client else "") or LOCAL
        self._attributes = NOTHING
        self._headers = self._path = None

    def header(self, name: str) -> str | None:
        """The value of the header *name* (in lower case); of several lines the first."""
        return _header_in(self.scope["headers"], name)

    def header_lines(self, name: str) -> list[str]:
        """The values of all lines of the header *name* (in lower case), in their order."""
        encoded = name.encode("latin-1", "replace")
        return [
            value.decode("latin-1")
            for field, value in self.scope["headers"]
            if field == encoded or field.lower() == encoded
        ]

    @property
    def knows_headers(self) -> bool:
        """True if the framework is known: all of them take the first line of a header."""
        return self._cookie_parser is not None

    def cookies(self) -> Mapping[str, str] | None:
        """The cookies as the framework reads them; None if it is not known."""
        parse = self._cookie_parser
        return None if parse is None else parse(self.scope)

    @property
    def _cookie_parser(self) -> CookieParser | None:
        app: Any = type(self.scope.get("app"))
        return _cookie_parser_of(app)

    def parts(self, reads: Reads) -> tuple[Hashable, ...]:
        """The values of all that *reads* names, as the scope has them."""
        if type(self) is not AsgiRequest:  # a subclass may read something else
            return super().parts(reads)
        scope, fields = self.scope, reads.fields
        lines = [(name, value) for name, value in scope["headers"] if name.lower() in fields]
        app = type(scope.get("app"))  # which decides how lines are read
        place = self.method, scope.get("path", "/"), scope.get("root_path", "")
        found = AsgiRequest, app, *place, self.peer, *lines
        return (*found, *self._attributes_read(reads)) if reads.attributes else found

    def _read_headers(self) -> tuple[tuple[str, str], ...]:
        return decoded(self.scope["headers"])

    def _read_path(self) -> str:
        """All of it. A router finds the same route whether or not the path begins with the root
        path, so the root path is added where it is missing."""
        path, root = str(self.scope.get("path", "/")), self.scope.get("root_path", "")
        if not root or path == root or path.startswith(f"{root}/"):
            return path
        return f"{root}{path}"


_CONNECTIONS: Final = {
    ("starlette.applications", "Starlette"): ("starlette.requests", "HTTPConnection"),
    ("litestar.app", "Litestar"): ("litestar.connection", "ASGIConnection"),
}
"""The apps of frameworks, which they name in the scope, and their views of it."""


@lru_cache(maxsize=64)
def _cookie_parser_of(app: type) -> CookieParser | None:
    """The function that reads the cookies of a scope as *app*, the class of an app, does; None if
    its framework is not known."""
    for kind in app.__mro__:
        found = _CONNECTIONS.get((kind.__module__, kind.__name__))
        if found is not None:
            connection = getattr(import_module(found[0]), found[1])
            return lambda scope: dict(connection(scope).cookies)
    return None


def _list_headers(scope: Scope) -> Pairs:
    """Make a list of the headers in *scope*, which may be read only once."""
    lines: Pairs = list(scope.get("headers") or ())
    scope["headers"] = lines
    return lines


def _header_in(lines: Pairs, name: str) -> str | None:
    encoded = name.encode("latin-1", "replace")
    for field, value in lines:
        if field == encoded or field.lower() == encoded:
            return value.decode("latin-1")
    return None


def decoded(headers: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[str, str], ...]:
    """*headers* as text."""
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)


def report(request: Any, amounts: Mapping[str, int] | None = None, /, **named: int) -> None:
    """Report the real cost of *request*, by the name of a limit: `report(request, tokens=812)`.

    *request* is a scope, or has one. *amounts* is for names that are no identifiers. The last
    report before the end of the response counts. `UsageError` if no limit has checked the request.
    """
    context: RequestContext | None = getattr(request, "scope", request).get(CONTEXT)
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


# The middleware.


class RateLimitMiddleware:
    """Limits the requests to *app* by *limiter*, or by a new one with the same options.

    A limiter that it made itself is closed with the app (`lifespan.shutdown`). Inside of another
    one it checks and denies, and the outer one writes the headers of both.
    """

    def __init__(
        self, app: App, limiter: RequestLimiter | None = None, **options: Unpack[LimiterOptions]
    ) -> None:
        self.app = app
        self.limiter = limiter_of(limiter, options)
        self._owns_limiter = limiter is None
        _ = self.limiter.engine  # reports a wrong store at once

    async def __call__(  # noqa: C901 (a function more takes longer)
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve one connection."""
        kind, limiter = scope["type"], self.limiter
        if kind not in ("http", "websocket"):
            await self._serve_other(scope, receive, send)
            return
        outer: RequestContext | None = scope.get(CONTEXT)
        own: AsgiContext | None = None
        if outer is None:
            own = (HttpContext if kind == "http" else WebSocketContext)(limiter, scope, send)
            scope[CONTEXT] = own
        context = own or outer
        if limiter.has_limits and context is not None and limiter not in context.checked:
            request = AsgiRequest(scope)
            rest = None
            if limiter.reads_models:
                receive = await self._read_call(context, request, receive)
            if not (EXEMPT_ONES or limiter.counts_endpoints) or self._is_limited(request):
                rest = context.start(limiter, request)
            if rest is not None:
                allowed = await self._check(context, rest, scope, receive, send)
                if allowed is None:
                    return
                receive = allowed
        if own is None:
            await self.app(scope, receive, send)
            return
        try:
            await self.app(scope, receive, own.send)
        except BaseException as error:
            own.error = error
            raise
        finally:
            if own.open_checks:  # the last message has not completed it
                await own.finish()

    async def _read_call(
        self, context: RequestContext, request: AsgiRequest, receive: Receive
    ) -> Receive:
        """Read what *request* asks of a language model, if rules need to know; the `receive` for
        the app."""
        if self.limiter.reads_model(request):
            kind, length = request.header("content-type") or "", request.header("content-length")
            size = int(length) if length and length.isdecimal() else None
            context.call, receive = await read_call(request.path, kind, size, receive)
        if context.call is not None:
            request.add_attributes(context.call.attributes)
        return receive

    def _is_limited(self, request: AsgiRequest) -> bool:
        """False if the endpoint of *request* is exempt. Its route is added if rules count by it."""
        route = route_in(request.scope, self.app)
        if route is None:
            return True
        if self.limiter.counts_endpoints:
            request.add_attributes({"route": route.template})
        return not is_exempt(route.endpoint)

    async def _check(
        self,
        context: RequestContext,
        rest: Effects[bool],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> Receive | None:
        """Complete the check of a request; the `receive` for the app, or None if it was denied and
        answered."""
        listener: DisconnectListener | None = None

        def meanwhile(waiting: Coroutine[Any, Any, Places]) -> Awaitable[Places]:
            nonlocal listener
            listener = DisconnectListener(receive)
            return listener.meanwhile(waiting)

        if scope["type"] == "http":
            context.meanwhile = meanwhile
        try:
            is_allowed = await adrive(rest)
        except ClientGoneError:  # no client waits for an answer
            await adrive(context.abandon())
            return None
        finally:
            context.meanwhile = None
        if is_allowed:
            return receive if listener is None else listener.receive
        denial = context.denial_response(self.limiter)
        if scope["type"] == "http":
            await send_response(scope, send, denial.status, denial_lines(denial), denial.body)
        else:
            await deny_websocket(scope, receive, send, denial)
        return None

    async def _serve_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the lifespan of the app, or anything that is no request."""
        if scope["type"] != "lifespan":
            await self.app(scope, receive, send)
            return

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


class AsgiContext(RequestContext):
    """The context of a request of *scope*, and the `send` of its response."""

    error: BaseException | None = None

    def __init__(
        self, limiter: RequestLimiter, scope: Scope, send: Send, *, is_managed: bool = True
    ) -> None:
        lines = scope.get("headers")
        self.limiter = limiter
        self.is_managed = is_managed
        self._lines: Pairs = lines if type(lines) is list else _list_headers(scope)
        self._has_body = scope.get("method") != "HEAD"  # servers leave it out
        self._send = send
        self.is_cross_origin = self.counts_bytes = False
        self.checked = self.open_checks = ()
        self._quick = None
        for line in self._lines:
            if line[0] == b"origin":
                self.is_cross_origin = True

    def header(self, name: str) -> str | None:
        """The header *name* of the request."""
        return _header_in(self._lines, name)

    def with_encoded_headers(self, headers: Pairs, status: int) -> Pairs:
        """`with_headers` for ASGI: *headers* are bytes."""
        if self._quick is None and self.is_silent:
            return headers
        ours = None if self.is_cross_origin else self.usual_headers()
        if ours is not None:
            for line in headers:
                if line[0].lower() in _MERGED:
                    break
            else:
                return headers + ours
        return encoded_lines(self.with_headers(decoded(headers), status))

    def send(self, message: Message) -> Awaitable[None]:
        """Send *message* of the app."""
        raise NotImplementedError

    async def finish(self) -> None:
        """Complete the request; once."""
        raise NotImplementedError


class HttpContext(AsgiContext):
    """The context of an HTTP request.

    `send` adds headers and completes the request before the last part of the body; or, if the app
    never sends that, when the app ends.
    """

    status = 500
    _headers: Pairs = []  # noqa: RUF012 (replaced, never changed)

    def send(self, message: Message) -> Awaitable[None]:
        """Send *message* of the app."""
        kind = message["type"]
        if kind == START:
            self.status = status = message["status"]
            self._headers = headers = list(message.get("headers", ()))
            if self.call is not None:
                begin_response(self.call, headers)
            return self._send({**message, "headers": self.with_encoded_headers(headers, status)})
        if self.call is not None:
            self.call.feed(message.get("body") or b"")
        if self.counts_bytes and self._has_body:  # before: it may be cancelled half sent
            self.sent += self._size(message)
        if self.open_checks and kind in LAST and not message.get("more_body", False):
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
        kind = message["type"]
        if kind == "http.response.body":
            return len(message.get("body") or b"")
        if kind == "http.response.zerocopysend" and message.get("count") is not None:
            return int(message["count"])
        return (announced_size(decoded(self._headers)) or 0) if kind in FILES else 0


class WebSocketContext(AsgiContext):
    """The context of a websocket: its handshake and messages."""

    _status = 403

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

    async def finish(self) -> None:
        """Complete the request; once."""
        await adrive(self.complete(self.response))


async def send_response(scope: Scope, send: Send, status: int, headers: Pairs, body: bytes) -> None:
    """Send a response in place of the app; without its body if the request is a HEAD."""
    shown = b"" if scope.get("method") == "HEAD" else body
    await send({"type": START, "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": shown})


async def deny_websocket(
    scope: Scope, receive: Receive, send: Send, denial: DenialResponse
) -> None:
    """Deny a websocket: by a response if the server can send one, else by closing it."""
    await receive()  # websocket.connect, which comes first
    if DENIAL not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        return
    start = {"type": f"{DENIAL}.start", "status": denial.status, "headers": denial_lines(denial)}
    await send(start)
    await send({"type": f"{DENIAL}.body", "body": denial.body})


def denial_lines(denial: DenialResponse) -> Pairs:
    """The headers of *denial*."""
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
        await send_response(scope, send, status, headers, body)


# A fair queue before an app.


class FairMiddleware(RateLimitMiddleware):
    """Has the requests to *app* wait for places at *gate*, by tenant, cost, weight and priority.

    *tenant* is the owner of a place: a function of the request; without one, or if it returns None,
    the client IP. *cost*, *weight* and *priority* are values or functions. All functions may be
    async. *timeout*: the seconds that a request waits, if less than `max_wait` of the gate.

    Denied requests are answered with 503. CORS preflights, exempt endpoints, websockets and all
    that is not HTTP do not wait. Rules with `fair` do not need it: `RateLimitMiddleware` has a
    queue for each of them.
    """

    def __init__(
        self,
        app: App,
        gate: AsyncFairGate,
        *,
        tenant: ValueOf | None = None,
        cost: int | ValueOf = 1,
        weight: int | ValueOf | None = None,
        priority: Priority | ValueOf = "default",
        timeout: Seconds | None = None,
        responses: ResponseOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_function("tenant", tenant)
        if not isinstance(gate, AsyncFairGate):
            raise OptionError(f"gate is {gate!r}; expected an AsyncFairGate")
        limiter = _GateLimiter(responses=responses, clock=clock)
        limiter.has_limits = True
        limiter.queues = _GateQueue(gate, timeout)
        limiter.gate = gate
        limiter.values = tenant, cost, weight, priority
        super().__init__(app, limiter)
        self.gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        serve = super().__call__ if scope["type"] == "http" else self.app
        await serve(scope, receive, send)


class _GateLimiter(RequestLimiter):
    """Plans a place at *gate* for each request."""

    gate: AsyncFairGate
    values: tuple[Any, ...]

    def simple_plan(self, request: Request) -> Plan | None:
        """None: each request may have to wait."""
        return None

    def plan(self, request: Request) -> Effects[RequestPlan | None]:
        """The plan of *request*; None if it does not wait."""
        if is_preflight(request):
            return None
        values = []
        for given in self.values:
            is_function = callable(given)
            values.append((yield from resolved(given(request))) if is_function else given)
        tenant, cost, weight, priority = values
        if tenant is None or tenant == "":  # each client for itself, not all as one
            tenant = self.address(request)
        rule = CompiledRule(self.gate.name)
        queueing = Queueing(rule, str(tenant), cost, weight, priority)
        return RequestPlan(Plan(0, (), queues=(queueing,), awaits_places=True))


class _GateQueue(FairQueues):
    """The only queue of an app: *gate*."""

    def __init__(self, gate: AsyncFairGate, timeout: Seconds | None) -> None:
        super().__init__(None)
        self._gates[AsyncFairGate, gate.name] = None, gate
        self._gate: Any = gate
        self._timeout = timeout

    def gate(self, rule: CompiledRule, kind: Any) -> Any:
        """The gate, whatever the *rule*."""
        return self._gate

    def arguments(self, one: Queueing) -> dict[str, Any]:
        """The arguments with which *one* requests its place."""
        return {**super().arguments(one), "timeout": self._timeout}
