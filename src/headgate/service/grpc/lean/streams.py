"""A call of any number of messages each way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from headgate.service.grpc.inbox import Inbox
from headgate.service.grpc.method import CallError, Code
from headgate.service.grpc.wire import HEAD, OK, Messages, framed

from .calls import TINY, Call, Carrier

if TYPE_CHECKING:
    import zttp

    from headgate.service.grpc.method import Stream

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
