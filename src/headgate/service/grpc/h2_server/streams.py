"""A call of any number of messages each way."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from headgate.service.grpc.h2_server.calls import TINY, Call, Carrier
from headgate.service.grpc.method import CallError, Code
from headgate.service.grpc.wire import HEAD, OK, Messages, framed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import zttp

    from headgate.service.grpc.method import Stream


# Messages of a caller that wait for a method to take them.


BACKLOG: Final = 16
"""Messages that may wait before the caller has to."""
BACKLOG_BYTES: Final = 1 << 22
"""Bytes of messages that may wait so."""


class Inbox:
    """The messages of a caller, in the order in which they came; an iterator that is read once.

    `on_low` and `on_high` are called when the backlog has become small, and large, `on_taken` with
    the length of each message that is handed out.
    """

    def __init__(
        self,
        *,
        on_high: Callable[[], None],
        on_low: Callable[[], None],
        on_taken: Callable[[int], None] | None = None,
    ) -> None:
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._is_closed = False
        self._is_high = False
        self._reader: asyncio.Future[None] | None = None
        self._on_high, self._on_low, self._on_taken = on_high, on_low, on_taken

    def put(self, message: bytes) -> bool:
        """One more; after `close` it is not taken any more, which is what it says."""
        if self._is_closed:
            return False
        self._waiting.append(message)
        self._size += len(message)
        is_large = len(self._waiting) > BACKLOG or self._size > BACKLOG_BYTES
        if is_large and not self._is_high:
            self._is_high = True
            self._on_high()
        self._wake()
        return True

    def close(self) -> None:
        """No more will come. What is there is still handed out."""
        self._is_closed = True
        self._wake()

    def clear(self) -> None:
        """Close it, and throw away what is there."""
        self.close()
        self._waiting.clear()
        self._size = 0
        self._lower()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._waiting:
            if self._is_closed:
                raise StopAsyncIteration
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        message = self._waiting.popleft()
        self._size -= len(message)
        if len(self._waiting) <= BACKLOG // 2 and self._size <= BACKLOG_BYTES // 2:
            self._lower()
        if self._on_taken is not None:
            self._on_taken(len(message))
        return message

    def _lower(self) -> None:
        if self._is_high:
            self._is_high = False
            self._on_low()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


_AHEAD: Final = 1 << 16
"""Bytes that a method may be ahead of what its caller has made room for."""


class StreamCarrier(Carrier, Protocol):
    """What a stream needs of its connection besides."""

    def pause(self) -> None:
        """Read no more, until `resume` has been called as often."""

    def resume(self) -> None:
        """Take back one `pause`."""

    @property
    def is_full(self) -> bool:
        """Whether the peer does not read what it is sent."""

    async def progress(self) -> None:
        """Return when the peer has read something, or has made room for more."""


class StreamCall(Call):
    """A call of many messages. Its method runs in a task from the beginning."""

    __slots__ = ("_flow", "_held", "_inbox", "_messages", "_method", "_waiting")

    def __init__(self, carrier: StreamCarrier, stream: zttp.Stream, method: Stream) -> None:
        super().__init__(carrier, stream)
        self._flow = carrier
        self._method = method
        self._messages = Messages(carrier.limits.message_bytes, shortens=True)
        self._held = 0
        self._waiting = 0
        self._inbox = Inbox(on_high=carrier.pause, on_low=carrier.resume, on_taken=self._taken)
        self.task = carrier.loop.create_task(self._run())

    def feed(self, data: bytes) -> None:
        try:
            for message in self._messages.feed(data):
                if self._inbox.put(message):
                    self._waiting += len(message)
        except CallError as error:
            self.fail(error.code, str(error))
            return
        held = self._messages.held + self._waiting
        more, self._held = held - self._held, held
        if not self.carrier.hold(more):
            self.fail(Code.RESOURCE_EXHAUSTED, "this connection has too much under way")
        elif len(data) < TINY and self._messages.held:
            self.carrier.grumble()

    def _taken(self, size: int) -> None:
        self._waiting -= size
        self._held -= size
        self.carrier.hold(-size)

    def end(self) -> None:
        self.is_whole = True
        if self._messages.held:
            self.fail(Code.INVALID_ARGUMENT, "the request ended in the middle of a message")
        self._inbox.close()

    def wind_up(self) -> None:
        self._inbox.close()

    def drop(self) -> None:
        self._inbox.clear()
        self.carrier.hold(-self._held)
        self._held = 0
        super().drop()

    async def _run(self) -> None:
        try:
            await self._converse()
        except CallError as error:
            self.task = None
            self.fail(error.code, str(error))
        except asyncio.CancelledError:
            if self.task is not None:  # by somebody else than `drop`
                self.task = None
                self.fail(Code.CANCELLED, "the call was cancelled by its server")
            raise
        except Exception as error:  # noqa: BLE001 (whatever a method does, its caller is answered)
            self.task = None
            self.blunder(error)
        else:
            self.task = None
            self._head()
            self._respond(OK)
            self.drop()

    async def _converse(self) -> None:
        replies = self._method(self._inbox)
        try:
            async for reply in replies:
                await self._send(reply)
        finally:
            if (close := getattr(replies, "aclose", None)) is not None:
                await close()

    async def _send(self, reply: bytes) -> None:
        self._head()
        self.stream.send_data(framed(reply))
        self.carrier.flush_soon()
        if self.stream.pending_bytes:
            self.carrier.park(self.stream)
        while self._flow.is_full or (self.stream.pending_bytes or 0) > _AHEAD:
            await self._flow.progress()

    def _head(self) -> None:
        if not self.is_headed:
            self.is_headed = True
            self.stream.send_response(200, HEAD)
