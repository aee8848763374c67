"""Accepting connections that have to agree on TLS first.

One counts from the moment it is accepted: who opens many and says nothing must not get more of
them than who talks. (`loop.create_server` tells of a connection only when the handshake is over.)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headgate.service.grpc.accepting import BACKLOG

from .connection import Connection

if TYPE_CHECKING:
    import socket
    import ssl

    from .service import Service

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
