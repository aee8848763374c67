"""A connection: frames of HTTP/2 to calls, and bounds to what its peer may ask for.

What zttp 0.0.35 bounds by itself, closing the connection with a GOAWAY: the size of frames and
of headers, CONTINUATION frames, streams at the same time (128), resets (256) and streams (4096)
in the life of a connection, flow-control windows, malformed anything. The last two would cut off
a busy or unlucky caller, so a connection asks its peer to open another one in good time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

import zttp
from zttp import CONNECTION_CLOSED, NEED_DATA, Data, EndOfMessage, Request

from headgate.service.grpc.h2_server.abuse_limits import LINGER_S, Patience
from headgate.service.grpc.h2_server.calls import Call, UnaryCall
from headgate.service.grpc.h2_server.streams import StreamCall
from headgate.service.grpc.method import CallError, Code
from headgate.service.grpc.wire import only_message, timeout_s

if TYPE_CHECKING:
    from headgate.service.grpc.h2_server.abuse_limits import Service


# What a server says first.


_FRAME_HEADER: Final = 9
_SETTING: Final = 6


def with_calls(settings: bytes, calls: int) -> bytes:
    """Our SETTINGS frame, with *calls* for MAX_CONCURRENT_STREAMS unless zttp allows fewer."""
    told = bytearray(settings)
    for at in range(_FRAME_HEADER, len(told), _SETTING):
        if int.from_bytes(told[at : at + 2], "big") == zttp.H2Settings.MAX_CONCURRENT_STREAMS:
            value = min(calls, int.from_bytes(told[at + 2 : at + _SETTING], "big"))
            told[at + 2 : at + _SETTING] = value.to_bytes(4, "big")
    return bytes(told)


CALM: Final = int(zttp.H2ErrorCode.ENHANCE_YOUR_CALM)
REFUSED: Final = int(zttp.H2ErrorCode.REFUSED_STREAM)
NO_ERROR: Final = 0
LAST_STREAM: Final = 2**31 - 1
_UNREAD: Final = 1 << 20
"""Bytes in the transport's buffer above which no more is read."""
_OWED: Final = 1 << 16
"""Bytes of replies that are gathered before they are sent."""
_CONTENT_TYPES: Final = (b"application/grpc", b"application/grpc+proto")
_ALSO: Final = (b"application/grpc+", b"application/grpc;")


class Connection(asyncio.Protocol):
    """One peer. Everything happens in the loop's thread; `tick` is called about once a second."""

    def __init__(self, service: Service) -> None:
        self.loop = service.loop
        self.limits = service.limits
        self._service = service
        self._engine = zttp.Connection(zttp.SERVER, zttp.HTTP2)
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, Call] = {}
        self._ahead: list[zttp.Event] = []
        """What has been looked at, and is yet to be taken."""
        self._fresh: list[tuple[Call, bytes]] = []
        self._parked: dict[int, zttp.Stream] = {}
        self._waiters: list[asyncio.Future[None]] = []
        self._held = 0
        self._pauses = 0
        self._patience = Patience(self.limits, now=self.loop.time())
        self._is_flushing = False
        self._is_closed = False
        self._is_held_back = False
        self.is_full = False
        self.owed = 0
        self.working = 0

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because uvloop's transport is no subclass of asyncio's.
        self._transport = transport = cast("asyncio.Transport", transport)
        secured = transport.get_extra_info("ssl_object")
        if (
            secured is not None and secured.selected_alpn_protocol() != "h2"
        ) or not self._service.admit(self):
            transport.abort()
            return
        transport.set_write_buffer_limits(high=_UNREAD)
        self._engine.initiate_connection()
        transport.write(with_calls(self._engine.data_to_send(), self.limits.calls))

    def data_received(self, data: bytes) -> None:
        if self._is_closed:
            return
        self._patience.quiet += len(data)
        self._patience.moved += len(data)
        try:
            self._engine.receive_data(data)
            self._go_on()
        except zttp.RemoteProtocolError:
            self.close()  # zttp has put a GOAWAY with the reason into what is to be sent

    def _go_on(self) -> None:
        """Take what has come, as long as the peer reads what it is answered.

        A gateway learns how many calls it may make only when it has made its first ones, which may
        be many more. So while the methods of as many are at work, the others wait their turn.
        """
        engine, patience = self._engine, self._patience
        while not self._is_closed and not self.is_full:
            if self.working and len(self._calls) >= self.limits.calls:
                self._hold_back()
                break
            event = self._ahead.pop(0) if self._ahead else engine.next_event()
            if event is NEED_DATA or event is CONNECTION_CLOSED:
                break
            self._take(event)
            if self.owed > _OWED:
                self.flush()  # which may tell us that the peer does not read
        if patience.is_tried:
            self.cut()
        elif patience.is_due:
            self.leave()
        if self._fresh:
            self._set_deadlines()
        self.flush()

    def _take(self, event: zttp.Event) -> None:
        if isinstance(event, Data):
            self._patience.quiet = 0
            if (call := self._calls.get(event.stream_id)) is not None:
                call.feed(event.data)
        elif isinstance(event, EndOfMessage):
            if (call := self._calls.get(event.stream_id)) is not None:
                call.end()
        elif isinstance(event, Request):
            self._patience.quiet = 0
            self._on_request(event)
        else:
            self._on_control(event)

    def eof_received(self) -> bool:
        return False  # a peer that will send no more will not read either: gRPC needs both ways

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._service.dismiss(self)
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
        self._take_up()

    def _take_up(self) -> None:
        """Go on where we left off."""
        try:
            self._go_on()
        except zttp.RemoteProtocolError:
            self.close()

    def _hold_back(self) -> None:
        if not self._is_held_back:
            self._is_held_back = True
            self.pause()

    # what calls need of their connection

    def forget(self, call: Call) -> None:
        self._calls.pop(call.stream.stream_id, None)
        if self._is_held_back:
            self._is_held_back = False
            self.resume()
            self.loop.call_soon(self._take_up)

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
            self.cut()

    def grumble(self) -> None:
        self._patience.noise += 1
        if self._patience.is_tried:
            self.cut()

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

    # what the server does

    def wind_up(self) -> None:
        """Ask the peer for no more calls, and tell streams that no more will come."""
        self.leave()
        for call in list(self._calls.values()):
            call.wind_up()

    def leave(self) -> None:
        """Ask the peer to make its next calls elsewhere. Those that cross this are still served."""
        if self._patience.leaving_since is None and not self._is_closed:
            self._patience.leaving_since = self.loop.time()
            self._engine.close(NO_ERROR, LAST_STREAM)
            self.flush_soon()

    def cut(self) -> None:
        """Close it because of what its peer does."""
        if not self._is_closed:
            self._engine.close(CALM)
            self.close()

    def finish(self) -> None:
        """Close it in good order: what is open is answered UNAVAILABLE."""
        if not self._is_closed:
            for call in list(self._calls.values()):
                call.fail(Code.UNAVAILABLE, "the server is stopping")
            self._engine.close(NO_ERROR)
            self.close()

    def close(self) -> None:
        """Send what there is to send, and no more; calls are dropped."""
        transport = self._transport
        if transport is None or self._is_closed:
            return
        self.flush()
        self._is_closed = True
        for call in list(self._calls.values()):
            call.drop()
        try:
            if transport.can_write_eof() and not self._pauses:
                transport.write_eof()  # to close with bytes unread would take the last words back
            else:
                transport.close()
        except OSError:
            transport.abort()  # the peer has gone, and asyncio has yet to notice
        self.loop.call_later(LINGER_S, transport.abort)  # if the peer does not close it

    def abort(self) -> None:
        """Close it at once, whatever is to be sent."""
        if self._transport is not None:
            self._transport.abort()

    def flush(self) -> None:
        self._is_flushing = False
        self.owed = 0
        if not self._is_closed and self._transport is not None:
            out = self._engine.data_to_send()
            if out:
                self._patience.moved += len(out)
                self._transport.write(out)

    def tick(self, now: float) -> None:
        """Look for what takes too long. *now* is the loop's time."""
        unread = self.is_full or self._engine.has_pending_send()
        verdict = self._patience.verdict(now, calls=len(self._calls), unread=unread)
        if verdict is None:
            self._hurry(now)
        elif verdict == "over":
            self.finish()
        else:
            self.cut()

    @property
    def is_at_rest(self) -> bool:
        """Whether no call is under way, nor a reply unsent."""
        return not self._calls and not self.is_full and not self._engine.has_pending_send()

    def _hurry(self, now: float) -> None:
        for call in list(self._calls.values()):
            if call.is_whole or isinstance(call, StreamCall):
                continue
            if call.since is None:
                call.since = now
            elif now - call.since > self.limits.request_s:
                call.fail(Code.DEADLINE_EXCEEDED, "the request did not come in time")

    # events

    def _on_request(self, event: zttp.Request) -> None:
        self._patience.opened += 1
        stream = self._engine.stream(event.stream_id)
        fields = dict(event.headers)
        if (
            len(self._calls) >= self.limits.calls
            or fields.get(b"content-type") not in _CONTENT_TYPES
            or fields.get(b"te") != b"trailers"
            or event.method != b"POST"
        ) and self._is_refused(event, fields, stream):
            return
        call: Call
        if (unary := self._service.methods.get(event.target)) is not None:
            call = UnaryCall(self, stream, unary)
            if (message := self._rest_of(event)) is not None:
                call.take(message)
                if call.task is None:
                    return
        elif (many := self._service.streams.get(event.target)) is not None:
            call = StreamCall(self, stream, many)
        else:
            call = Call(self, stream)
            call.is_whole = True
            call.fail(Code.UNIMPLEMENTED, "this server has no such method")
            return
        self._calls[event.stream_id] = call
        if (timeout := fields.get(b"grpc-timeout")) is not None:
            self._fresh.append((call, timeout))
        if event.end_stream:
            call.end()

    def _rest_of(self, request: zttp.Request) -> bytes | None:
        """The message of a *request*, if all of that has come, as it nearly always has."""
        if request.end_stream:
            return None
        data = self._engine.next_event()
        if not isinstance(data, Data) or data.stream_id != request.stream_id:
            self._look_again_at(data)
            return None
        message = only_message(data.data, self.limits.message_bytes)
        end = self._engine.next_event()
        is_over = isinstance(end, EndOfMessage) and end.stream_id == request.stream_id
        if message is None or not is_over:
            self._look_again_at(data, end)
            return None
        return message

    def _look_again_at(self, *events: zttp.Event) -> None:
        self._ahead = [event for event in events if event is not NEED_DATA]

    def _is_refused(
        self, event: zttp.Request, fields: dict[bytes, bytes], stream: zttp.Stream
    ) -> bool:
        """Whether it is no call that we take; then it has been answered."""
        content_type = fields.get(b"content-type", b"")
        if len(self._calls) >= self.limits.calls:
            stream.reset(REFUSED)
            self.grumble()
        elif event.method != b"POST":
            stream.send_response(405, [(b"allow", b"POST")], True)  # noqa: FBT003 (zttp's)
        elif content_type not in _CONTENT_TYPES and not content_type.startswith(_ALSO):
            stream.send_response(415, None, True)  # noqa: FBT003
        elif fields.get(b"te") != b"trailers":
            call = Call(self, stream)
            call.is_whole = True
            call.fail(Code.INTERNAL, "the header te: trailers is missing")
        else:
            return False
        return True

    def _on_control(self, event: zttp.Event) -> None:
        if isinstance(event, zttp.RstStream):
            self._patience.resets += 1
            if (call := self._calls.get(event.stream_id)) is not None:
                call.drop()
        elif isinstance(event, zttp.WindowUpdate):
            self._wake()
        elif isinstance(event, zttp.Settings):
            self._patience.is_begun = True
            self._wake()
        self.grumble()

    def _set_deadlines(self) -> None:
        """For the calls that have not been answered at once: nearly all have."""
        fresh, self._fresh = self._fresh, []
        for call, value in fresh:
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
