"""The HTTP/2 gRPC server: accepts connections, watches over them, and drains."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.service.grpc.h2_server.connection import Connection
from headgate.service.grpc.method import BACKLOG, DEFAULT, GrpcLimits, listen

if TYPE_CHECKING:
    import socket
    import ssl

    from headgate.service.grpc.method import Methods, Stream, Streams, TlsFiles, Unary


class ServerState:
    """State shared by the connections of one server: methods by path, open connections."""

    def __init__(
        self,
        methods: Methods,
        streams: Streams,
        *,
        limits: GrpcLimits,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.methods: dict[bytes, Unary] = {path.encode(): one for path, one in methods.items()}
        self.streams: dict[bytes, Stream] = {path.encode(): one for path, one in streams.items()}
        self.limits = limits
        self.loop = loop
        self.connections: set[Connection] = set()
        self.handshakes: set[asyncio.Task[None]] = set()
        """TLS handshakes in progress."""
        self.is_open = True
        self.gone = asyncio.Event()
        """Set whenever a connection has closed."""

    def add(self, connection: Connection) -> bool:
        """Register *connection*; false if there are too many or the server drains."""
        if not self.is_open or len(self.connections) >= self.limits.connections:
            return False
        self.connections.add(connection)
        return True

    @property
    def is_full(self) -> bool:
        """True if connections and handshakes reach the maximum."""
        return len(self.connections) + len(self.handshakes) >= self.limits.connections

    def remove(self, connection: Connection) -> None:
        """Unregister *connection*."""
        self.connections.discard(connection)
        self.gone.set()


# Accepting TLS connections.
#
# A connection counts from the moment it is accepted, so that silent peers cannot exceed the
# maximum. (`loop.create_server` reports a connection only after its handshake.)


_PAUSE_S: Final = 0.1
"""Pause after a failed accept, mostly for lack of file descriptors."""


class TlsAcceptor:
    """Accepts peers on *sock* and makes a `Connection` after each TLS handshake."""

    def __init__(self, state: ServerState, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._state = state
        self._context = context
        sock.settimeout(0)
        sock.listen(BACKLOG)
        self._accepting = state.loop.create_task(self._accept(sock))

    def close(self) -> None:
        """Accept no more and cancel pending handshakes."""
        self._accepting.cancel()
        for handshake in self._state.handshakes:
            handshake.cancel()

    async def _accept(self, sock: socket.socket) -> None:
        state = self._state
        with sock:
            while True:
                try:
                    accepted, _ = await state.loop.sock_accept(sock)
                except OSError:
                    await asyncio.sleep(_PAUSE_S)
                    continue
                if state.is_full:
                    accepted.close()
                    continue
                handshake = state.loop.create_task(self._secure(accepted))
                state.handshakes.add(handshake)
                handshake.add_done_callback(state.handshakes.discard)

    async def _secure(self, accepted: socket.socket) -> None:
        state = self._state
        try:
            await state.loop.connect_accepted_socket(
                lambda: Connection(state),
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=state.limits.preface_s,
            )
        except OSError:  # includes SSLError and TimeoutError
            accepted.close()


LOG: Final = logging.getLogger("headgate.service")
_TICK_S: Final = 1.0
_NOTICE_S: Final = 0.1
"""Time for a peer to read the GOAWAY before its connection is closed."""


class H2Server:
    """A `GrpcServer` on the running loop, asyncio's or uvloop's."""

    def __init__(
        self,
        methods: Methods,
        streams: Streams,
        *,
        limits: GrpcLimits = DEFAULT,
        tls: TlsFiles | None = None,
    ) -> None:
        self._methods, self._streams = methods, streams
        self._limits = limits
        self._tls = None if tls is None else tls.context()
        self._state: ServerState | None = None
        self._server: asyncio.AbstractServer | TlsAcceptor | None = None
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self, sock: socket.socket) -> None:
        if self._server is not None:
            raise OptionError("this gRPC server has been started already: make another one")
        loop = asyncio.get_running_loop()
        state = ServerState(self._methods, self._streams, limits=self._limits, loop=loop)
        if self._tls is None:
            self._server = await listen(sock, lambda: Connection(state))
        else:
            self._server = TlsAcceptor(state, sock, self._tls)
        self._state = state
        self._sweeper = loop.create_task(self._sweep(state))

    async def drain(self, grace: float) -> None:
        state, server = self._state, self._server
        if state is None or server is None or not state.is_open:
            return
        state.is_open = False
        server.close()
        for connection in list(state.connections):
            connection.begin_drain()
        deadline = state.loop.time() + grace
        await asyncio.sleep(min(grace, _NOTICE_S))
        while state.connections and state.loop.time() < deadline:
            for connection in list(state.connections):
                if connection.is_idle:
                    connection.finish()
            await asyncio.sleep(min(_NOTICE_S, max(0.0, deadline - state.loop.time())))
        for connection in list(state.connections):
            connection.finish()
        await self._gone(state, _TICK_S)
        for connection in list(state.connections):
            connection.abort()
        await self._gone(state, _TICK_S)
        if self._sweeper is not None:
            self._sweeper.cancel()

    async def _gone(self, state: ServerState, within: float) -> None:
        """Wait until all connections are closed, at most *within* seconds."""
        deadline = state.loop.time() + within
        while state.connections and (left := deadline - state.loop.time()) > 0:
            state.gone.clear()
            try:
                await asyncio.wait_for(state.gone.wait(), left)
            except TimeoutError:
                return

    async def _sweep(self, state: ServerState) -> None:
        limits = self._limits
        shortest = min(limits.preface_s, limits.request_s, limits.stall_s, limits.idle_s)
        while True:
            await asyncio.sleep(min(_TICK_S, shortest / 4))
            now = state.loop.time()
            for connection in list(state.connections):
                _tick(connection, now)


def _tick(connection: Connection, now: float) -> None:
    """Check the limits of one connection; an error closes that connection only."""
    try:
        connection.tick(now)
    except Exception:
        LOG.exception("checking the limits of a gRPC connection failed; it was closed")
        connection.abort()
