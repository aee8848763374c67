"""Calls: unary ones with one message each way, and streaming ones with any number."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from headgate.service.grpc.method import CallError, Code
from headgate.service.grpc.wire import (
    FAILED,
    HEAD,
    OK,
    Fields,
    Messages,
    framed,
    only_message,
    status,
    timeout_s,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import zttp

    from headgate.service.grpc.connection import Connection
    from headgate.service.grpc.method import Stream, Unary

LOG: Final = logging.getLogger("headgate.service")
NO_ERROR: Final = 0
TINY: Final = 64
"""Bytes of a message in one frame below which the frame counts as overhead."""
BACKLOG: Final = 16
"""Messages that may wait for a streaming method before reading stops."""
BACKLOG_BYTES: Final = 1 << 22
"""Bytes that may wait for a streaming method before reading stops."""
_AHEAD: Final = 1 << 16
"""Bytes that a streaming method may send beyond the caller's flow-control window."""


class Call:
    """The common part of all calls: an HTTP/2 stream, a deadline, an end."""

    __slots__ = (
        "_held",
        "_is_working",
        "connection",
        "deadline",
        "headers_sent",
        "request_ended",
        "since",
        "stream",
        "task",
    )

    def __init__(self, connection: Connection, stream: zttp.Stream) -> None:
        self.connection = connection
        self.stream = stream
        self.deadline: asyncio.TimerHandle | None = None
        self.task: asyncio.Future[Any] | None = None
        self.headers_sent = False
        """True after the response headers were sent."""
        self.request_ended = False
        """True after the caller ended its request."""
        self.since: float | None = None
        """Loop time at which the call was first seen waiting for its request."""
        self._held = 0
        """Bytes of the request in memory."""
        self._is_working = False
        """True if the method of a unary call is running."""

    def feed(self, data: bytes) -> None:
        """Process bytes of the request."""
        raise NotImplementedError

    def end(self) -> None:
        """Process the end of the request."""
        raise NotImplementedError

    def begin_drain(self) -> None:
        """Prepare for the stop of the server."""

    def set_deadline(self, timeout: bytes) -> None:
        """Start the caller's *timeout*, the value of `grpc-timeout`."""
        try:
            self.deadline = self.connection.loop.call_later(
                timeout_s(timeout),
                lambda: self.fail(Code.DEADLINE_EXCEEDED, "the deadline has passed"),
            )
        except CallError as error:
            self.fail_with(error)

    def fail(self, code: Code, message: str) -> None:
        """Answer with *code* and stop the method."""
        self._respond(status(code, message))
        self.drop()

    def fail_with(self, error: BaseException) -> None:
        """Answer with the status of *error*: INTERNAL, and a log record, if it is unexpected."""
        if isinstance(error, CallError):
            self.fail(error.code, str(error))
        elif isinstance(error, asyncio.CancelledError):
            self.fail(Code.CANCELLED, "the call was cancelled by its server")
        else:
            LOG.error("a gRPC method failed; its caller received INTERNAL", exc_info=error)
            self.fail(Code.INTERNAL, FAILED)

    def drop(self) -> None:
        """Stop the method: the call is answered, or its caller is gone."""
        if self.deadline is not None:
            self.deadline.cancel()
        task, self.task = self.task, None
        if task is not None:
            task.cancel()
        if self._held:
            self._hold(0)
        if self._is_working:
            self._is_working = False
            self.connection.working -= 1
        self.connection.forget(self)

    def _respond(self, trailers: Fields) -> None:
        if self.headers_sent:
            self.stream.end_message(trailers)
        else:
            self.stream.send_response(200, HEAD + trailers, True)  # noqa: FBT003 - zttp's own
        if not self.request_ended and not self.stream.pending_bytes:
            self.stream.reset(NO_ERROR)  # the rest of the request is not needed (RFC 9113 8.1)
        self.connection.flush_soon()

    def _hold(self, size: int) -> bool:
        """Set the memory held for the request; false if that is too much for the connection."""
        more, self._held = size - self._held, size
        return not more or self.connection.hold(more)


class UnaryCall(Call):
    """A call of one message each way. The method runs when the request has ended."""

    __slots__ = ("_message", "_messages", "_method")

    def __init__(self, connection: Connection, stream: zttp.Stream, method: Unary) -> None:
        super().__init__(connection, stream)
        self._method = method
        self._message: bytes | None = None
        self._messages: Messages | None = None

    def feed(self, data: bytes) -> None:
        if self._message is None and self._messages is None:
            self._message = only_message(data, self.connection.limits.message_bytes)
            if self._message is not None:
                return
        try:
            self._gather(data)
        except CallError as error:
            self.fail(error.code, str(error))

    def _gather(self, data: bytes) -> None:
        messages = self._messages
        if messages is None:
            messages = self._messages = Messages(self.connection.limits.message_bytes)
        for message in messages.feed(data):
            if self._message is not None:
                raise CallError(Code.UNIMPLEMENTED, "this method takes a single message")
            self._message = message
        if len(data) < TINY and messages.held:
            self.connection.record_overhead()
        if not self._hold(messages.held + len(self._message or b"")):
            raise CallError(Code.RESOURCE_EXHAUSTED, "this connection has too much data in flight")

    def end(self) -> None:
        self.request_ended = True
        message = self._message
        if message is None or (self._messages is not None and self._messages.held):
            self.fail(Code.UNIMPLEMENTED, "the request has no complete message")
            return
        try:
            reply = self._method(message)
            if isinstance(reply, bytes):
                self._answer(reply)
                return
            # The coroutine itself becomes the task: cancelled before it began, it is closed too.
            self.task = self.connection.loop.create_task(reply)
            self.task.add_done_callback(self._done)
            self._is_working = True
            self.connection.working += 1
        except Exception as error:  # noqa: BLE001 (a failing method must not leave its caller unanswered)
            self.fail_with(error)

    def _done(self, task: asyncio.Future[bytes]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if self.task is not task:
            return  # dropped: no caller waits for the result
        self.task = None
        if error is not None:
            self.fail_with(error)
        else:
            self._answer(task.result())
            self.connection.flush_soon()

    def _answer(self, reply: bytes) -> None:
        stream = self.stream
        stream.send_response(200, HEAD)
        stream.send_data(framed(reply))
        stream.end_message(OK)
        self.connection.unflushed += len(reply)
        if stream.pending_bytes:
            self.connection.park(stream)
        self.drop()


class StreamCall(Call):
    """A call of many messages: an iterator of its requests. The method runs in a task from the
    beginning."""

    __slots__ = ("_arrived", "_input_ended", "_is_paused", "_messages", "_waiting")

    def __init__(self, connection: Connection, stream: zttp.Stream, method: Stream) -> None:
        super().__init__(connection, stream)
        self._messages = Messages(connection.limits.message_bytes, truncates=True)
        self._waiting: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._input_ended = False
        """True if the method receives no more messages than those that wait."""
        self._is_paused = False
        self.task = connection.loop.create_task(self._run(method))

    def feed(self, data: bytes) -> None:
        try:
            found = self._messages.feed(data)
        except CallError as error:
            self.fail(error.code, str(error))
            return
        if not self._input_ended:
            self._waiting.extend(found)
            self._arrived.set()
        if not self._count():
            self.fail(Code.RESOURCE_EXHAUSTED, "this connection has too much data in flight")
        elif len(data) < TINY and self._messages.held:
            self.connection.record_overhead()

    def end(self) -> None:
        self.request_ended = True
        if self._messages.held:
            self.fail(Code.INVALID_ARGUMENT, "the request ended in the middle of a message")
        self.begin_drain()

    def begin_drain(self) -> None:
        """End the iteration after the messages that have arrived."""
        self._input_ended = True
        self._arrived.set()

    def drop(self) -> None:
        self._waiting.clear()
        self.begin_drain()
        self._count()
        super().drop()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._waiting:
            if self._input_ended:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        message = self._waiting.popleft()
        self._count()
        return message

    def _count(self) -> bool:
        """Count waiting bytes and stop or resume reading; false if there are too many."""
        count, size = len(self._waiting), sum(map(len, self._waiting))
        if not self._is_paused and (count > BACKLOG or size > BACKLOG_BYTES):
            self._is_paused = True
            self.connection.pause()
        elif self._is_paused and count <= BACKLOG // 2 and size <= BACKLOG_BYTES // 2:
            self._is_paused = False
            self.connection.resume()
        return self._hold(self._messages.held + size)

    async def _run(self, method: Stream) -> None:
        try:
            await self._converse(method)
        except asyncio.CancelledError as error:
            if self.task is not None:  # not by `drop`
                self.task = None
                self.fail_with(error)
            raise
        except Exception as error:  # noqa: BLE001 (a failing method must not leave its caller unanswered)
            self.task = None
            self.fail_with(error)
        else:
            self.task = None
            self._send_headers()
            self._respond(OK)
            self.drop()

    async def _converse(self, method: Stream) -> None:
        replies = method(self)
        try:
            async for reply in replies:
                await self._send(reply)
        finally:
            if (close := getattr(replies, "aclose", None)) is not None:
                await close()

    async def _send(self, reply: bytes) -> None:
        self._send_headers()
        self.stream.send_data(framed(reply))
        self.connection.flush_soon()
        if self.stream.pending_bytes:
            self.connection.park(self.stream)
        while self.connection.is_full or (self.stream.pending_bytes or 0) > _AHEAD:
            await self.connection.progress()

    def _send_headers(self) -> None:
        if not self.headers_sent:
            self.headers_sent = True
            self.stream.send_response(200, HEAD)
