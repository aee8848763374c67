"""Listening, looking after the connections, and stopping."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.service.grpc.h2_server.abuse_limits import Service
from headgate.service.grpc.h2_server.connection import Connection
from headgate.service.grpc.method import BACKLOG, DEFAULT, GrpcLimits, listen

if TYPE_CHECKING:
    import socket
    import ssl

    from headgate.service.grpc.method import Methods, Streams, TlsFiles


# Accepting connections that have to agree on TLS first.
#
# One counts from the moment it is accepted: who opens many and says nothing must not get more of
# them than who talks. (`loop.create_server` tells of a connection only when the handshake is over.)


_PAUSE_S: Final = 0.1
"""How long to wait if none can be accepted: for want of file descriptors, above all."""


class Arrivals:
    """Makes a `Connection` of whoever comes by *sock* and proves itself as *context* says."""

    def __init__(self, service: Service, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._service = service
        self._context = context
        sock.settimeout(0)
        sock.listen(BACKLOG)
        self._accepting = service.loop.create_task(self._accept(sock))

    def close(self) -> None:
        """Accept no more, and give up those that are not through yet."""
        self._accepting.cancel()
        for arrival in self._service.arrivals:
            arrival.cancel()

    async def _accept(self, sock: socket.socket) -> None:
        service = self._service
        with sock:
            while True:
                try:
                    accepted, _ = await service.loop.sock_accept(sock)
                except OSError:
                    await asyncio.sleep(_PAUSE_S)
                    continue
                if service.is_full:
                    accepted.close()
                    continue
                arrival = service.loop.create_task(self._secure(accepted))
                service.arrivals.add(arrival)
                arrival.add_done_callback(service.arrivals.discard)

    async def _secure(self, accepted: socket.socket) -> None:
        service = self._service
        try:
            await service.loop.connect_accepted_socket(
                lambda: Connection(service),
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=service.limits.preface_s,
            )
        except OSError:  # SSLError is one, and so is a time that is over
            accepted.close()


LOG: Final = logging.getLogger("headgate.service")
_MOST_S: Final = 1.0
_NOTICE_S: Final = 0.1
"""How long a peer gets to read that it shall make no more calls."""


class LeanServer:
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
        self._service: Service | None = None
        self._server: asyncio.AbstractServer | Arrivals | None = None
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self, sock: socket.socket) -> None:
        if self._server is not None:
            raise OptionError("this gRPC server has been started already: make another one")
        loop = asyncio.get_running_loop()
        service = Service(self._methods, self._streams, limits=self._limits, loop=loop)
        if self._tls is None:
            self._server = await listen(sock, lambda: Connection(service))
        else:
            self._server = Arrivals(service, sock, self._tls)
        self._service = service
        self._sweeper = loop.create_task(self._sweep(service))

    async def drain(self, grace: float) -> None:
        service, server = self._service, self._server
        if service is None or server is None or not service.is_open:
            return
        service.is_open = False
        server.close()
        for connection in list(service.connections):
            connection.wind_up()
        deadline = service.loop.time() + grace
        await asyncio.sleep(min(grace, _NOTICE_S))
        while service.connections and service.loop.time() < deadline:
            for connection in list(service.connections):
                if connection.is_at_rest:
                    connection.finish()
            await asyncio.sleep(min(_NOTICE_S, max(0.0, deadline - service.loop.time())))
        for connection in list(service.connections):
            connection.finish()
        await self._gone(service, _MOST_S)
        for connection in list(service.connections):
            connection.abort()
        await self._gone(service, _MOST_S)
        if self._sweeper is not None:
            self._sweeper.cancel()

    async def _gone(self, service: Service, within: float) -> None:
        """Return when all connections are gone, or *within* so many seconds."""
        deadline = service.loop.time() + within
        while service.connections and (left := deadline - service.loop.time()) > 0:
            service.gone.clear()
            try:
                await asyncio.wait_for(service.gone.wait(), left)
            except TimeoutError:
                return

    async def _sweep(self, service: Service) -> None:
        limits = self._limits
        shortest = min(limits.preface_s, limits.request_s, limits.stall_s, limits.idle_s)
        while True:
            await asyncio.sleep(min(_MOST_S, shortest / 4))
            now = service.loop.time()
            for connection in list(service.connections):
                _tick(connection, now)


def _tick(connection: Connection, now: float) -> None:
    """What goes wrong with one connection must not be the end of looking after the others."""
    try:
        connection.tick(now)
    except Exception:
        LOG.exception("a gRPC connection could not be looked after: it was closed")
        connection.abort()
