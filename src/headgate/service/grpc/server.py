"""What a gRPC server can do, whichever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import socket


class GrpcServer(Protocol):
    """Carries calls to methods, from `start` to `drain`; each of them once."""

    async def start(self, sock: socket.socket) -> None:
        """Listen on *sock*, which is bound already (TCP or unix) and is the server's from now on.

        Raises `OptionError` if this server cannot listen on it.
        """

    async def drain(self, grace: float) -> None:
        """Take no more connections and calls, let those there are end, and stop.

        Streams are told that the caller will send no more. What has not ended after *grace*
        seconds is cut off with UNAVAILABLE.
        """
