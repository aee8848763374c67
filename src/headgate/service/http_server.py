"""An HTTP/1.1 server for ASGI apps, on the parser of httptools.

It takes 60% of the time of uvicorn's protocol and has limits that uvicorn lacks: see `Connection`.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from dataclasses import dataclass
from email.utils import formatdate
from heapq import nsmallest
from http import HTTPStatus
from operator import itemgetter
from sys import intern
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote

import httptools

from headgate.service.http.replies import CLOSE, WITHOUT_LENGTH, Reply, problem
from headgate.service.logs import LOG
from headgate.service.sockets import BACKLOG

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Iterable, Mapping

    from headgate.service.http.replies import App, Headers, Message, Scope


# The subject of a client certificate as text (RFC 4514), from the data of `ssl`.


_SHORT: Final = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "stateOrProvinceName": "ST",
    "localityName": "L",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_SPECIAL: Final = re.compile(r'[,+"\\<>;=]|^[ #]| $')


def subject_of(certificate: Mapping[str, Any] | None) -> str | None:
    """`CN=ada,O=shop`, the most specific part first; None without a certificate or subject."""
    parts = (certificate or {}).get("subject") or ()
    names = [
        "+".join(f"{_SHORT.get(key, key)}={_escaped(text)}" for key, text in part) for part in parts
    ]
    return ",".join(reversed(names)) or None


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"\\{found[0]}", text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of a connection. Times in seconds, sizes in bytes."""

    header: int
    connections: int
    receive: float
    idle: float


_MOMENT: Final = 0.5
"""Seconds for which a connection that may have unread input stays open before it is closed: closing
it at once would lose the response, or the request."""

_MAX_BUFFERED: Final = 65_536
"""Bytes of a body that wait for the app before the connection is read no further."""

_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
_ERRORS: Final = {
    400: Reply(400, [_TEXT], b"the request is not valid HTTP/1.1"),
    408: problem(408, "the request did not arrive in time"),
    431: Reply(431, [_TEXT], b"the head of the request is too large"),
    500: Reply(500, [_TEXT], b"internal server error"),
    503: Reply(503, [_TEXT], b"too many connections"),
}
"""Responses of the server itself."""

_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})
"""The headers that say where a body ends."""

CONNECT: Final = "CONNECT"

_PHRASES: Final = {int(status): status.phrase for status in HTTPStatus}
_STATUS_LINES: Final = {
    status: f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n".encode("ascii")
    for status in range(100, 600)  # settings name some without a phrase, such as 529
}
_ASGI: Final = {"version": "3.0", "spec_version": "2.3"}
_DISCONNECT: Final = {"type": "http.disconnect"}


class Exchange:
    """One request and its response. `receive` and `send` are those of ASGI."""

    __slots__ = (
        "_chunks",
        "_connection",
        "_parts",
        "_start",
        "_waiter",
        "buffered",
        "is_complete",
        "is_over",
        "is_read",
        "keep_alive",
        "scope",
        "task",
    )

    task: asyncio.Task[None]

    def __init__(self, connection: Connection, scope: Scope, *, keep_alive: bool) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self.is_complete = False
        """True if the whole body has arrived."""
        self.is_over = False
        """True if the response is written, or the client has left."""
        self.is_read = False
        self.buffered = 0
        self._connection = connection
        self._chunks: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None
        self._start: Message = _DISCONNECT
        self._parts: list[bytes] = []

    def add(self, chunk: bytes) -> None:
        """Add a part of the body; it is discarded if the response is written already."""
        if not self.is_over:
            self._chunks.append(chunk)
            self.buffered += len(chunk)
            self._wake()

    def complete(self) -> None:
        """Record that the body has ended."""
        self.is_complete = True
        self._wake()

    def end(self) -> None:
        """Record that there is nothing left to receive or to send."""
        self.is_over = True
        self._wake()

    async def receive(self) -> Message:
        """Return the next part of the body, or `http.disconnect` when the exchange is over."""
        while not self.is_over:
            if self._chunks or (self.is_complete and not self.is_read):
                body = b"".join(self._chunks)
                self._chunks.clear()
                self.buffered, self.is_read = 0, self.is_complete
                self._connection.update_reading()
                return {"type": "http.request", "body": body, "more_body": not self.is_complete}
            if not self.is_complete:
                self._connection.send_continue(self.scope)
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return _DISCONNECT

    async def send(self, message: Message) -> None:
        """Write the response when all of it is known; none if the exchange is over."""
        if self.is_over:
            return
        if message["type"] == "http.response.start":
            self._start = message
            return
        self._parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            start, body = self._start, b"".join(self._parts)
            self._connection.respond(self, start["status"], start["headers"], body)

    def fail(self) -> None:
        """Write the response of an app that has none."""
        self.keep_alive = False
        self._connection.respond(self, *_ERRORS[500])

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Connection(asyncio.Protocol):
    """One connection of *server*: requests are answered one after the other, in their order.

    Limits: the size of a request's head, trailers included (431); the time for a whole request to
    arrive (408), for a client to read a response, and between requests; the number of connections,
    where those that wait for their client give way to new ones (503 if none does). While the server
    drains, every response is the last of its connection. The server calls
    `sweep` once a second to check the times, instead of a timer for each request.
    """

    transport: asyncio.Transport

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._bounds = server.bounds
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._scope: Scope = {}
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._arriving: Exchange | None = None
        """The request whose body is arriving."""
        self._current: Exchange | None = None
        """The request that is being answered."""
        self._waiting: deque[Exchange] = deque()
        """Requests behind the current one."""
        self._is_paused = False
        self._is_discarding = False
        """True if all further input is discarded."""
        self._is_resuming = False
        """True while the parser reads the head that `_resume` makes."""
        self._rejected_with: int | None = None
        self._began: float | None = None
        """Start of the request that is arriving, or None."""
        self._idle_since = 0.0
        self._stalled: float | None = None
        """Time since which the client has read nothing."""
        self._closing: float | None = None
        """Time of the sweep that first saw the connection closing."""
        self._head = 0
        """Bytes received since the head began, at most."""
        self._carried = 0
        """Bytes of the head that may have come with the end of the previous request."""
        self._chunk = 0
        self._without_body = 0
        """Bytes of a body received without content: trailers, chunk extensions."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._began = self._loop.time()
        peer, here = (transport.get_extra_info(name) for name in ("peername", "sockname"))
        self._scope = {
            "type": "http",
            "asgi": _ASGI,
            "scheme": "http" if transport.get_extra_info("sslcontext") is None else "https",
            "root_path": "",
            "client": peer[:2] if isinstance(peer, tuple) else None,
            "server": here[:2] if isinstance(here, tuple) else None,
        }
        subject = subject_of(transport.get_extra_info("peercert"))
        if subject is not None:  # in the form of ASGI's TLS extension
            self._scope["extensions"] = {"tls": {"client_cert_name": subject}}
        server = self._server
        if len(server.connections) >= self._bounds.connections:
            server.make_room()
        server.connections[self] = None
        if len(server.connections) > 2 * self._bounds.connections:
            self.transport.abort()
        elif len(server.connections) > self._bounds.connections:
            self.reject(503)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.pop(self, None)
        for one in (self._current, self._arriving, *self._waiting):
            if one is not None:
                one.end()
        self._waiting.clear()
        # Reference counts free a connection, as the garbage collector runs rarely: no cycles.
        self._current = self._arriving = None
        del self._parser

    def data_received(self, data: bytes) -> None:
        if self._is_discarding:
            return
        self._chunk = len(data)
        if self._arriving is None:
            self._head += self._chunk
        else:
            self._without_body += self._chunk
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self.reject(self._rejected_with or 400)
            return
        if self._began is None and self._arriving is None and self._head:
            self._began = self._loop.time()  # blank lines, which start no request for the parser
        arrived = self._head if self._arriving is None else self._without_body
        if arrived > self._bounds.header:
            self.reject(431)
            return
        if self._waiting:
            self._advance()
        self.update_reading()

    def _feed(self, data: bytes) -> None:
        """Parse *data*. A request to upgrade is an ordinary request: its client sends its body, and
        waits for the response before it sends anything else. Java's `HttpClient` asks for h2c with
        the first request of each connection."""
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                if self._arriving is None:  # CONNECT: its response is the last one
                    self._is_discarding = True
                    return
                data = data[upgrade.args[0] :]
                self._resume(self._arriving)
            else:
                return

    def _resume(self, exchange: Exchange) -> None:
        """Parse on behind the head of *exchange*, where the parser stops at a request to upgrade:
        a new parser gets the part of the head that says where the body ends."""
        lines = [line for line in exchange.scope["headers"] if line[0] in _FRAMING]
        if not exchange.keep_alive:
            lines.append(CLOSE)
        head = b"".join([b"%b: %b\r\n" % line for line in lines])
        self._parser = httptools.HttpRequestParser(self)
        self._is_resuming = True
        self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % head)

    # Called by the parser.

    def on_message_begin(self) -> None:
        if self._is_resuming:
            return
        self._url, self._headers = b"", []
        self._began = self._loop.time()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._arriving is None:  # trailers are no headers
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._is_resuming:
            self._is_resuming, self._headers = False, []
            return
        headers, parser = self._headers, self._parser
        if self._head + self._carried > self._bounds.header:
            self._check_head()
        self._head = self._carried = self._without_body = 0
        path, query = _path_and_query(self._url)
        text = path.decode("ascii")
        version = parser.get_http_version()
        scope = {
            **self._scope,
            "method": intern(parser.get_method().decode("ascii")),
            "http_version": version,
            "path": unquote(text) if "%" in text else text,
            "raw_path": path,
            "query_string": query,
            "headers": headers,
        }
        keep_alive = parser.should_keep_alive() and scope["method"] != CONNECT and version != "1.0"
        self._arriving = Exchange(self, scope, keep_alive=keep_alive)
        self._waiting.append(self._arriving)

    def on_body(self, body: bytes) -> None:
        self._without_body = 0
        if self._arriving is not None:
            self._arriving.add(body)

    def on_message_complete(self) -> None:
        one = self._arriving
        if one is not None and self._parser.should_upgrade() and one.scope["method"] != CONNECT:
            return  # its body follows: see `_resume`
        self._began = None
        self._carried = self._chunk
        if self._arriving is not None:
            self._arriving.complete()
            self._arriving = None

    def _check_head(self) -> None:
        size = len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)
        if size > self._bounds.header:
            self._rejected_with = 431
            raise httptools.HttpParserError("the head is too large")

    # Requests and responses.

    def _advance(self) -> None:
        """Start the next request, unless one is being answered or the client does not read."""
        if self._waiting and self._current is None and self._stalled is None:
            self._current = one = self._waiting.popleft()
            self._server.running.add(one)
            one.task = self._loop.create_task(self._server.run(one))
        elif self._rejected_with is not None and self._current is None and not self._waiting:
            self._write(*_ERRORS[self._rejected_with], date_line=b"", is_last=True)
            self._close(is_read=False)

    def respond(self, exchange: Exchange, status: int, headers: Headers, body: bytes) -> None:
        """Write the response of *exchange* and go on with the next request."""
        is_last = not exchange.keep_alive or self._server.is_draining or CLOSE in headers
        is_head = exchange.scope["method"] == "HEAD"
        date_line = self._server.date_line
        self._write(status, headers, body, date_line=date_line, is_last=is_last, is_head=is_head)
        exchange.end()
        self._current = None
        self._idle_since = self._loop.time()
        if is_last:
            self._waiting.clear()
            self._close(is_read=exchange.is_complete)
            return
        self._advance()
        self.update_reading()

    def _write(
        self,
        status: int,
        headers: Headers,
        body: bytes,
        *,
        date_line: bytes,
        is_last: bool,
        is_head: bool = False,
    ) -> None:
        parts = [_STATUS_LINES[status], date_line]
        has_length = is_head or status in WITHOUT_LENGTH
        for name, value in headers:
            if name == b"content-length":
                has_length = True
            elif name == b"connection":
                continue
            parts += (name, b": ", value, b"\r\n")
        if not has_length:
            parts.append(b"content-length: %d\r\n" % len(body))
        parts.append(b"connection: close\r\n\r\n" if is_last else b"\r\n")
        if not is_head:
            parts.append(body)
        self.transport.write(b"".join(parts))

    def update_reading(self) -> None:
        """Read on, unless a request waits behind another, or a body for the app."""
        arriving = self._arriving
        is_full = arriving is not None and arriving.buffered > _MAX_BUFFERED
        is_paused = bool(self._waiting) or (is_full and not (arriving and arriving.is_over))
        if is_paused is not self._is_paused and not self.transport.is_closing():
            self._is_paused = is_paused
            if is_paused:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def send_continue(self, scope: Scope) -> None:
        """Ask for the body if the client waits for that."""
        for line in scope["headers"]:
            if line[0] == b"expect" and line[1].lower() == b"100-continue":
                scope["headers"].remove(line)  # once
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                return

    def pause_writing(self) -> None:
        self._stalled = self._loop.time()

    def resume_writing(self) -> None:
        self._stalled = None
        self._advance()
        self.update_reading()

    # Errors and ends.

    def reject(self, status: int) -> None:
        """Answer with *status* and close, after the responses to earlier requests."""
        self._rejected_with, self._is_discarding = status, True
        self._url, self._headers = b"", []  # a hundred times as large as the bytes they came in
        broken, self._arriving = self._arriving, None
        if broken is not None:
            if broken.is_over:  # answered before all of it had arrived
                self.transport.close()
                return
            broken.end()  # its app may be running: it receives http.disconnect
            if broken is self._current:
                self._current = None
            else:
                self._waiting.remove(broken)
        self._advance()

    def _close(self, *, is_read: bool) -> None:
        """Close the connection; a moment later if its input is not all read."""
        self._is_discarding = True
        if is_read:
            self.transport.close()
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._loop.call_later(_MOMENT, self.transport.close)

    def sweep(self, now: float) -> None:
        """Close the connection if it exceeds a time limit."""
        timeout = self._bounds.receive
        if self.transport.is_closing():
            self._closing = self._closing or now
        for since in (self._stalled, self._closing):
            if since is not None and now - since > timeout:
                self.transport.abort()
                return
        if self._is_discarding or self.transport.is_closing():
            return
        if self._began is None:
            if self.is_idle and now - self._idle_since > self._bounds.idle:
                self.transport.close()
        elif self._is_paused:
            self._began = now  # it is not the client that keeps us waiting
        elif now - self._began > timeout:
            if self._head or self._arriving is not None:
                self.reject(408)
            else:
                self.transport.close()

    @property
    def waiting_since(self) -> float | None:
        """The time since which the server waits for the client; None if a request is decided."""
        if self._current is not None and self._current is not self._arriving:
            return None
        return self._stalled or self._began or self._idle_since

    @property
    def is_idle(self) -> bool:
        """True if no request is arriving or being answered."""
        is_busy = self._current or self._waiting or self._arriving or self._head
        return not is_busy


def _path_and_query(target: bytes) -> tuple[bytes, bytes]:
    if target.startswith(b"/") and b"#" not in target:
        path, _, query = target.partition(b"?")
        return path, query
    url = httptools.parse_url(target)  # of a request to a proxy
    return url.path, url.query or b""


_TICK: Final = 1.0
_POLL: Final = 0.02


class HttpServer:
    """Serves *app* within *bounds*, with TLS if there is a *context*. For one event loop.

    For apps with short requests and responses: a response is written when all of it is known.
    There are no lifespan events and no WebSockets.
    """

    def __init__(self, app: App, *, bounds: Bounds, context: ssl.SSLContext | None = None) -> None:
        self.bounds = bounds
        self.connections: dict[Connection, None] = {}  # in the order of their arrival
        self.is_draining = False
        self.date_line = b""
        """The `Date` header of now."""
        self._app = app
        self.running: set[Exchange] = set()
        """The exchanges with a running app, whose tasks they keep."""
        self._context = context
        self._handshake_timeout = None if context is None else bounds.receive
        self._servers: list[asyncio.Server] = []
        self._sockets: list[socket.socket] = []
        self._ticking: asyncio.Task[None] | None = None

    async def run(self, exchange: Exchange) -> None:
        """Run the app for *exchange*; without a response of it, the answer is 500."""
        scope = exchange.scope
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except Exception:  # noqa: BLE001 (any error of the app)
            LOG.exception("the app failed: %s %s", scope["method"], scope["path"])
        if not exchange.is_over:
            exchange.fail()
        self.running.discard(exchange)

    async def start(self, sockets: Iterable[socket.socket]) -> None:
        """Serve on *sockets*, which listen already."""
        self._tick()
        loop = asyncio.get_running_loop()
        for sock in sockets:
            # A copy, to accept pending connections after the server has closed.
            self._sockets.append(sock.dup())
            server = await loop.create_server(
                lambda: Connection(self),
                sock=sock,
                backlog=BACKLOG,  # otherwise asyncio sets its own
                ssl=self._context,
                ssl_handshake_timeout=self._handshake_timeout,
            )
            self._servers.append(server)
        self._ticking = asyncio.create_task(self._keep_ticking(), name="headgate-http-tick")

    def make_room(self) -> None:
        """Close connections that wait for their clients: a hundredth, those that wait longest.

        So a client that holds connections open, silently or byte by byte, does not lock others out.
        """
        waiting = [(since, one) for one in self.connections if (since := one.waiting_since)]
        count = max(1, self.bounds.connections // 100)
        for _, one in nsmallest(count, waiting, key=itemgetter(0)):
            self.connections.pop(one, None)  # now, not when the transport reports the loss
            one.transport.abort()

    async def drain(self, *, linger: float, grace: float) -> bool:
        """Accept connections for *linger* more seconds, then let requests finish within *grace*.

        From the start every response is the last of its connection. False if requests were cut off.
        """
        self.is_draining = True
        await asyncio.sleep(linger)
        await self._stop_listening()
        is_done = await self._finished(linger, grace)
        if self._ticking is not None:
            self._ticking.cancel()
        return is_done

    async def _stop_listening(self) -> None:
        """Accept the connections that are pending, then close."""
        loop = asyncio.get_running_loop()
        # asyncio drops a connection that it accepts in the iteration in which its server is closed.
        for server in self._servers:
            for listening in server.sockets:
                loop.remove_reader(listening)
        await asyncio.sleep(0)
        for server in self._servers:
            server.close()
        for sock in self._sockets:
            while True:
                try:
                    accepted, _ = sock.accept()
                except OSError:
                    break
                accepted.settimeout(0)
                await loop.connect_accepted_socket(
                    lambda: Connection(self),
                    accepted,
                    ssl=self._context,
                    ssl_handshake_timeout=self._handshake_timeout,
                )
            sock.close()

    async def _finished(self, linger: float, grace: float) -> bool:
        """Wait for the connections: idle ones for another *linger*, busy ones for *grace*.

        Idle ones get at least a moment, since the request of a connection that was pending has not
        been read yet.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        idle_until, deadline = now + min(max(linger, _MOMENT), grace), now + grace
        while (connections := self.connections) and loop.time() < deadline:
            if loop.time() >= idle_until:
                for one in list(connections):
                    if one.is_idle:
                        one.transport.close()
            await asyncio.sleep(_POLL)
        left = list(self.connections)
        for one in left:
            one.transport.abort()
        return not left

    async def _keep_ticking(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            self._tick()

    def _tick(self) -> None:
        self.date_line = f"date: {formatdate(usegmt=True)}\r\n".encode("ascii")
        now = asyncio.get_running_loop().time()
        for one in list(self.connections):
            one.sweep(now)
