"""Listening, looking after the connections, and stopping."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.service.grpc.accepting import listen
from headgate.service.grpc.limits import DEFAULT, GrpcLimits

from .arriving import Arrivals
from .connection import Connection
from .service import Service

if TYPE_CHECKING:
    import socket

    from headgate.service.grpc.method import Methods, Streams
    from headgate.service.grpc.tls import TlsFiles

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
