"""Calls, and unary calls: one message each way."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

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
)

if TYPE_CHECKING:
    import zttp

    from headgate.service.grpc.method import GrpcLimits, Unary

LOG: Final = logging.getLogger("headgate.service")
NO_ERROR: Final = 0
TINY: Final = 64
"""Bytes of a message in one frame below which the frame counts as abuse."""


class Carrier(Protocol):
    """The connection as its calls see it."""

    loop: asyncio.AbstractEventLoop
    limits: GrpcLimits
    unflushed: int
    """Bytes of replies that are encoded but not flushed."""
    working: int
    """Unary calls whose methods are still running."""

    def hold(self, size: int) -> bool:
        """Add *size* (may be negative) to the memory held for calls; false if that is too much."""

    def park(self, stream: zttp.Stream) -> None:
        """Remember that *stream* has bytes for which its caller has no flow-control window."""

    def forget(self, call: Call) -> None:
        """Remove a call that is answered or gone."""

    def flush_soon(self) -> None:
        """Send encoded data in the next iteration of the loop."""

    def record_abuse(self) -> None:
        """Count an action that a normal peer takes seldom."""


class Call:
    """The common part of all calls: an HTTP/2 stream, a deadline, an end."""

    __slots__ = ("carrier", "deadline", "headers_sent", "request_ended", "since", "stream", "task")

    def __init__(self, carrier: Carrier, stream: zttp.Stream) -> None:
        self.carrier = carrier
        self.stream = stream
        self.deadline: asyncio.TimerHandle | None = None
        self.task: asyncio.Future[Any] | None = None
        self.headers_sent = False
        """True after the response headers were sent."""
        self.request_ended = False
        """True after the caller ended its request."""
        self.since: float | None = None
        """Loop time at which the call was first seen waiting for its request."""

    def feed(self, data: bytes) -> None:
        """Process bytes of the request."""
        raise NotImplementedError

    def end(self) -> None:
        """Process the end of the request."""
        raise NotImplementedError

    def begin_drain(self) -> None:
        """Prepare for the stop of the server."""

    def expire(self) -> None:
        """End the call because the caller's deadline has passed."""
        self.fail(Code.DEADLINE_EXCEEDED, "the deadline has passed")

    def fail(self, code: Code, message: str) -> None:
        """Answer with *code* and stop the method."""
        self._respond(status(code, message))
        self.drop()

    def drop(self) -> None:
        """Stop the method: the call is answered, or its caller is gone."""
        if self.deadline is not None:
            self.deadline.cancel()
        task, self.task = self.task, None
        if task is not None:
            task.cancel()
        self.carrier.forget(self)

    def _respond(self, trailers: Fields) -> None:
        if self.headers_sent:
            self.stream.end_message(trailers)
        else:
            self.stream.send_response(200, HEAD + trailers, True)  # noqa: FBT003 - zttp's own
        if not self.request_ended and not self.stream.pending_bytes:
            self.stream.reset(NO_ERROR)  # the rest of the request is not wanted (RFC 9113 8.1)
        self.carrier.flush_soon()

    def fail_internal(self, error: BaseException) -> None:
        """Answer INTERNAL for a method that raised something else than `CallError`, and log it."""
        LOG.error("a gRPC method failed; its caller received INTERNAL", exc_info=error)
        self.fail(Code.INTERNAL, FAILED)


class UnaryCall(Call):
    """A call of one message each way. The method runs when the request has ended."""

    __slots__ = ("_held", "_is_working", "_message", "_messages", "_method")

    def __init__(self, carrier: Carrier, stream: zttp.Stream, method: Unary) -> None:
        super().__init__(carrier, stream)
        self._method = method
        self._message: bytes | None = None
        self._messages: Messages | None = None
        self._held = 0
        self._is_working = False

    def feed(self, data: bytes) -> None:
        if self._message is None and self._messages is None:
            self._message = only_message(data, self.carrier.limits.message_bytes)
            if self._message is not None:
                return
        try:
            self._gather(data)
        except CallError as error:
            self.fail(error.code, str(error))

    def take(self, message: bytes) -> None:
        """Process a complete request, of which nothing was fed before."""
        self._message = message
        self.end()

    def _gather(self, data: bytes) -> None:
        messages = self._messages
        if messages is None:
            messages = self._messages = Messages(self.carrier.limits.message_bytes)
        for message in messages.feed(data):
            if self._message is not None:
                raise CallError(Code.UNIMPLEMENTED, "this method takes one message, not more")
            self._message = message
        if len(data) < TINY and messages.held:
            self.carrier.record_abuse()
        held = messages.held + len(self._message or b"")
        more, self._held = held - self._held, held
        if not self.carrier.hold(more):
            raise CallError(Code.RESOURCE_EXHAUSTED, "this connection has too much data in flight")

    def end(self) -> None:
        self.request_ended = True
        message = self._message
        if message is None or (self._messages is not None and self._messages.held):
            self.fail(Code.UNIMPLEMENTED, "this method takes one whole message, not less")
            return
        try:
            reply = self._method(message)
            if not isinstance(reply, bytes):
                # The awaitable itself becomes the task: cancelled before it began, it is closed
                # too.
                self.task = asyncio.ensure_future(reply, loop=self.carrier.loop)
                self.task.add_done_callback(self._done)
                self._is_working = True
                self.carrier.working += 1
                return
        except CallError as error:
            self.fail(error.code, str(error))
        except Exception as error:  # noqa: BLE001 (a failing method must not leave its caller unanswered)
            self.fail_internal(error)
        else:
            self._answer(reply)

    def _done(self, task: asyncio.Future[bytes]) -> None:
        error = None if task.cancelled() else task.exception()
        if self.task is not task:
            return  # dropped: no caller waits for the result
        self.task = None
        if task.cancelled():
            self.fail(Code.CANCELLED, "the call was cancelled by its server")
        elif isinstance(error, CallError):
            self.fail(error.code, str(error))
        elif error is not None:
            self.fail_internal(error)
        else:
            self._answer(task.result())
            self.carrier.flush_soon()

    def _answer(self, reply: bytes) -> None:
        stream = self.stream
        stream.send_response(200, HEAD)
        stream.send_data(framed(reply))
        stream.end_message(OK)
        self.carrier.unflushed += len(reply)
        if stream.pending_bytes:
            self.carrier.park(stream)
        self.drop()

    def drop(self) -> None:
        if self._held:
            self.carrier.hold(-self._held)
            self._held = 0
        if self._is_working:
            self._is_working = False
            self.carrier.working -= 1
        super().drop()
