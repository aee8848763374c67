"""Streaming calls: any number of messages each way."""

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


BACKLOG: Final = 16
"""Messages that may wait in an inbox before reading stops."""
BACKLOG_BYTES: Final = 1 << 22
"""Bytes that may wait in an inbox before reading stops."""


class Inbox:
    """Messages of a caller in order of arrival, to be iterated once.

    `on_high` and `on_low` are called when the backlog becomes large and small again, `on_taken`
    with the length of each message that the method takes.
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
        """Add *message*; false after `close`."""
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
        """Accept no more messages; those already there can still be read."""
        self._is_closed = True
        self._wake()

    def clear(self) -> None:
        """Close the inbox and discard its messages."""
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
"""Bytes that a method may send beyond the caller's flow-control window."""


class StreamCarrier(Carrier, Protocol):
    """The connection as its streaming calls see it."""

    def pause(self) -> None:
        """Stop reading until `resume` has been called as often."""

    def resume(self) -> None:
        """Undo one `pause`."""

    @property
    def is_full(self) -> bool:
        """True if the peer does not read its replies."""

    async def progress(self) -> None:
        """Wait until the peer has read something or enlarged its window."""


class StreamCall(Call):
    """A call of many messages. The method runs in a task from the beginning."""

    __slots__ = ("_flow", "_held", "_inbox", "_messages", "_method", "_waiting")

    def __init__(self, carrier: StreamCarrier, stream: zttp.Stream, method: Stream) -> None:
        super().__init__(carrier, stream)
        self._flow = carrier
        self._method = method
        self._messages = Messages(carrier.limits.message_bytes, truncates=True)
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
            self.fail(Code.RESOURCE_EXHAUSTED, "this connection has too much data in flight")
        elif len(data) < TINY and self._messages.held:
            self.carrier.record_abuse()

    def _taken(self, size: int) -> None:
        self._waiting -= size
        self._held -= size
        self.carrier.hold(-size)

    def end(self) -> None:
        self.request_ended = True
        if self._messages.held:
            self.fail(Code.INVALID_ARGUMENT, "the request ended in the middle of a message")
        self._inbox.close()

    def begin_drain(self) -> None:
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
            if self.task is not None:  # not by `drop`
                self.task = None
                self.fail(Code.CANCELLED, "the call was cancelled by its server")
            raise
        except Exception as error:  # noqa: BLE001 (a failing method must not leave its caller unanswered)
            self.task = None
            self.fail_internal(error)
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
        if not self.headers_sent:
            self.headers_sent = True
            self.stream.send_response(200, HEAD)
