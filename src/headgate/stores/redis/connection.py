"""One connection to one server: a blocking one, and one of an event loop.

Both are opened by `connect`. A request that is not answered in time, or a connection that breaks,
ends the connection with all that is in flight on it: a late reply is never taken for the reply to
another request.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import struct
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import hiredis

from headgate.stores.redis import errors
from headgate.stores.redis.requests import Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.errors import StoreError
    from headgate.stores.redis.requests import Reply, Waiter

_INCOMPLETE: Final = object()  # the parser's value for a reply that has not arrived as a whole
_CHUNK: Final = 65_536
_NEARLY_ALL: Final = 0.99  # with so much time left a system call to set a timeout is not worth it
_LEAST: Final = 0.001  # seconds: read what has arrived even at the deadline
_FRESH_SECONDS: Final = 0.05  # a connection used so recently is not checked before use
_ReplyError: Final = hiredis.ReplyError
_monotonic: Final = time.monotonic


def _python_timeout(sock: socket.socket, seconds: float) -> None:
    """Let the interpreter watch the time, as TLS sockets need it."""
    sock.settimeout(seconds)


def _kernel_timeout(sock: socket.socket, seconds: float) -> None:
    """Let the kernel watch the time, which saves two of four system calls."""
    whole, rest = divmod(max(round(seconds * 1_000_000), 1), 1_000_000)
    span = struct.pack("@ll", whole, rest)
    sock.settimeout(None)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, span)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, span)


class BlockingConnection:
    """A connection of one thread at a time: write some commands, read as many replies.

    *where* is the server's address for messages. A caller that gets an exception of
    `errors.DRIVER_ERRORS` closes the connection.
    """

    def __init__(self, sock: socket.socket, where: str, timeout: float) -> None:
        self.where = where
        self.used_at = 0.0
        self.generation = 0
        """A pool drops connections of an older generation than its own."""
        self._sock = sock
        self._timeout = timeout
        self._enough = timeout * _NEARLY_ALL
        self._is_limited = False
        self._reader = hiredis.Reader(notEnoughData=_INCOMPLETE)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._limit = _python_timeout if isinstance(sock, ssl.SSLSocket) else _kernel_timeout
        self._limit(sock, timeout)

    def __del__(self) -> None:
        self._sock.close()  # of a store that was dropped without being closed

    def send(self, packed: bytes, deadline: float) -> None:
        """Write *packed*, any number of commands, until *deadline* (monotonic seconds)."""
        left = deadline - _monotonic()
        if not self._enough <= left <= self._timeout:  # a greeting may take longer than a call
            self._limit_to(left)
        try:
            self._sock.sendall(packed)
        except BlockingIOError as error:
            raise TimeoutError from error

    def receive(self, count: int, deadline: float) -> list[Reply]:
        """Read *count* replies until *deadline*."""
        gets = self._reader.gets
        replies: list[Any] = []
        left = deadline - _monotonic()
        if not self._enough <= left <= self._timeout:
            self._limit_to(max(left, _LEAST))
        while True:
            try:
                data = self._sock.recv(_CHUNK)
            except BlockingIOError as error:
                raise TimeoutError from error
            if not data:
                raise EOFError("the server closed it")
            self._reader.feed(data)
            while (reply := gets()) is not _INCOMPLETE:
                replies.append(reply)
            if len(replies) >= count:
                break
            self._limit_to(deadline - _monotonic())
        if len(replies) > count:
            raise hiredis.ProtocolError("more replies than commands")
        if self._is_limited:
            self._limit(self._sock, self._timeout)
            self._is_limited = False
        return replies

    def _limit_to(self, left: float) -> None:
        if left <= 0:
            raise TimeoutError
        self._is_limited = True
        self._limit(self._sock, left)

    def is_usable(self, now: float) -> bool:
        """True if it may be used at *now*, as far as can be known without sending anything."""
        return now - self.used_at < _FRESH_SECONDS or self._is_quiet()

    def _is_quiet(self) -> bool:
        """True if the server has neither closed the connection nor sent something unasked."""
        if not self._poll.poll(0):
            return True
        if not isinstance(self._sock, ssl.SSLSocket):
            return False
        # TLS has messages of its own, such as session tickets, which are no reply.
        self._sock.settimeout(0)
        try:
            self._sock.recv(1)
        except ssl.SSLWantReadError:
            self._sock.settimeout(self._timeout)
            return True
        except OSError:
            pass
        return False

    def interrupt(self) -> None:
        """Wake the thread that waits on it: the connection reads as closed."""
        with suppress(OSError):
            # Not an SSLSocket's own shutdown, which takes its TLS away from the other thread.
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close this process's side: a parent process keeps the connection that it forked."""
        self._sock.close()


InFlight = tuple[Request, float, int]
"""A request, its deadline (monotonic seconds), and how often it has been sent again."""


class Command(Request):
    """One command that is no script, such as AUTH or ASKING, *packed*, about *key*."""

    __slots__ = ("_key", "_packed", "_reply")

    def __init__(self, packed: bytes, reply: Waiter | None = None, key: bytes = b"") -> None:
        self._packed = packed
        self._reply = reply
        self._key = key

    @property
    def key(self) -> bytes:
        return self._key

    def packed(self) -> bytes:
        return self._packed

    packed_whole = packed

    def answered(self, reply: Reply) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(reply)

    def failed(self, error: StoreError) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(error)


ASKING: Final = Command(b"*1\r\n$6\r\nASKING\r\n")
"""Precedes a request that was redirected by ASK. Its reply is ignored."""


class Owner(Protocol):
    """Receiver of the events of a connection."""

    def error_reply(self, connection: AsyncConnection, pending: InFlight, text: str) -> None:
        """Handle a request that the server answered with an error."""

    def lost(self, connection: AsyncConnection) -> None:
        """Stop using the connection. What was in flight has failed, or is about to."""


class AsyncConnection(asyncio.Protocol):
    """A connection in an event loop: many requests in flight, replies in their order.

    It is made by the loop's `create_connection`. *timeout* is what a request may take, in seconds.
    """

    def __init__(self, where: str, timeout: float) -> None:
        self.where = where
        self._owner: Owner | None = None
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._in_flight: deque[InFlight] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._is_retired = False
        self.has_ended = False
        """True if nothing can be sent any more."""
        reader = hiredis.Reader(notEnoughData=_INCOMPLETE)
        self._feed, self._gets = reader.feed, reader.gets
        self._closed = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._write = self._transport.write

    async def greet(self, commands: Sequence[bytes]) -> list[Reply]:
        """Send *commands*, packed, before anything else; an error reply is an element."""
        replies: list[asyncio.Future[Reply]] = [self._loop.create_future() for _ in commands]
        self._write(b"".join(commands))
        for command, reply in zip(commands, replies, strict=True):
            self._in_flight.append((Command(command, reply), 0.0, 0))
        found = await asyncio.gather(*replies, return_exceptions=True)
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, _ReplyError):
                raise one
        return found

    def serve(self, owner: Owner) -> None:
        """Report events to *owner* from now on."""
        self._owner = owner

    def send(self, request: Request) -> None:
        """Write *request*. This is the fast path."""
        self._write(request.packed())
        self._in_flight.append((request, _monotonic() + self._timeout, 0))
        if self._timer is None:
            self._watch()

    def forward(self, pending: InFlight, packed: bytes, *, asking: bool = False) -> None:
        """Write a request with the deadline that it has."""
        if asking:
            self._write(ASKING.packed())
            self._in_flight.append((ASKING, pending[1], 0))
        self._write(packed)
        self._in_flight.append(pending)
        if self._timer is not None and self._timer.when() > self._loop.time() + (
            pending[1] - _monotonic()
        ):
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._watch()

    def retire(self) -> None:
        """Close the connection as soon as what is in flight has been answered."""
        self._is_retired = True
        if not self._in_flight:
            self.close()

    def end(self, error: StoreError) -> None:
        """Close the connection now, and fail what is in flight with *error*."""
        if self.has_ended:
            return
        self.has_ended = True
        if self._timer is not None:
            self._timer.cancel()
        if self._owner is not None:
            self._owner.lost(self)
        self._transport.abort()
        in_flight, self._in_flight = self._in_flight, deque()
        errors.fail_all((request for request, _, _ in in_flight), error)

    def close(self) -> None:
        """Close the connection now."""
        self.end(errors.broken(self.where))

    @property
    def is_closed(self) -> bool:
        """True if the socket is closed."""
        return self._closed.done()

    async def wait_closed(self) -> None:
        """Wait until the socket is closed, after `end`."""
        await self._closed

    def data_received(self, data: bytes) -> None:
        """Pair the replies in *data* with requests, in order."""
        in_flight, gets = self._in_flight, self._gets
        try:
            self._feed(data)
            while (reply := gets()) is not _INCOMPLETE:
                if reply.__class__ is _ReplyError or not in_flight or self._is_retired:
                    self._settle(reply)
                    if self.has_ended:
                        return
                else:
                    request = in_flight.popleft()[0]
                    try:
                        request.answered(reply)
                    except errors.UNREADABLE as error:
                        request.failed(errors.unreadable(self.where, error))
        except hiredis.HiredisError as error:
            self.end(errors.fault(error, self.where))

    def connection_lost(self, exc: Exception | None) -> None:
        """End, whether the server or this side has closed the socket."""
        if not self._closed.done():
            self._closed.set_result(None)
        self.end(errors.broken(self.where, exc))

    def _watch(self) -> None:
        """Check again when the first request in flight is due: one timer, not one for each."""
        self._timer = None
        if not self._in_flight:
            return
        left = min(deadline for _, deadline, _ in self._in_flight) - _monotonic()
        if left > 0:
            self._timer = self._loop.call_later(left, self._watch)
        else:
            self.end(errors.timed_out(self.where, self._timeout))

    def _settle(self, reply: Reply) -> None:
        """Pass *reply* to the first request in flight."""
        if not self._in_flight:
            self.close()  # an unexpected message
            return
        pending = self._in_flight.popleft()
        if reply.__class__ is not _ReplyError or self._owner is None:
            errors.deliver(pending[0], reply, self.where)
        else:
            self._owner.error_reply(self, pending, str(reply))
        if self._is_retired and not self._in_flight:
            self.close()
