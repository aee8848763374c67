"""Bytes from a socket that listens here to one that another server has opened, and back.

grpcio takes no socket: it opens its own. Where ours is shared with other processes, which hold it
open, it is listened on here, and each connection is handed on to a private unix socket of grpcio's.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from headgate.service.grpc.accepting import listen

if TYPE_CHECKING:
    import socket
    from pathlib import Path

_CLOSING_S: Final = 1.0


class Relay:
    """Hands on at most *connections* at the same time; more are closed as soon as they come."""

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
        """Take no more connections; those there are go on."""
        if self._server is not None:
            self._server.close()

    async def aclose(self) -> None:
        """Close all connections too, which have had their last bytes put in by now."""
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
        """Hand on what comes by *leg*, unless there are too many."""
        if len(self._legs) >= self._most:
            leg.abort()
            return
        self._legs.add(leg)
        task = asyncio.get_running_loop().create_task(self._connect(leg))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def dismiss(self, leg: _Leg) -> None:
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
    """One end of a relayed connection; what it reads, the other writes."""

    def __init__(self, relay: Relay | None) -> None:
        self._relay = relay
        self.transport: asyncio.Transport | None = None
        self.other: _Leg | None = None
        self._early: list[bytes] = []
        self._is_gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if self._relay is not None:
            self.transport.pause_reading()  # until there is somebody to hand it on to
            self._relay.accept(self)

    def join(self, other: _Leg) -> None:
        """From now on *other* is the other end."""
        if self._is_gone:
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
        elif self.transport is not None and not self._is_gone:
            # Before Python 3.11.4 a transport that is paused when it is made reads all the same.
            self._early.append(data)
            self.transport.resume_reading()
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_gone = True
        if self._relay is not None:
            self._relay.dismiss(self)
        if self.other is not None:
            self.other.close()
            self.other = None

    def pause_writing(self) -> None:
        self._reading("pause_reading")

    def resume_writing(self) -> None:
        self._reading("resume_reading")

    def _reading(self, what: str) -> None:
        """Do *what* to the other end: it is not read while we cannot write."""
        other: Any = None if self.other is None else self.other.transport
        if other is not None and not other.is_closing():
            getattr(other, what)()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()
