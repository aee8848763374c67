"""uvicorn's HTTP/1.1 protocol with the bounds that it does not have.

- The head of a request is at most so large; 431 beyond. Trailers are no headers, and bounded too.
- A request arrives within so many seconds, whole; 408 and the end of the connection otherwise.
- A reader that does not read is dropped, also while the connection is being closed.
- There are at most so many connections; one more is told 503.
- While the service drains, every answer says `Connection: close`.

Times are looked after by one sweep a second over all connections, not by a timer for each request.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headgate.service.certificate_names import subject_of

if TYPE_CHECKING:
    import asyncio


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a connection may cost. Times in seconds, sizes in bytes."""

    header: int
    connections: int
    receive: float
    idle: float


_MOMENT: Final = 0.5
"""For how many seconds one who was refused may go on sending."""

_MESSAGES: Final = {
    HTTPStatus.BAD_REQUEST: "not a request of HTTP/1.1",
    HTTPStatus.REQUEST_TIMEOUT: "the request did not arrive in time",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: "the head of the request is too large",
    HTTPStatus.SERVICE_UNAVAILABLE: "too many connections",
}


class BoundedProtocol(HttpToolsProtocol):
    """One connection. *bounds* and *is_draining* are of the class that a server makes of this."""

    bounds: Bounds
    is_draining = False

    _began: float | None = None
    """When the request that is arriving began to; None while none is."""
    _stalled: float | None = None
    """Since when what is sent has not been taken."""
    _closing: float | None = None
    """Since when the connection is being closed, as far as a sweep has seen."""
    _is_in_head = True
    _head = 0
    """How much has come since the head began, at most."""
    _carried = 0
    """How much of the head may have come with the end of the request before."""
    _chunk = 0
    _without_body = 0
    """How much has come of a body without anything of its content: trailers, extensions."""
    _flaw: HTTPStatus | None = None
    _extensions: dict[str, Any] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self._began = self.loop.time()
        self._extensions = _extensions(transport)
        if len(self.connections) > 2 * self.bounds.connections:
            transport.abort()
        elif len(self.connections) > self.bounds.connections:
            self.refuse(HTTPStatus.SERVICE_UNAVAILABLE)

    def data_received(self, data: bytes) -> None:
        if self._flaw is not None:
            return
        self._chunk = len(data)
        if self._is_in_head:
            self._head += self._chunk
        else:
            self._without_body += self._chunk
        super().data_received(data)
        if self._began is None and self._is_in_head and self._head:
            self._began = self.loop.time()  # blank lines, which are no beginning to the parser
        arrived = self._head if self._is_in_head else self._without_body
        if arrived > self.bounds.header and self._flaw is None:
            self.refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

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
        self.headers = []  # What comes of trailers goes there, not into the headers of the scope.
        # The parser throws away what comes with a request to upgrade: nothing more can follow it.
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
        if self._flaw is not None and cycle.response_complete and not self.transport.is_closing():
            self._tell(self._flaw)

    def send_400_response(self, msg: str) -> None:
        self.refuse(self._flaw or HTTPStatus.BAD_REQUEST)

    def shutdown(self) -> None:
        """Make the answer that is being given the last; what is arriving goes on to."""
        cycle = cast("Any", self.cycle)
        if cycle is not None and not cycle.response_complete:
            cycle.keep_alive = False

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.time()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled = None

    def refuse(self, status: HTTPStatus) -> None:
        """Answer with *status* and close, unless an answer is being given already.

        Requests that came before the one at fault are answered first. What the caller goes on
        sending is thrown away for a moment: closing a connection with something unread in it would
        take the answer away from the caller.
        """
        self._flaw = status
        cycle = cast("Any", self.cycle)
        if cycle is not None and not cycle.response_complete:
            if self._is_in_head:
                return  # until `on_response_complete`
            if cycle.response_started:
                self.transport.abort()
                return
            # Its app may be under way: it hears that there is nobody to answer any more.
            cycle.disconnected = True
            cycle.message_event.set()
        elif not self._is_in_head:  # answered before all of it had come
            self.transport.close()
            return
        self._tell(status)

    def sweep(self, now: float) -> None:
        """End the connection if it has taken too long over something."""
        patience = self.bounds.receive
        if self.transport.is_closing():
            self._closing = self._closing or now
        for since in (self._stalled, self._closing):
            if since is not None and now - since > patience:
                self.transport.abort()
                return
        is_over = self._flaw is not None or self.transport.is_closing()
        if is_over or self._began is None or now - self._began <= patience:
            return
        if self._head or not self._is_in_head:
            self.refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.transport.close()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is asked and nothing answered."""
        cycle = cast("Any", self.cycle)
        is_answered = cycle is None or cycle.response_complete
        return bool(is_answered) and self._is_in_head and not self._head

    def _tell(self, status: HTTPStatus) -> None:
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
            self._flaw = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise httptools.HttpParserError("the head is too large")


def _extensions(transport: asyncio.Transport) -> dict[str, Any] | None:
    """What an app is told of the client's certificate, as ASGI's TLS extension has it."""
    subject = subject_of(transport.get_extra_info("peercert"))
    return None if subject is None else {"tls": {"client_cert_name": subject}}
