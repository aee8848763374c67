"""A connection: turns HTTP/2 frames into calls and limits its peer.

zttp 0.0.35 closes a connection with GOAWAY on oversized frames or headers, too many CONTINUATION
frames, concurrent streams (128), resets (256) and streams (4096) in the life of a connection,
flow-control violations and malformed input. The limits on resets and streams would cut off a busy
or unlucky caller, so a connection asks its peer to reconnect before they are reached.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

import zttp
from zttp import CONNECTION_CLOSED, NEED_DATA, Data, EndOfMessage, Request

from headgate.service.grpc.h2_server.abuse_limits import LINGER_S, PeerBudget
from headgate.service.grpc.h2_server.calls import Call, UnaryCall
from headgate.service.grpc.h2_server.streams import StreamCall
from headgate.service.grpc.method import CallError, Code
from headgate.service.grpc.wire import only_message, timeout_s

if TYPE_CHECKING:
    from headgate.service.grpc.h2_server.server import ServerState


_FRAME_HEADER: Final = 9
_SETTING: Final = 6


def with_max_calls(settings: bytes, calls: int) -> bytes:
    """Our SETTINGS frame with MAX_CONCURRENT_STREAMS set to *calls*, or to zttp's limit if
    lower."""
    frame = bytearray(settings)
    for at in range(_FRAME_HEADER, len(frame), _SETTING):
        if int.from_bytes(frame[at : at + 2], "big") == zttp.H2Settings.MAX_CONCURRENT_STREAMS:
            value = min(calls, int.from_bytes(frame[at + 2 : at + _SETTING], "big"))
            frame[at + 2 : at + _SETTING] = value.to_bytes(4, "big")
    return bytes(frame)


ENHANCE_YOUR_CALM: Final = int(zttp.H2ErrorCode.ENHANCE_YOUR_CALM)
REFUSED: Final = int(zttp.H2ErrorCode.REFUSED_STREAM)
NO_ERROR: Final = 0
LAST_STREAM: Final = 2**31 - 1
_WRITE_BUFFER: Final = 1 << 20
"""Bytes in the transport's buffer above which reading stops."""
_FLUSH_AT: Final = 1 << 16
"""Bytes of replies above which they are flushed."""
_CONTENT_TYPES: Final = (b"application/grpc", b"application/grpc+proto")
_ALSO: Final = (b"application/grpc+", b"application/grpc;")


class Connection(asyncio.Protocol):
    """The connection of one peer. Runs in the loop's thread; call `tick` about once a second."""

    def __init__(self, state: ServerState) -> None:
        self.loop = state.loop
        self.limits = state.limits
        self._state = state
        self._engine = zttp.Connection(zttp.SERVER, zttp.HTTP2)
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, Call] = {}
        self._lookahead: list[zttp.Event] = []
        """Events that were read ahead and are not processed yet."""
        self._pending_deadlines: list[tuple[Call, bytes]] = []
        self._parked: dict[int, zttp.Stream] = {}
        self._waiters: list[asyncio.Future[None]] = []
        self._held = 0
        self._pauses = 0
        self._budget = PeerBudget(self.limits, now=self.loop.time())
        self._is_flushing = False
        self._is_closed = False
        self._is_suspended = False
        self.is_full = False
        self.unflushed = 0
        self.working = 0

    # called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because uvloop's transport is not a subclass of asyncio's.
        self._transport = transport = cast("asyncio.Transport", transport)
        secured = transport.get_extra_info("ssl_object")
        if (
            secured is not None and secured.selected_alpn_protocol() != "h2"
        ) or not self._state.add(self):
            transport.abort()
            return
        transport.set_write_buffer_limits(high=_WRITE_BUFFER)
        self._engine.initiate_connection()
        transport.write(with_max_calls(self._engine.data_to_send(), self.limits.calls))

    def data_received(self, data: bytes) -> None:
        if self._is_closed:
            return
        self._budget.idle_bytes += len(data)
        self._budget.moved += len(data)
        try:
            self._engine.receive_data(data)
            self._process_events()
        except zttp.RemoteProtocolError:
            self.close()  # zttp has queued a GOAWAY with the reason

    def _process_events(self) -> None:
        """Process received events while the peer reads its replies.

        A gateway learns the maximum of concurrent calls only after its first calls, which may
        exceed it. While the methods of that many calls run, the others wait.
        """
        engine, budget = self._engine, self._budget
        while not self._is_closed and not self.is_full:
            if self.working and len(self._calls) >= self.limits.calls:
                self._suspend()
                break
            event = self._lookahead.pop(0) if self._lookahead else engine.next_event()
            if event is NEED_DATA or event is CONNECTION_CLOSED:
                break
            self._take(event)
            if self.unflushed > _FLUSH_AT:
                self.flush()  # may find that the peer does not read
        if budget.is_exceeded:
            self.close_abusive()
        elif budget.should_reconnect:
            self.send_goaway()
        if self._pending_deadlines:
            self._set_deadlines()
        self.flush()

    def _take(self, event: zttp.Event) -> None:
        if isinstance(event, Data):
            self._budget.idle_bytes = 0
            if (call := self._calls.get(event.stream_id)) is not None:
                call.feed(event.data)
        elif isinstance(event, EndOfMessage):
            if (call := self._calls.get(event.stream_id)) is not None:
                call.end()
        elif isinstance(event, Request):
            self._budget.idle_bytes = 0
            self._on_request(event)
        else:
            self._on_control(event)

    def eof_received(self) -> bool:
        return False  # gRPC needs both directions: a peer that ends its input has left

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._state.remove(self)
        for call in list(self._calls.values()):
            call.drop()
        self._wake()

    def pause_writing(self) -> None:
        self.is_full = True
        self.pause()

    def resume_writing(self) -> None:
        self.is_full = False
        self.resume()
        self._wake()
        self._resume_events()

    def _resume_events(self) -> None:
        """Resume the processing of events."""
        try:
            self._process_events()
        except zttp.RemoteProtocolError:
            self.close()

    def _suspend(self) -> None:
        if not self._is_suspended:
            self._is_suspended = True
            self.pause()

    # called by calls

    def forget(self, call: Call) -> None:
        self._calls.pop(call.stream.stream_id, None)
        if self._is_suspended:
            self._is_suspended = False
            self.resume()
            self.loop.call_soon(self._resume_events)

    def flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self.loop.call_soon(self.flush)

    def hold(self, size: int) -> bool:
        self._held += size
        return self._held <= self.limits.connection_bytes

    def park(self, stream: zttp.Stream) -> None:
        self._parked[stream.stream_id] = stream
        if self._unsent() > self.limits.connection_bytes:
            self.close_abusive()

    def record_abuse(self) -> None:
        self._budget.overhead += 1
        if self._budget.is_exceeded:
            self.close_abusive()

    def pause(self) -> None:
        self._pauses += 1
        if self._pauses == 1 and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        self._pauses -= 1
        if not self._pauses and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    async def progress(self) -> None:
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiters.append(waiter)
        await waiter

    # called by the server

    def begin_drain(self) -> None:
        """Ask the peer for no more calls and end the input of streams."""
        self.send_goaway()
        for call in list(self._calls.values()):
            call.begin_drain()

    def send_goaway(self) -> None:
        """Ask the peer to reconnect (GOAWAY). Calls that it has already sent are still served."""
        if self._budget.leaving_since is None and not self._is_closed:
            self._budget.leaving_since = self.loop.time()
            self._engine.close(NO_ERROR, LAST_STREAM)
            self.flush_soon()

    def close_abusive(self) -> None:
        """Close the connection because of the peer's behaviour (ENHANCE_YOUR_CALM)."""
        if not self._is_closed:
            self._engine.close(ENHANCE_YOUR_CALM)
            self.close()

    def finish(self) -> None:
        """Close the connection in order: open calls end with UNAVAILABLE."""
        if not self._is_closed:
            for call in list(self._calls.values()):
                call.fail(Code.UNAVAILABLE, "the server is stopping")
            self._engine.close(NO_ERROR)
            self.close()

    def close(self) -> None:
        """Flush, drop all calls and close the connection."""
        transport = self._transport
        if transport is None or self._is_closed:
            return
        self.flush()
        self._is_closed = True
        for call in list(self._calls.values()):
            call.drop()
        try:
            if transport.can_write_eof() and not self._pauses:
                transport.write_eof()  # closing with unread bytes would discard the last frames
            else:
                transport.close()
        except OSError:
            transport.abort()  # the peer has left, and asyncio has not noticed yet
        self.loop.call_later(LINGER_S, transport.abort)  # if the peer does not close it

    def abort(self) -> None:
        """Close the connection at once and discard unsent data."""
        if self._transport is not None:
            self._transport.abort()

    def flush(self) -> None:
        self._is_flushing = False
        self.unflushed = 0
        if not self._is_closed and self._transport is not None:
            out = self._engine.data_to_send()
            if out:
                self._budget.moved += len(out)
                self._transport.write(out)

    def tick(self, now: float) -> None:
        """Check the time limits. *now* is the loop's time."""
        unread = self.is_full or self._engine.has_pending_send()
        verdict = self._budget.verdict(now, calls=len(self._calls), unread=unread)
        if verdict is None:
            self._expire_requests(now)
        elif verdict == "idle":
            self.finish()
        else:
            self.close_abusive()

    @property
    def is_idle(self) -> bool:
        """True if no call is open and no reply unsent."""
        return not self._calls and not self.is_full and not self._engine.has_pending_send()

    def _expire_requests(self, now: float) -> None:
        for call in list(self._calls.values()):
            if call.request_ended or isinstance(call, StreamCall):
                continue
            if call.since is None:
                call.since = now
            elif now - call.since > self.limits.request_s:
                call.fail(Code.DEADLINE_EXCEEDED, "the request did not come in time")

    # events

    def _on_request(self, event: zttp.Request) -> None:
        self._budget.opened += 1
        stream = self._engine.stream(event.stream_id)
        fields = dict(event.headers)
        if (
            len(self._calls) >= self.limits.calls
            or fields.get(b"content-type") not in _CONTENT_TYPES
            or fields.get(b"te") != b"trailers"
            or event.method != b"POST"
        ) and self._is_rejected(event, fields, stream):
            return
        call: Call
        if (unary := self._state.methods.get(event.target)) is not None:
            call = UnaryCall(self, stream, unary)
            if (message := self._whole_message(event)) is not None:
                call.take(message)
                if call.task is None:
                    return
        elif (many := self._state.streams.get(event.target)) is not None:
            call = StreamCall(self, stream, many)
        else:
            call = Call(self, stream)
            call.request_ended = True
            call.fail(Code.UNIMPLEMENTED, "this server has no such method")
            return
        self._calls[event.stream_id] = call
        if (timeout := fields.get(b"grpc-timeout")) is not None:
            self._pending_deadlines.append((call, timeout))
        if event.end_stream:
            call.end()

    def _whole_message(self, request: zttp.Request) -> bytes | None:
        """The message of a *request* that has arrived completely, as nearly all have, or None."""
        if request.end_stream:
            return None
        data = self._engine.next_event()
        if not isinstance(data, Data) or data.stream_id != request.stream_id:
            self._requeue(data)
            return None
        message = only_message(data.data, self.limits.message_bytes)
        end = self._engine.next_event()
        is_over = isinstance(end, EndOfMessage) and end.stream_id == request.stream_id
        if message is None or not is_over:
            self._requeue(data, end)
            return None
        return message

    def _requeue(self, *events: zttp.Event) -> None:
        self._lookahead = [event for event in events if event is not NEED_DATA]

    def _is_rejected(
        self, event: zttp.Request, fields: dict[bytes, bytes], stream: zttp.Stream
    ) -> bool:
        """True if the request is not a gRPC call that we serve; it has then been answered."""
        content_type = fields.get(b"content-type", b"")
        if len(self._calls) >= self.limits.calls:
            stream.reset(REFUSED)
            self.record_abuse()
        elif event.method != b"POST":
            stream.send_response(405, [(b"allow", b"POST")], True)  # noqa: FBT003 (zttp's)
        elif content_type not in _CONTENT_TYPES and not content_type.startswith(_ALSO):
            stream.send_response(415, None, True)  # noqa: FBT003
        elif fields.get(b"te") != b"trailers":
            call = Call(self, stream)
            call.request_ended = True
            call.fail(Code.INTERNAL, "the header te: trailers is missing")
        else:
            return False
        return True

    def _on_control(self, event: zttp.Event) -> None:
        if isinstance(event, zttp.RstStream):
            self._budget.resets += 1
            if (call := self._calls.get(event.stream_id)) is not None:
                call.drop()
        elif isinstance(event, zttp.WindowUpdate):
            self._wake()
        elif isinstance(event, zttp.Settings):
            self._budget.is_begun = True
            self._wake()
        self.record_abuse()

    def _set_deadlines(self) -> None:
        """Set the deadlines of calls that were not answered at once."""
        pending, self._pending_deadlines = self._pending_deadlines, []
        for call, value in pending:
            if self._calls.get(call.stream.stream_id) is call:
                try:
                    call.deadline = self.loop.call_later(timeout_s(value), call.expire)
                except CallError as error:
                    call.fail(error.code, str(error))

    def _unsent(self) -> int:
        left = {id_: stream for id_, stream in self._parked.items() if stream.pending_bytes}
        self._parked = left
        return sum(stream.pending_bytes or 0 for stream in left.values())

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
