"""HTTP for an ASGI app: uvicorn's protocol on our sockets, without its signals and logs."""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from headgate.service.sockets import BACKLOG

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Iterable, Mapping


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


# uvicorn's HTTP/1.1 protocol with limits that it lacks.
#
# - The size of a request's head: 431 beyond it. Trailers are limited too.
# - The time for a whole request to arrive: 408 beyond it, and the connection is closed.
# - The time that a client leaves responses unread, also while the connection is being closed.
# - The number of connections: 503 beyond it.
# - While the service drains, every response has `Connection: close`.
#
# One sweep a second over all connections checks the times, instead of a timer for each request.


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of a connection. Times in seconds, sizes in bytes."""

    header: int
    connections: int
    receive: float
    idle: float


_MOMENT: Final = 0.5
"""Seconds for which input is discarded after a request was rejected."""

_MESSAGES: Final = {
    HTTPStatus.BAD_REQUEST: "the request is not valid HTTP/1.1",
    HTTPStatus.REQUEST_TIMEOUT: "the request did not arrive in time",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: "the head of the request is too large",
    HTTPStatus.SERVICE_UNAVAILABLE: "too many connections",
}


class JoinedWrites:
    """A transport that joins the writes of one iteration of the event loop.

    uvicorn writes head and body of a response one after the other. Each write is a system call that
    wakes the client; one instead of two saves a fifth of a check's CPU time.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pending: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append(data)

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._pending:
            self._transport.write(b"".join(self._pending))
            self._pending.clear()


class BoundedProtocol(HttpToolsProtocol):
    """One connection. A server makes a subclass with its own *bounds* and *is_draining*."""

    bounds: Bounds
    is_draining = False

    _began: float | None = None
    """Start of the request that is arriving, or None."""
    _stalled: float | None = None
    """Time since which the client has read nothing."""
    _closing: float | None = None
    """Time of the sweep that first saw the connection closing."""
    _is_in_head = True
    _head = 0
    """Bytes received since the head began, at most."""
    _carried = 0
    """Bytes of the head that may have come with the end of the previous request."""
    _chunk = 0
    _without_body = 0
    """Bytes of a body received without content: trailers, chunk extensions."""
    _rejected_with: HTTPStatus | None = None
    _extensions: dict[str, Any] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        joined = JoinedWrites(transport, self.loop)
        super().connection_made(cast("asyncio.Transport", joined))
        self._began = self.loop.time()
        self._extensions = _extensions(transport)
        if len(self.connections) > 2 * self.bounds.connections:
            transport.abort()
        elif len(self.connections) > self.bounds.connections:
            self.reject(HTTPStatus.SERVICE_UNAVAILABLE)

    def data_received(self, data: bytes) -> None:
        if self._rejected_with is not None:
            return
        self._chunk = len(data)
        if self._is_in_head:
            self._head += self._chunk
        else:
            self._without_body += self._chunk
        super().data_received(data)
        if self._began is None and self._is_in_head and self._head:
            self._began = (
                self.loop.time()
            )  # blank lines, which do not start a request for the parser
        arrived = self._head if self._is_in_head else self._without_body
        if arrived > self.bounds.header and self._rejected_with is None:
            self.reject(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._began = self.loop.time()
        if self._extensions is not None:
            self.scope["extensions"] = self._extensions

    def on_headers_complete(self) -> None:
        if self._head + self._carried > self.bounds.header:
            self._check_head()
        super().on_headers_complete()
        self._is_in_head = False
        self._head = self._carried = self._without_body = 0
        self.headers = []  # for trailers, so that they are not added to the headers of the scope
        # The parser discards what follows a request to upgrade, so the connection has to end.
        if self.is_draining or self.parser.should_upgrade():
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._without_body = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._began = None
        self._is_in_head = True
        self._carried = self._chunk
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        cycle = cast("Any", self.cycle)
        if (
            self._rejected_with is not None
            and cycle.response_complete
            and not self.transport.is_closing()
        ):
            self._send_error(self._rejected_with)

    def send_400_response(self, msg: str) -> None:
        self.reject(self._rejected_with or HTTPStatus.BAD_REQUEST)

    def shutdown(self) -> None:
        """Make the current response the last one; a request that is arriving is still served."""
        cycle = cast("Any", self.cycle)
        if cycle is not None and not cycle.response_complete:
            cycle.keep_alive = False

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.time()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled = None

    def reject(self, status: HTTPStatus) -> None:
        """Answer with *status* and close, unless a response has been started already.

        Earlier requests are answered first. Input is discarded for a moment, because closing a
        connection with unread input would lose the response.
        """
        self._rejected_with = status
        cycle = cast("Any", self.cycle)
        if cycle is not None and not cycle.response_complete:
            if self._is_in_head:
                return  # until `on_response_complete`
            if cycle.response_started:
                self.transport.abort()
                return
            # Its app may be running: it receives http.disconnect.
            cycle.disconnected = True
            cycle.message_event.set()
        elif not self._is_in_head:  # answered before all of it had arrived
            self.transport.close()
            return
        self._send_error(status)

    def sweep(self, now: float) -> None:
        """Close the connection if it exceeds a time limit."""
        timeout = self.bounds.receive
        if self.transport.is_closing():
            self._closing = self._closing or now
        for since in (self._stalled, self._closing):
            if since is not None and now - since > timeout:
                self.transport.abort()
                return
        is_over = self._rejected_with is not None or self.transport.is_closing()
        if is_over or self._began is None or now - self._began <= timeout:
            return
        if self._head or not self._is_in_head:
            self.reject(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.transport.close()

    @property
    def is_idle(self) -> bool:
        """True if no request is arriving or being answered."""
        cycle = cast("Any", self.cycle)
        is_answered = cycle is None or cycle.response_complete
        return bool(is_answered) and self._is_in_head and not self._head

    def _send_error(self, status: HTTPStatus) -> None:
        body = _MESSAGES[status].encode("ascii")
        lines = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            "content-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(body)}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(lines.encode("ascii") + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_MOMENT, self.transport.close)

    def _check_head(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.bounds.header:
            self._rejected_with = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise httptools.HttpParserError("the head is too large")


def _extensions(transport: asyncio.Transport) -> dict[str, Any] | None:
    """The client certificate in the form of ASGI's TLS extension."""
    subject = subject_of(transport.get_extra_info("peercert"))
    return None if subject is None else {"tls": {"client_cert_name": subject}}


_TICK: Final = 1.0
_LOOK: Final = 0.02


class HttpServer:
    """Serves *app* within *bounds*, with TLS if there is a *context*. For one event loop."""

    def __init__(self, app: Any, *, bounds: Bounds, context: ssl.SSLContext | None = None) -> None:
        # Bad requests and too many connections are reported to the client, not to the log.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        made = {"bounds": bounds}
        self._protocol: type[BoundedProtocol] = type("Connection", (BoundedProtocol,), made)
        self._config = uvicorn.Config(
            app,
            http=self._protocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            # Fractions work too, whatever the annotation says: the value goes to `call_later`.
            timeout_keep_alive=bounds.idle,  # type: ignore[arg-type]
        )
        self._config.load()
        self._context = context
        self._handshake_timeout = None if context is None else bounds.receive
        self._state = ServerState()
        self._servers: list[asyncio.Server] = []
        self._sockets: list[socket.socket] = []
        self._ticking: asyncio.Task[None] | None = None

    async def start(self, sockets: Iterable[socket.socket]) -> None:
        """Serve on *sockets*, which listen already."""
        self._tick()
        loop = asyncio.get_running_loop()
        for sock in sockets:
            # A copy, to accept pending connections after the server has closed.
            self._sockets.append(sock.dup())
            server = await loop.create_server(
                self._made,
                sock=sock,
                backlog=BACKLOG,  # otherwise asyncio sets its own
                ssl=self._context,
                ssl_handshake_timeout=self._handshake_timeout,
            )
            self._servers.append(server)
        self._ticking = asyncio.create_task(self._keep_ticking(), name="headgate-http-tick")

    async def drain(self, *, linger: float, grace: float) -> bool:
        """Accept connections for *linger* more seconds, then let requests finish within *grace*.

        From the start every response is the last of its connection. False if requests were cut off.
        """
        self._protocol.is_draining = True
        for one in self._connections():
            one.shutdown()
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
                    self._made,
                    accepted,
                    ssl=self._context,
                    ssl_handshake_timeout=self._handshake_timeout,
                )
            sock.close()

    async def _finished(self, linger: float, grace: float) -> bool:
        """Wait for the connections: idle ones for another *linger*, busy ones for *grace*."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        idle_until, deadline = now + min(linger, grace), now + grace
        while (connections := self._connections()) and loop.time() < deadline:
            if loop.time() >= idle_until:
                for one in connections:
                    if one.is_idle:
                        one.transport.close()
            await asyncio.sleep(_LOOK)
        left = self._connections()
        for one in left:
            one.transport.abort()
        return not left

    def _made(self) -> BoundedProtocol:
        return self._protocol(config=self._config, server_state=self._state, app_state={})

    def _connections(self) -> list[BoundedProtocol]:
        return [one for one in self._state.connections if isinstance(one, BoundedProtocol)]

    async def _keep_ticking(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            self._tick()

    def _tick(self) -> None:
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode("ascii"))]
        now = asyncio.get_running_loop().time()
        for one in self._connections():
            one.sweep(now)
