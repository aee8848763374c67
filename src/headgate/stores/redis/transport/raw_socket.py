"""The one place that reaches into redis-py's private parts: what its connections write on.

Each function returns None when it does not find what it expects; then the caller goes on with
redis-py's public methods, which are slower.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection as AsyncConnection
    from redis.connection import AbstractConnection as Connection


def take_transport(connection: AsyncConnection) -> tuple[asyncio.Transport, object] | None:
    """The event loop's transport under *connection*, which forgets it.

    The second is to be kept as long as the transport is used: it closes it when it is collected.
    """
    writer = getattr(connection, "_writer", None)
    reader = getattr(connection, "_reader", None)
    if not isinstance(writer, asyncio.StreamWriter) or not isinstance(reader, asyncio.StreamReader):
        return None
    transport = writer.transport
    if not callable(getattr(transport, "set_protocol", None)):
        return None
    if reader.at_eof() or transport.is_closing():
        return None  # its end has been reported already, and would not be reported to us
    connection._reader = connection._writer = None  # noqa: SLF001
    return cast("asyncio.Transport", transport), writer


def socket_of(connection: Connection) -> socket.socket | None:
    """The connected socket under *connection*, plain or TLS."""
    found = getattr(connection, "_sock", None)
    return found if isinstance(found, socket.socket) else None
