"""A client that sends bytes as they are, and reads no more of a response than it must."""

from __future__ import annotations

import re
import socket
from typing import Final, Self

_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CLOSING: Final = re.compile(rb"\r\nconnection:[ \t]*close", re.IGNORECASE)
PATIENCE: Final = 60.0
"""Seconds until a server has to answer a request that is whole."""

NONE: Final = 0
"""The status of a request that got no response."""


class Connections:
    """Connections to one server, one for each address of a client, kept while the server does."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._kept: dict[str, socket.socket] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for kept in self._kept.values():
            kept.close()

    def status(self, request: bytes, source: str) -> int:
        """The status of the response to *request*, sent from the address *source*."""
        kept = self._kept.pop(source, None)
        if kept is not None:
            status = self._ask(kept, request, source)
            if status != NONE:
                return status
        return self._ask(self._connect(source), request, source)

    def burst(self, request: bytes, source: str, *, within: float) -> None:
        """Send *request*, which may be no request or several, and wait until the server closes the
        connection or says nothing for so long."""
        with self._connect(source) as connection:
            connection.settimeout(within)
            try:
                connection.sendall(request)
                while connection.recv(65_536):
                    """Whatever it says."""
            except (TimeoutError, ConnectionError):
                return

    def _connect(self, source: str) -> socket.socket:
        where = ("127.0.0.1", self._port)
        connection = socket.create_connection(where, PATIENCE, (source, 0))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _ask(self, connection: socket.socket, request: bytes, source: str) -> int:
        try:
            connection.sendall(request)
        except ConnectionError:
            """It may have answered before it closed."""
        # gunicorn sends a response in two parts, the second when the first is acknowledged.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        has_body = not request.startswith(b"HEAD ")
        status, is_kept = _response(connection, has_body=has_body)
        if is_kept:
            self._kept[source] = connection
        else:
            connection.close()
        return status


def _response(connection: socket.socket, *, has_body: bool) -> tuple[int, bool]:
    """The status of the response, and True if the connection is good for another request."""
    received = b""
    try:
        while b"\r\n\r\n" not in received:
            more = connection.recv(65_536)
            if not more:
                return NONE, False
            received += more
        head, _, body = received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        status = int(head[9:12])
        if length is None or _CLOSING.search(head) or not head.startswith(b"HTTP/1.1"):
            return status, False
        missing = int(length[1]) - len(body) if has_body else 0
        while missing > 0:
            more = connection.recv(65_536)
            if not more:
                return status, False
            missing -= len(more)
    except ConnectionError:
        return NONE, False
    return status, missing == 0
