"""The workers of the decision service behind Envoy, which calls each on a socket of its own."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.config import Address
from headgate.runtime.supervisor import dying_with_parent
from headgate.service.supervisor import WorkerProgram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.config.service import Settings
    from headgate.gateway.processes.run_directory import RunDirectory

SOCKET: Final = Address(path="/grpc.sock")
"""The socket for Envoy, the last gRPC address of the service; its directory is known later."""

_HANG_TIMEOUT: Final = 5.0
_TIMEOUT_S: Final = 2.0
"""Seconds that a worker may take to respond."""

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The start of an HTTP/2 connection: the server responds with its settings."""


def behind_envoy(settings: Settings, directory: RunDirectory) -> Settings:
    """*settings* with the sockets for Envoy in *directory*."""
    *others, socket = settings.grpc
    placed = Address(path=str(directory.place(Path(socket.path).name)))
    return replace(settings, grpc=(*others, placed))


def envoy_sockets(settings: Settings) -> tuple[str, ...]:
    """The sockets for Envoy, one for each worker."""
    return tuple(settings.grpc[-1].nth(number).path for number in range(settings.workers))


class EnvoyWorker(WorkerProgram):
    """A worker behind Envoy. One that does not respond on its socket hangs."""

    hang_timeout = _HANG_TIMEOUT

    def call(self) -> Sequence[str]:
        return dying_with_parent(super().call())

    async def is_healthy(self) -> bool:
        socket = envoy_sockets(self.assignment.settings)[self.assignment.number]
        return await super().is_healthy() and await _is_up(socket)


async def _is_up(path: str) -> bool:
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await _handshake(path)
    except OSError:  # includes TimeoutError
        return False


async def _handshake(path: str) -> bool:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(_PREFACE)
        return bool(await reader.read(1))
    finally:
        writer.close()
