"""A connection in an event loop: many requests on their way at once, replies in their order.

A request that is not answered in time, or a connection that breaks, ends the wire with all that is
on it: a late reply can never be taken for the reply to another request.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

import hiredis

from headgate.stores.redis import errors
from headgate.stores.redis.request import Request
from headgate.stores.redis.transport import raw_socket

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection

    from headgate.errors import StoreError
    from headgate.stores.redis.request import Reply

Pending = tuple[Request, float, int]
"""A request, its deadline (monotonic seconds), and how often it has been sent again."""

_GOODBYE: Final = 0.25  # seconds
_MORE: Final = object()  # what the parser says when a reply is not complete
_ReplyError: Final = hiredis.ReplyError
_monotonic: Final = time.monotonic


class _Asking(Request):
    """ASKING, which goes before a request that was sent on by ASK. Nobody waits for its reply."""

    __slots__ = ()

    key = b""

    def packed(self) -> bytes:
        return b"*1\r\n$6\r\nASKING\r\n"

    packed_whole = packed

    def answered(self, reply: Reply) -> None:
        """That is all."""

    def failed(self, error: StoreError) -> None:
        """So does the request after it."""


ASKING: Final = _Asking()


class Owner(Protocol):
    """Who is told what happens on a wire."""

    def refused(self, wire: Wire, pending: Pending, text: str) -> None:
        """The server answered a request with an error."""

    def lost(self, wire: Wire) -> None:
        """The wire cannot be used any more. What was on it has failed, or is about to."""


class Wire(ABC):
    """One connection. *where* is the server's address, *timeout* what a request may take."""

    def __init__(self, owner: Owner, where: str, timeout: float) -> None:
        self.where = where
        self._owner = owner
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._sent: deque[Pending] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._is_retired = False
        self._is_over = False

    @abstractmethod
    def send(self, request: Request) -> None:
        """Write *request*. This is the fast path."""

    @abstractmethod
    def _put(self, packed: bytes) -> None:
        """Write *packed*."""

    @abstractmethod
    def _hang_up(self) -> None:
        """Close the connection at once."""

    @property
    @abstractmethod
    def is_gone(self) -> bool:
        """Whether the connection is closed."""

    @abstractmethod
    async def gone(self) -> None:
        """Wait until the connection is closed, after `end`."""

    def forward(self, pending: Pending, packed: bytes, *, asking: bool = False) -> None:
        """Write a request that has been on its way before, with the deadline that it has."""
        if asking:
            self._put(ASKING.packed())
            self._sent.append((ASKING, pending[1], 0))
        self._put(packed)
        self._sent.append(pending)
        if self._timer is not None and self._timer.when() > self._loop.time() + (
            pending[1] - _monotonic()
        ):
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._watch()

    def retire(self) -> None:
        """Close the connection as soon as what is on its way has been answered."""
        self._is_retired = True
        if not self._sent:
            self.end(errors.broken(self.where))

    def end(self, error: StoreError) -> None:
        """Close the connection now, and fail what is on its way with *error*."""
        if self._is_over:
            return
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._owner.lost(self)
        self._hang_up()
        sent, self._sent = self._sent, deque()
        errors.fail_all((request for request, _, _ in sent), error)

    def _watch(self) -> None:
        """Look again when the first of those on their way is due. One timer, not one for each."""
        self._timer = None
        if not self._sent:
            return
        left = min(deadline for _, deadline, _ in self._sent) - _monotonic()
        if left > 0:
            self._timer = self._loop.call_later(left, self._watch)
        else:
            self.end(errors.timed_out(self.where, self._timeout))

    def _settle(self, reply: Reply) -> None:
        """Hand *reply* to the first of those on their way."""
        if not self._sent:
            self.end(errors.broken(self.where))  # it says something that nobody asked for
            return
        pending = self._sent.popleft()
        if reply.__class__ is _ReplyError:
            self._owner.refused(self, pending, str(reply))
        else:
            errors.deliver(pending[0], reply, self.where)
        if self._is_retired and not self._sent:
            self.end(errors.broken(self.where))


class RawWire(Wire, asyncio.Protocol):
    """On the event loop's transport, with hiredis's parser."""

    def __init__(
        self, transport: asyncio.Transport, keep: object, owner: Owner, where: str, timeout: float
    ) -> None:
        super().__init__(owner, where, timeout)
        reader = hiredis.Reader(notEnoughData=_MORE)
        self._feed, self._gets = reader.feed, reader.gets
        self._transport = transport
        self._keep = keep
        self._write = transport.write
        self._closed = self._loop.create_future()
        transport.set_protocol(self)

    def send(self, request: Request) -> None:
        self._write(request.packed())
        self._sent.append((request, _monotonic() + self._timeout, 0))
        if self._timer is None:
            self._watch()

    def data_received(self, data: bytes) -> None:
        """Pair the replies in *data* with requests, first come, first served."""
        sent, gets = self._sent, self._gets
        try:
            self._feed(data)
            while (reply := gets()) is not _MORE:
                if reply.__class__ is _ReplyError or not sent or self._is_retired:
                    self._settle(reply)
                    if self._is_over:
                        return
                else:
                    request = sent.popleft()[0]
                    try:
                        request.answered(reply)
                    except errors.NONSENSE as error:
                        request.failed(errors.nonsense(self.where, error))
        except hiredis.HiredisError as error:
            self.end(errors.fault(error, self.where))

    def connection_lost(self, exc: Exception | None) -> None:
        """The server closed the connection, or we did."""
        if not self._closed.done():
            self._closed.set_result(None)
        self.end(errors.broken(self.where, exc))

    def _put(self, packed: bytes) -> None:
        self._write(packed)

    def _hang_up(self) -> None:
        self._transport.abort()

    @property
    def is_gone(self) -> bool:
        return self._closed.done()

    async def gone(self) -> None:
        await self._closed


class PlainWire(Wire):
    """On redis-py's public methods alone: a task that writes, and one that reads."""

    def __init__(
        self, connection: AbstractConnection, owner: Owner, where: str, timeout: float
    ) -> None:
        super().__init__(owner, where, timeout)
        self._connection: Any = connection
        self._outbox: list[bytes] = []
        self._has_mail = asyncio.Event()
        self._tasks = [self._loop.create_task(self._read()), self._loop.create_task(self._mail())]

    def send(self, request: Request) -> None:
        self.forward((request, _monotonic() + self._timeout, 0), request.packed())

    def _put(self, packed: bytes) -> None:
        self._outbox.append(packed)
        self._has_mail.set()

    async def _mail(self) -> None:
        while await self._has_mail.wait():
            self._has_mail.clear()
            packed = b"".join(self._outbox)
            self._outbox.clear()
            if not self._connection.is_connected:  # it would reconnect, and without a greeting
                return
            try:
                await self._connection.send_packed_command(packed, check_health=False)
            except errors.DRIVER_ERRORS as error:
                self.end(errors.broken(self.where, error))
                return

    async def _read(self) -> None:
        try:
            while not self._is_over:
                self._settle(await self._connection.read_response(disconnect_on_error=False))
        except errors.DRIVER_ERRORS as error:
            self.end(errors.loss(error, self.where, self._timeout))
        finally:
            with suppress(*errors.DRIVER_ERRORS):
                async with asyncio.timeout(_GOODBYE):  # TLS waits for the other side's
                    await self._connection.disconnect()

    def _hang_up(self) -> None:
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()

    @property
    def is_gone(self) -> bool:
        return all(task.done() for task in self._tasks)

    async def gone(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)


def wire_on(
    connection: AbstractConnection, owner: Owner, where: str, timeout: float, *, plain: bool
) -> Wire:
    """A wire on a connection that has been greeted: the fast kind if it can be had."""
    taken = None if plain else raw_socket.take_transport(connection)
    if taken is None:
        return PlainWire(connection, owner, where, timeout)
    return RawWire(*taken, owner, where, timeout)
