"""The gRPC server of the `grpcio` package: slower than `h2_server`, widely used."""

from __future__ import annotations

import asyncio
import logging
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import grpc
from grpc import aio

from headgate.errors import OptionError
from headgate.service.grpc.h2_server.streams import Inbox
from headgate.service.grpc.method import DEFAULT, CallError, Code, GrpcLimits, listen
from headgate.service.grpc.wire import FAILED, MAX_STATUS_CHARS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from headgate.service.grpc.method import Methods, Stream, Streams, TlsFiles, Unary


# A relay from our listening socket to a private unix socket of grpcio.
#
# grpcio cannot take over a socket: it opens its own. If other processes hold our socket open too,
# the relay listens on it and forwards each connection to grpcio.


_CLOSING_S: Final = 1.0


class Relay:
    """Forwards at most *connections* connections at a time and closes the others on handshake."""

    def __init__(self, target: Path, *, connections: int) -> None:
        self._target = str(target)
        self._most = connections
        self._legs: set[_Leg] = set()
        self._empty = asyncio.Event()
        self._server: asyncio.AbstractServer | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, sock: socket.socket) -> None:
        """Listen on *sock*."""
        self._server = await listen(sock, lambda: _Leg(self))

    def close(self) -> None:
        """Accept no more connections; open ones continue."""
        if self._server is not None:
            self._server.close()

    async def aclose(self) -> None:
        """Close all connections as well, once their last bytes are written."""
        self.close()
        for leg in list(self._legs):
            leg.close()
        if self._legs:
            self._empty.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), _CLOSING_S)
        for leg in list(self._legs):
            leg.abort()

    def accept(self, leg: _Leg) -> None:
        """Forward the connection *leg*, unless there are too many."""
        if len(self._legs) >= self._most:
            leg.abort()
            return
        self._legs.add(leg)
        task = asyncio.get_running_loop().create_task(self._connect(leg))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def remove(self, leg: _Leg) -> None:
        self._legs.discard(leg)
        if not self._legs:
            self._empty.set()

    async def _connect(self, leg: _Leg) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, other = await loop.create_unix_connection(lambda: _Leg(None), self._target)
        except OSError:
            leg.abort()
        else:
            leg.join(other)


class _Leg(asyncio.Protocol):
    """One end of a relayed connection; the other end writes what this one reads."""

    def __init__(self, relay: Relay | None) -> None:
        self._relay = relay
        self.transport: asyncio.Transport | None = None
        self.other: _Leg | None = None
        self._early: list[bytes] = []
        self._is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if self._relay is not None:
            self.transport.pause_reading()  # until the other end is connected
            self._relay.accept(self)

    def join(self, other: _Leg) -> None:
        """Make *other* the other end."""
        if self._is_closed:
            other.close()
            return
        self.other, other.other = other, self
        for data in self._early:
            self.data_received(data)
        self._early.clear()
        if self.transport is not None:
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)
        elif self.transport is not None and not self._is_closed:
            # Before Python 3.11.4 a transport that is paused in connection_made still reads.
            self._early.append(data)
            self.transport.resume_reading()
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        if self._relay is not None:
            self._relay.remove(self)
        if self.other is not None:
            self.other.close()
            self.other = None

    def pause_writing(self) -> None:
        self._reading("pause_reading")

    def resume_writing(self) -> None:
        self._reading("resume_reading")

    def _reading(self, what: str) -> None:
        """Call the method *what* of the other end's transport: pause or resume its reading."""
        other: Any = None if self.other is None else self.other.transport
        if other is not None and not other.is_closing():
            getattr(other, what)()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


LOG: Final = logging.getLogger("headgate.service")
_STATUSES: Final = {one.value[0]: one for one in grpc.StatusCode}
_PING_S: Final = 10
_MIN_CALLS: Final = 1024
"""The lowest stream cap. Below it grpcio rejects calls of its own clients, which count
differently."""


class GrpcioServer:
    """A `GrpcServer` on `grpc.aio`.

    grpcio opens its sockets itself. A socket that is only bound is closed and its address opened
    again (another process may hold it only with SO_REUSEPORT). For a socket that listens already,
    and that other processes may hold, connections are relayed to grpcio.
    """

    def __init__(
        self,
        methods: Methods,
        streams: Streams,
        *,
        limits: GrpcLimits = DEFAULT,
        tls: TlsFiles | None = None,
    ) -> None:
        self._handlers = _Handlers(methods, streams)
        self._limits = limits
        self._credentials = None if tls is None else _credentials(tls)
        self._server: aio.Server | None = None
        self._relay: Relay | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    async def start(self, sock: socket.socket) -> None:
        if self._server is not None:
            raise OptionError("this gRPC server has been started already: make another one")
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            await self._start_behind(sock)
        else:
            address, is_shared = _address(sock), _is_shared(sock)
            sock.close()
            self._server = await self._listening(address, is_shared=is_shared)

    async def _start_behind(self, sock: socket.socket) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="headgate-grpc-")
        private = Path(self._directory.name) / "socket"
        self._server = await self._listening(f"unix:{private}", is_shared=False)
        self._relay = Relay(private, connections=self._limits.connections)
        await self._relay.start(sock)

    async def _listening(self, address: str, *, is_shared: bool) -> aio.Server:
        server = aio.server(handlers=(self._handlers,), options=self._options(is_shared=is_shared))
        try:
            if self._credentials is None:
                server.add_insecure_port(address)
            else:
                server.add_secure_port(address, self._credentials)
        except RuntimeError as error:
            raise OptionError(
                f"grpcio cannot open {address}, which another process holds: set SO_REUSEPORT"
                " on every socket of that address, or pass a socket that listens already"
            ) from error
        await server.start()
        return server

    async def drain(self, grace: float) -> None:
        if self._server is None:
            return
        if self._relay is not None:
            self._relay.close()
        self._handlers.begin_drain()
        await self._server.stop(grace)
        if self._relay is not None:
            await self._relay.aclose()
        if self._directory is not None:
            self._directory.cleanup()

    def _options(self, *, is_shared: bool) -> list[tuple[str, Any]]:
        limits = self._limits
        return [
            ("grpc.so_reuseport", int(is_shared)),
            ("grpc.max_receive_message_length", limits.message_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", max(limits.calls, _MIN_CALLS)),
            ("grpc.max_connection_idle_ms", int(limits.idle_s * 1000)),
            ("grpc.server_handshake_timeout_ms", max(1, int(limits.preface_s * 1000))),
            ("grpc.keepalive_time_ms", int(limits.stall_s * 1000)),
            ("grpc.keepalive_timeout_ms", int(limits.stall_s * 1000)),
            ("grpc.http2.min_ping_interval_without_data_ms", _PING_S * 1000),
            ("grpc.http2.max_ping_strikes", 10),
        ]


class _Handlers(grpc.GenericRpcHandler):
    """Finds the method for a path without generated code."""

    def __init__(self, methods: Methods, streams: Streams) -> None:
        self._inboxes: set[Inbox] = set()
        self._found: dict[str, Any] = {
            path: grpc.unary_unary_rpc_method_handler(_unary(method))
            for path, method in methods.items()
        } | {
            path: grpc.stream_stream_rpc_method_handler(self._stream(stream))
            for path, stream in streams.items()
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self._found.get(handler_call_details.method)

    def begin_drain(self) -> None:
        for inbox in self._inboxes:
            inbox.close()

    def _stream(self, stream: Stream) -> Any:
        async def serve(
            requests: AsyncIterator[bytes], context: aio.ServicerContext[bytes, bytes]
        ) -> AsyncIterator[bytes]:
            room = asyncio.Event()
            room.set()
            inbox = Inbox(on_high=room.clear, on_low=room.set)
            self._inboxes.add(inbox)
            pump = asyncio.create_task(_pump(requests, inbox, room))
            try:
                async for reply in _closing(stream, inbox):
                    yield reply
            except CallError as error:
                await _abort(context, error)
            except Exception:  # noqa: BLE001 (a failing method must not leave its caller without an answer)
                await _abort(context, _logged())
            finally:
                self._inboxes.discard(inbox)
                pump.cancel()
                await asyncio.gather(pump, return_exceptions=True)

        return serve


def _unary(method: Unary) -> Any:
    async def serve(request: bytes, context: aio.ServicerContext[bytes, bytes]) -> bytes:
        try:
            reply = method(request)
            return reply if isinstance(reply, bytes) else await reply
        except CallError as error:
            await _abort(context, error)
        except Exception:  # noqa: BLE001 (as above)
            await _abort(context, _logged())
        return b""

    return serve


async def _closing(stream: Stream, inbox: Inbox) -> AsyncIterator[bytes]:
    replies = stream(inbox)
    try:
        async for reply in replies:
            yield reply
    finally:
        if (close := getattr(replies, "aclose", None)) is not None:
            await close()


async def _pump(requests: AsyncIterator[bytes], inbox: Inbox, room: asyncio.Event) -> None:
    try:
        async for request in requests:
            inbox.put(request)
            await room.wait()
    finally:
        inbox.close()


async def _abort(context: aio.ServicerContext[bytes, bytes], error: CallError) -> None:
    await context.abort(_STATUSES[int(error.code)], str(error)[:MAX_STATUS_CHARS])


def _logged() -> CallError:
    LOG.exception("a gRPC method failed; its caller received INTERNAL")
    return CallError(Code.INTERNAL, FAILED)


def _credentials(tls: TlsFiles) -> grpc.ServerCredentials:
    certificate, key, ca = tls.read()
    return grpc.ssl_server_credentials(
        [(key, certificate)], root_certificates=ca, require_client_auth=ca is not None
    )


def _address(sock: socket.socket) -> str:
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        return f"unix:{name}"
    host, port = name[:2]
    return f"[{host}]:{port}" if sock.family == socket.AF_INET6 else f"{host}:{port}"


def _is_shared(sock: socket.socket) -> bool:
    return sock.family != socket.AF_UNIX and bool(
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)
    )
