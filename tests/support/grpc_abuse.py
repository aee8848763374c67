"""A peer that may do what it likes to a server, beside one that must not notice."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.support.grpc_server import DEFAULT, serving
from tests.support.http2_frames import Peer, call, message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from headgate.service.grpc.connection import Connection
    from headgate.service.grpc.method import GrpcLimits
    from tests.support.grpc_server import Serving


@asynccontextmanager
async def harm(
    first: bytes | None = None, limits: GrpcLimits = DEFAULT
) -> AsyncIterator[tuple[Serving, Peer]]:
    """A peer that may do what it likes: another one is served all the same, before and after."""
    async with serving(limits=limits) as here:
        peer = await Peer.connect(here.port, first)
        try:
            yield here, peer
            other = await Peer.connect(here.port)
            other.send(call(1, body=b"unharmed"))
            assert await other.reply(1) == message(b"unharmed")
            await other.close()
        finally:
            await peer.close()


def connections(here: Serving) -> list[Connection]:
    return list(here.server.connections)
