"""The gRPC server: accepts connections, checks their limits every second, and drains."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from heapq import nsmallest
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import zttp

from headgate.errors import OptionError
from headgate.service.grpc.connection import Connection
from headgate.service.grpc.method import DEFAULT, GrpcLimits

if TYPE_CHECKING:
    import ssl

    from headgate.service.grpc.method import Methods, Stream, Streams, Unary

LOG: Final = logging.getLogger("headgate.service")
_BACKLOG: Final = 1024
_TICK_S: Final = 1.0
_NOTICE_S: Final = 0.1
"""Time for a peer to read the GOAWAY before its connection is closed."""
_PAUSE_S: Final = 0.1
"""Pause after a failed accept, mostly for lack of file descriptors."""


class GrpcServer:
    """Carries calls to *methods* and *streams*, from `start` to `drain`; call each once.

    Create it in a running event loop, asyncio's or uvloop's. With a *context* it serves TLS.
    """

    def __init__(
        self,
        methods: Methods,
        streams: Streams,
        *,
        limits: GrpcLimits = DEFAULT,
        context: ssl.SSLContext | None = None,
    ) -> None:
        both = sorted(methods.keys() & streams.keys())
        if both:
            raise OptionError(f"a path is either unary or streaming, not both: {', '.join(both)}")
        self.methods: dict[bytes, Unary] = {path.encode(): one for path, one in methods.items()}
        self.streams: dict[bytes, Stream] = {path.encode(): one for path, one in streams.items()}
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self.gone = asyncio.Event()
        """Set whenever a connection has closed."""
        self.is_draining = False
        self.held = 0
        """The memory that all connections hold for calls."""
        self._tls = context
        self._handshakes: set[asyncio.Task[None]] = set()
        """Accepted connections that are not among `connections` yet: TLS handshakes, mostly."""
        self._sock: socket.socket | None = None
        self._sweeping: asyncio.Task[None] | None = None

    async def start(self, sock: socket.socket) -> None:
        """Listen on *sock*, a bound TCP or unix socket that the server owns from now on."""
        if self._sock is not None:
            raise OptionError("this gRPC server has been started already: make another one")
        sock.settimeout(0)
        sock.listen(_BACKLOG)
        self._sock = sock
        self._sweeping = self.loop.create_task(self._sweep())
        self.loop.add_reader(sock, self._accept, sock)

    async def drain(self, grace: float) -> None:
        """Accept no more connections and calls, let open calls finish, and stop.

        Connections that the kernel has already queued are served. The input of streaming methods
        ends. Calls that are still open after *grace* seconds end with UNAVAILABLE.
        """
        if self._sock is None or self.is_draining:
            return
        self.is_draining = True
        with self._sock as sock:
            self.loop.remove_reader(sock)
            self._accept(sock)
        for connection in list(self.connections):
            connection.begin_drain()
        deadline = self.loop.time() + grace
        await asyncio.sleep(min(grace, _NOTICE_S))
        while (self.connections or self._handshakes) and self.loop.time() < deadline:
            for connection in list(self.connections):
                if connection.is_idle:
                    connection.finish()
            await asyncio.sleep(min(_NOTICE_S, max(0.0, deadline - self.loop.time())))
        await self._close_all()
        if self._sweeping is not None:
            self._sweeping.cancel()

    async def _close_all(self) -> None:
        for handshake in self._handshakes:
            handshake.cancel()
        for close in (Connection.finish, Connection.abort):
            for connection in list(self.connections):
                close(connection)
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    while self.connections:
                        self.gone.clear()
                        await self.gone.wait()

    def _accept(self, sock: socket.socket) -> None:
        """Accept the connections that the kernel has queued."""
        try:
            for _ in range(_BACKLOG):
                self._serve(sock.accept()[0])
        except BlockingIOError:
            pass
        except OSError:
            if not self.is_draining:
                self.loop.remove_reader(sock)
                self.loop.call_later(_PAUSE_S, self._resume, sock)

    def _resume(self, sock: socket.socket) -> None:
        if not self.is_draining:
            self.loop.add_reader(sock, self._accept, sock)

    def relieve(self) -> None:
        """Close the connection that uses the most memory."""
        largest = max(self.connections, key=lambda one: one.memory)
        self.connections.discard(largest)  # which happens later otherwise
        largest.close_with(zttp.H2ErrorCode.ENHANCE_YOUR_CALM)
        if largest.is_full:
            largest.abort()  # it would not read the reason

    @property
    def _is_full(self) -> bool:
        return len(self.connections) + len(self._handshakes) >= self.limits.connections

    def _make_room(self) -> bool:
        """Close connections without a call: a hundredth, those that have been so for longest.

        False if all have calls.
        """
        idle = [(since, one) for one in self.connections if (since := one.idle_since) is not None]
        for _, one in nsmallest(max(1, self.limits.connections // 100), idle, key=itemgetter(0)):
            self.connections.discard(one)  # which happens later otherwise
            one.abort()
        return bool(idle)

    def _serve(self, accepted: socket.socket) -> None:
        """Serve *accepted*, unless there are too many connections and none gives way.

        A connection counts before its TLS handshake, so that silent peers cannot exceed the
        maximum. (`loop.create_server` reports a connection only after it.)
        """
        while self._is_full and self._make_room():
            pass
        if self._is_full:
            accepted.close()
            return
        handshake = self.loop.create_task(self._connect(accepted))
        self._handshakes.add(handshake)
        handshake.add_done_callback(self._handshakes.discard)

    async def _connect(self, accepted: socket.socket) -> None:
        try:
            accepted.settimeout(0)
            if accepted.family != socket.AF_UNIX:
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self.loop.connect_accepted_socket(
                lambda: Connection(self),
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else self.limits.preface_s,
            )
        except OSError:  # includes SSLError and TimeoutError
            accepted.close()

    async def _sweep(self) -> None:
        """Check the limits of all connections; an error closes that connection only."""
        limits = self.limits
        shortest = min(limits.preface_s, limits.request_s, limits.stall_s, limits.idle_s)
        while True:
            await asyncio.sleep(min(_TICK_S, shortest / 4))
            for connection in list(self.connections):
                try:
                    connection.tick(self.loop.time())
                except Exception:
                    LOG.exception("checking the limits of a gRPC connection failed; it was closed")
                    connection.abort()
            while sum(one.memory for one in self.connections) > limits.server_bytes:
                self.relieve()
