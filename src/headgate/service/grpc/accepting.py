"""Accepting connections from a socket that was bound by somebody else."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

_BACKLOG: Final = 1024


async def listen(
    sock: socket.socket,
    make: Callable[[], asyncio.Protocol],
    *,
    tls: ssl.SSLContext | None = None,
    handshake_s: float | None = None,
) -> asyncio.AbstractServer:
    """Accept connections of *sock*, TCP or unix, each with a protocol that *make* makes."""
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"sock": sock, "backlog": _BACKLOG, "ssl": tls}
    if tls is not None:
        options["ssl_handshake_timeout"] = handshake_s
    if sock.family != socket.AF_UNIX:
        return await loop.create_server(make, **options)
    if sys.version_info >= (3, 13):
        options["cleanup_socket"] = False  # others may listen on it too
    return await loop.create_unix_server(make, **options)
