"""Accepting connections from a socket that was bound by somebody else."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

BACKLOG: Final = 1024


async def listen(
    sock: socket.socket, make: Callable[[], asyncio.Protocol]
) -> asyncio.AbstractServer:
    """Accept connections of *sock*, TCP or unix, each with a protocol that *make* makes."""
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"sock": sock, "backlog": BACKLOG}
    if sock.family != socket.AF_UNIX:
        return await loop.create_server(make, **options)
    if sys.version_info >= (3, 13):
        options["cleanup_socket"] = False  # others may listen on it too
    return await loop.create_unix_server(make, **options)
