"""A call of one message each way."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate.service.grpc.method import CallError, Code
from headgate.service.grpc.wire import HEAD, OK, Fields, Messages, framed, only_message, status

if TYPE_CHECKING:
    import zttp

    from headgate.service.grpc.method import GrpcLimits, Unary

LOG: Final = logging.getLogger("headgate.service")
FAILED: Final = "the method failed; its server has logged why"
NO_ERROR: Final = 0
TINY: Final = 64
"""Bytes of a message in one frame that are too few to be meant well."""


class Carrier(Protocol):
    """What a call needs of its connection."""

    loop: asyncio.AbstractEventLoop
    limits: GrpcLimits
    owed: int
    """Bytes of replies that have been put out since the last ones were sent."""
    working: int
    """Calls of one message whose methods have yet to answer."""

    def hold(self, size: int) -> bool:
        """Count *size* more bytes (or less) as kept for calls; false if that is too many."""

    def park(self, stream: zttp.Stream) -> None:
        """Note that *stream* has bytes out that its caller has not made room for."""

    def forget(self, call: Call) -> None:
        """The call is answered, or gone: nothing of it is of interest any more."""

    def flush_soon(self) -> None:
        """Send what has been put out, when the loop comes to it."""

    def grumble(self) -> None:
        """Note something that a well-meaning peer does seldom."""


class Call:
    """What all calls have: a stream of HTTP/2, a deadline, an end."""

    __slots__ = ("carrier", "deadline", "is_headed", "is_whole", "since", "stream", "task")

    def __init__(self, carrier: Carrier, stream: zttp.Stream) -> None:
        self.carrier = carrier
        self.stream = stream
        self.deadline: asyncio.TimerHandle | None = None
        self.task: asyncio.Future[Any] | None = None
        self.is_headed = False
        """Whether the head of the response is out."""
        self.is_whole = False
        """Whether the caller has sent all that it is going to."""
        self.since: float | None = None
        """When it was first seen waiting for its caller, by the loop's clock."""

    def feed(self, data: bytes) -> None:
        """Take bytes of the request."""
        raise NotImplementedError

    def end(self) -> None:
        """The request ends here."""
        raise NotImplementedError

    def wind_up(self) -> None:
        """The server is going to stop."""

    def expire(self) -> None:
        """The time that the caller gave is over."""
        self.fail(Code.DEADLINE_EXCEEDED, "the deadline has passed")

    def fail(self, code: Code, message: str) -> None:
        """Answer with *code*, and stop what is still being done."""
        self._respond(status(code, message))
        self.drop()

    def drop(self) -> None:
        """Stop what is being done: the call is answered, or its caller is gone."""
        if self.deadline is not None:
            self.deadline.cancel()
        task, self.task = self.task, None
        if task is not None:
            task.cancel()
        self.carrier.forget(self)

    def _respond(self, trailers: Fields) -> None:
        if self.is_headed:
            self.stream.end_message(trailers)
        else:
            self.stream.send_response(200, HEAD + trailers, True)  # noqa: FBT003 - zttp's own
        if not self.is_whole and not self.stream.pending_bytes:
            self.stream.reset(NO_ERROR)  # the rest of the request is not wanted (RFC 9113 8.1)
        self.carrier.flush_soon()

    def blunder(self, error: BaseException) -> None:
        """Answer for a method that has failed with something that is not for its caller."""
        LOG.error("a gRPC method failed: its caller was told INTERNAL", exc_info=error)
        self.fail(Code.INTERNAL, FAILED)


class UnaryCall(Call):
    """A call of one message each way. Its method is called when the request has ended."""

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
        """Take a whole request, of which nothing has come before."""
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
            self.carrier.grumble()
        held = messages.held + len(self._message or b"")
        more, self._held = held - self._held, held
        if not self.carrier.hold(more):
            raise CallError(Code.RESOURCE_EXHAUSTED, "this connection has too much under way")

    def end(self) -> None:
        self.is_whole = True
        message = self._message
        if message is None or (self._messages is not None and self._messages.held):
            self.fail(Code.UNIMPLEMENTED, "this method takes one whole message, not less")
            return
        try:
            reply = self._method(message)
            if not isinstance(reply, bytes):
                # The awaitable is the task itself: one cancelled before it began is closed too.
                self.task = asyncio.ensure_future(reply, loop=self.carrier.loop)
                self.task.add_done_callback(self._done)
                self._is_working = True
                self.carrier.working += 1
                return
        except CallError as error:
            self.fail(error.code, str(error))
        except Exception as error:  # noqa: BLE001 (whatever a method does, its caller is answered)
            self.blunder(error)
        else:
            self._answer(reply)

    def _done(self, task: asyncio.Future[bytes]) -> None:
        error = None if task.cancelled() else task.exception()
        if self.task is not task:
            return  # dropped: nobody waits for it
        self.task = None
        if task.cancelled():
            self.fail(Code.CANCELLED, "the call was cancelled by its server")
        elif isinstance(error, CallError):
            self.fail(error.code, str(error))
        elif error is not None:
            self.blunder(error)
        else:
            self._answer(task.result())
            self.carrier.flush_soon()

    def _answer(self, reply: bytes) -> None:
        stream = self.stream
        stream.send_response(200, HEAD)
        stream.send_data(framed(reply))
        stream.end_message(OK)
        self.carrier.owed += len(reply)
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
