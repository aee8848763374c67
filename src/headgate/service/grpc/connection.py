"""A connection: turns HTTP/2 frames into calls, and enforces the limits of its peer.

zttp 0.0.35 closes a connection with GOAWAY on oversized frames or headers, too many CONTINUATION
frames, concurrent streams (128), resets (256) and streams (4096) in the life of a connection,
flow-control violations and malformed input. A busy caller would reach the limits on resets and
streams, so a connection asks its peer to reconnect before.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

import zttp
from zttp import CONNECTION_CLOSED, NEED_DATA, Data, EndOfMessage, Request

from headgate.service.grpc.calls import NO_ERROR, Call, StreamCall, UnaryCall
from headgate.service.grpc.method import Code
from headgate.service.grpc.peer_budget import LINGER_S, PeerBudget
from headgate.service.grpc.wire import HEAD, status

if TYPE_CHECKING:
    from headgate.service.grpc.server import GrpcServer


_FRAME_HEADER_BYTES: Final = 9
_SETTING_BYTES: Final = 6


def with_max_calls(settings: bytes, calls: int) -> bytes:
    """Our SETTINGS frame with MAX_CONCURRENT_STREAMS set to *calls*, or to zttp's limit if
    lower."""
    frame = bytearray(settings)
    for at in range(_FRAME_HEADER_BYTES, len(frame), _SETTING_BYTES):
        if int.from_bytes(frame[at : at + 2], "big") == zttp.H2Settings.MAX_CONCURRENT_STREAMS:
            value = min(calls, int.from_bytes(frame[at + 2 : at + _SETTING_BYTES], "big"))
            frame[at + 2 : at + _SETTING_BYTES] = value.to_bytes(4, "big")
    return bytes(frame)


_LAST_STREAM: Final = 2**31 - 1
_WRITE_BUFFER: Final = 1 << 20
"""Bytes in the transport's buffer above which reading stops."""
_FLUSH_AT: Final = 1 << 16
"""Bytes of replies above which they are flushed."""
_CONTENT_TYPES: Final = (b"application/grpc", b"application/grpc+proto")
_CONTENT_PREFIXES: Final = (b"application/grpc+", b"application/grpc;")


class Connection(asyncio.Protocol):
    """The connection of one peer. Runs in the loop's thread; call `tick` about once a second."""

    def __init__(self, server: GrpcServer) -> None:
        self.loop = server.loop
        self.limits = server.limits
        self._server = server
        self._engine = zttp.Connection(zttp.SERVER, zttp.HTTP2)
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, Call] = {}
        self._timeouts: list[tuple[Call, bytes]] = []
        """The timeouts of calls that just arrived. Most are answered at once and need no timer."""
        self._parked: dict[int, zttp.Stream] = {}
        """Streams with bytes that wait for flow-control window of the caller."""
        self._waiters: list[asyncio.Future[None]] = []
        self.held = 0
        """Bytes of incomplete messages, and of those that wait for their method."""
        self._pauses = 0
        self._budget = PeerBudget(self.limits, self.loop.time())
        self._is_flushing = False
        self._is_closed = False
        self._is_suspended = False
        self.is_full = False
        """True while the peer does not read its replies."""
        self.unflushed = 0
        """Bytes of replies that are encoded but not flushed."""
        self.working = 0
        """Unary calls whose methods are still running."""

    # called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because uvloop's transport is not a subclass of asyncio's.
        self._transport = transport = cast("asyncio.Transport", transport)
        secured = transport.get_extra_info("ssl_object")
        if secured is not None and secured.selected_alpn_protocol() != "h2":
            transport.abort()
            return
        self._server.connections.add(self)
        transport.set_write_buffer_limits(high=_WRITE_BUFFER)
        self._engine.initiate_connection()
        transport.write(with_max_calls(self._engine.data_to_send(), self.limits.calls))
        if self._server.is_draining:
            self.begin_drain()

    def data_received(self, data: bytes) -> None:
        if self._is_closed:
            return
        self._budget.receive(data)
        if self._budget.has_broken_protocol:
            self.close_with(zttp.H2ErrorCode.PROTOCOL_ERROR)
            return
        self._engine.receive_data(data)
        self._process_events()

    def _process_events(self) -> None:
        """Process received events while the peer reads its replies.

        A gateway learns the maximum of concurrent calls only after its first calls, which may
        exceed it. While the methods of that many calls run, the others wait.
        """
        try:
            while not self._is_closed and not self.is_full:
                if self.working and len(self._calls) >= self.limits.calls:
                    self._suspend()
                    break
                event = self._engine.next_event()
                if event is NEED_DATA or event is CONNECTION_CLOSED:
                    break
                self._process(event)
                if self.unflushed > _FLUSH_AT:
                    self.flush()  # may find that the peer does not read
        except zttp.RemoteProtocolError:
            self.close()  # zttp has queued a GOAWAY with the reason
        if self._budget.is_exceeded:
            self.close_with(zttp.H2ErrorCode.ENHANCE_YOUR_CALM)
        elif self._budget.should_reconnect:
            self.send_goaway()
        timeouts, self._timeouts = self._timeouts, []
        for call, timeout in timeouts:
            if self._calls.get(call.stream.stream_id) is call:
                call.set_deadline(timeout)
        self.flush()

    def _process(self, event: zttp.Event) -> None:
        if isinstance(event, Data):
            if (call := self._calls.get(event.stream_id)) is not None:
                call.feed(event.data)
        elif isinstance(event, EndOfMessage):
            if (call := self._calls.get(event.stream_id)) is not None:
                call.end()
        elif isinstance(event, Request):
            self._on_request(event)
        elif isinstance(event, zttp.RstStream):
            self._budget.resets += 1
            if (call := self._calls.get(event.stream_id)) is not None:
                call.drop()
            self.record_overhead()
        elif isinstance(event, zttp.WindowUpdate | zttp.Settings):
            self._budget.is_begun = True
            self._wake()

    def eof_received(self) -> bool:
        return False  # gRPC needs both directions: a peer that ends its input has left

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._server.connections.discard(self)
        self._server.gone.set()
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
        self._process_events()

    def _suspend(self) -> None:
        if not self._is_suspended:
            self._is_suspended = True
            self.pause()

    # called by calls

    def forget(self, call: Call) -> None:
        """Remove a call that is answered or gone."""
        self._calls.pop(call.stream.stream_id, None)
        if self._is_suspended:
            self._is_suspended = False
            self.resume()
            self.loop.call_soon(self._process_events)

    def flush_soon(self) -> None:
        """Send encoded data in the next iteration of the loop."""
        if not self._is_flushing:
            self._is_flushing = True
            self.loop.call_soon(self.flush)

    def hold(self, size: int) -> bool:
        """Add *size* (may be negative) to the memory held for calls; False if it is too much."""
        self.held += size
        self._server.held += size
        if self._server.held > self.limits.server_bytes:
            self._server.relieve()
        return self.held <= self.limits.connection_bytes or self._is_closed

    @property
    def memory(self) -> int:
        """Bytes in memory: of incomplete messages, and of those that the peer has not read."""
        transport, unsent = self._transport, sum(self._unsent()) if self._parked else 0
        written = transport.get_write_buffer_size() if self.is_full and transport else 0
        return self.held + unsent + written

    def park(self, stream: zttp.Stream) -> None:
        """Keep *stream*, whose bytes wait for flow-control window. Too many bytes close the
        connection."""
        self._parked[stream.stream_id] = stream
        if sum(self._unsent()) > self.limits.connection_bytes:
            self.close_with(zttp.H2ErrorCode.ENHANCE_YOUR_CALM)

    def record_overhead(self) -> None:
        """Count an action that a normal peer rarely takes."""
        self._budget.overhead += 1
        if self._budget.is_exceeded:
            self.close_with(zttp.H2ErrorCode.ENHANCE_YOUR_CALM)

    def pause(self) -> None:
        """Stop reading until `resume` has been called as often as `pause`."""
        self._pauses += 1
        if self._pauses == 1 and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Undo one `pause`."""
        self._pauses -= 1
        if not self._pauses and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    async def progress(self) -> None:
        """Wait until the peer has read something or enlarged its window."""
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
            self._engine.close(NO_ERROR, _LAST_STREAM)
            self.flush_soon()

    def close_with(self, error: zttp.H2ErrorCode) -> None:
        """Close the connection because of the peer's behaviour."""
        if not self._is_closed:
            self._engine.close(int(error))
            self.close()

    def finish(self) -> None:
        """Close the connection gracefully: open calls end with UNAVAILABLE."""
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
        """Send encoded data."""
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
            self.close_with(zttp.H2ErrorCode.ENHANCE_YOUR_CALM)

    @property
    def idle_since(self) -> float | None:
        """The time of the last call, or of the beginning; None while a call is open."""
        return None if self._calls else self._budget.busy_at

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
                call.fail(Code.DEADLINE_EXCEEDED, "the request did not arrive in time")

    # events

    def _on_request(self, event: zttp.Request) -> None:
        self._budget.opened += 1
        stream = self._engine.stream(event.stream_id)
        fields = dict(event.headers)
        if not self._is_accepted(event, fields, stream):
            return
        call: Call
        if (unary := self._server.methods.get(event.target)) is not None:
            call = UnaryCall(self, stream, unary)
        elif (streaming := self._server.streams.get(event.target)) is not None:
            call = StreamCall(self, stream, streaming)
        else:
            self._reject(stream, Code.UNIMPLEMENTED, "this server has no such method")
            return
        self._calls[event.stream_id] = call
        if (timeout := fields.get(b"grpc-timeout")) is not None:
            self._timeouts.append((call, timeout))
        if event.end_stream:
            call.end()

    def _is_accepted(
        self, event: zttp.Request, fields: dict[bytes, bytes], stream: zttp.Stream
    ) -> bool:
        """True if the request is a gRPC call that may start; otherwise it has been answered."""
        content_type = fields.get(b"content-type", b"")
        unanswered = len(self._unsent()) if self._parked else 0
        if len(self._calls) + unanswered >= self.limits.calls:
            stream.reset(int(zttp.H2ErrorCode.REFUSED_STREAM))
            self.record_overhead()
        elif event.method != b"POST":
            self._reject_http(stream, 405)
        elif content_type not in _CONTENT_TYPES and not content_type.startswith(_CONTENT_PREFIXES):
            self._reject_http(stream, 415)
        elif fields.get(b"te") != b"trailers":
            self._reject(stream, Code.INTERNAL, "the header te: trailers is missing")
        else:
            return True
        return False

    def _reject(self, stream: zttp.Stream, code: Code, message: str) -> None:
        stream.send_response(200, HEAD + status(code, message), True)  # noqa: FBT003 (zttp's)

    def _reject_http(self, stream: zttp.Stream, http_status: int) -> None:
        stream.send_response(http_status, [(b"allow", b"POST"), (b"content-type", b"text/plain")])
        stream.send_data(b"this server takes gRPC calls: POST with application/grpc\n")
        stream.end_message()
        if stream.pending_bytes:
            self.park(stream)

    def _unsent(self) -> list[int]:
        """The bytes that wait for flow-control window, by stream; forgets streams without any."""
        self._parked = {id_: one for id_, one in self._parked.items() if one.pending_bytes}
        return [one.pending_bytes or 0 for one in self._parked.values()]

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
