"""HTTP for an ASGI app: uvicorn's protocol on our sockets, without uvicorn's signals and logs."""

from __future__ import annotations

import asyncio
import logging
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.server import ServerState

from headgate.service.http_protocol import BoundedProtocol
from headgate.service.listening import BACKLOG

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Iterable

    from headgate.service.http_protocol import Bounds

_TICK: Final = 1.0
_LOOK: Final = 0.02


class HttpServer:
    """Serves *app* within *bounds*; with TLS if there is a *context*. For one event loop."""

    def __init__(self, app: Any, *, bounds: Bounds, context: ssl.SSLContext | None = None) -> None:
        # Bad requests and full houses are told to those who ask, not to the log.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        made = {"bounds": bounds}
        self._protocol: type[BoundedProtocol] = type("Connection", (BoundedProtocol,), made)
        self._config = uvicorn.Config(
            app,
            http=self._protocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            # Not only whole seconds, whatever the annotation says: it is given to `call_later`.
            timeout_keep_alive=bounds.idle,  # type: ignore[arg-type]
        )
        self._config.load()
        self._context = context
        self._patience = None if context is None else bounds.receive
        self._state = ServerState()
        self._servers: list[asyncio.Server] = []
        self._sockets: list[socket.socket] = []
        self._ticking: asyncio.Task[None] | None = None

    async def start(self, sockets: Iterable[socket.socket]) -> None:
        """Serve on *sockets*, which listen already."""
        self._tick()
        loop = asyncio.get_running_loop()
        for sock in sockets:
            # A copy, to look after it whether anybody is still waiting there.
            self._sockets.append(sock.dup())
            server = await loop.create_server(
                self._made,
                sock=sock,
                backlog=BACKLOG,  # or it would be asyncio's, whatever the socket has
                ssl=self._context,
                ssl_handshake_timeout=self._patience,
            )
            self._servers.append(server)
        self._ticking = asyncio.create_task(self._keep_ticking(), name="headgate-http-tick")

    async def drain(self, *, linger: float, grace: float) -> bool:
        """Go on accepting for *linger* seconds, then let what is under way finish in *grace*.

        From the start every answer is the last of its connection. Whether all could finish.
        """
        self._protocol.is_draining = True
        for one in self._connections():
            one.shutdown()
        await asyncio.sleep(linger)
        await self._stop_listening()
        is_done = await self._finished(linger, grace)
        if self._ticking is not None:
            self._ticking.cancel()
        return is_done

    async def _stop_listening(self) -> None:
        """Take in who has connected already, then close."""
        for server in self._servers:
            server.close()
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            while True:
                try:
                    accepted, _ = sock.accept()
                except OSError:
                    break
                accepted.settimeout(0)
                await loop.connect_accepted_socket(
                    self._made, accepted, ssl=self._context, ssl_handshake_timeout=self._patience
                )
            sock.close()

    async def _finished(self, linger: float, grace: float) -> bool:
        """Wait for the connections: idle ones for another *linger*, busy ones for *grace*."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        patience, deadline = now + min(linger, grace), now + grace
        while (connections := self._connections()) and loop.time() < deadline:
            if loop.time() >= patience:
                for one in connections:
                    if one.is_idle:
                        one.transport.close()
            await asyncio.sleep(_LOOK)
        left = self._connections()
        for one in left:
            one.transport.abort()
        return not left

    def _made(self) -> BoundedProtocol:
        return self._protocol(config=self._config, server_state=self._state, app_state={})

    def _connections(self) -> list[BoundedProtocol]:
        return [one for one in self._state.connections if isinstance(one, BoundedProtocol)]

    async def _keep_ticking(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            self._tick()

    def _tick(self) -> None:
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode("ascii"))]
        now = asyncio.get_running_loop().time()
        for one in self._connections():
            one.sweep(now)
