"""Bytes relayed from a socket that is shared to one that grpcio has opened."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from headgate.service.grpc.grpcio_server import Relay
from tests.support.grpc_server import bound_socket, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

MUCH = 50_000_000


@asynccontextmanager
async def relayed(serve: Serve, *, connections: int = 10) -> AsyncIterator[tuple[Relay, int]]:
    """A relay to a server of bytes, and the port where it listens."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "socket"
        server = await asyncio.start_unix_server(serve, path)
        relay = Relay(path, connections=connections)
        sock = bound_socket()
        port = sock.getsockname()[1]
        await relay.start(sock)
        try:
            yield relay, port
        finally:
            await relay.aclose()
            server.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


def test_bytes_pass_both_ways() -> None:
    async def main() -> None:
        async with relayed(echo) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            sent = bytes(range(256)) * 20_000
            writer.write(sent)
            assert await reader.readexactly(len(sent)) == sent
            writer.close()

    run(main())


def test_one_end_goes_with_the_other() -> None:
    async def main() -> None:
        gone = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if await reader.read(10) == b"bye":
                writer.close()
                return
            assert await reader.read() == b""
            gone.set()
            writer.close()

        async with relayed(serve) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"bye")
            assert await reader.read() == b""
            writer.close()
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"hello")
            await writer.drain()
            writer.close()
            await gone.wait()

    run(main())


def test_a_caller_waits_for_a_server_that_does_not_read() -> None:
    async def main() -> None:
        release = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await release.wait()
            writer.close()

        async with relayed(serve) as (_, port):
            sent = stalls = 0
            with socket.create_connection(("127.0.0.1", port)) as sock:
                sock.setblocking(False)
                while sent < MUCH and stalls < 10:
                    try:
                        sent += sock.send(b"x" * 65536)
                        stalls = 0
                    except BlockingIOError:
                        stalls += 1
                        await asyncio.sleep(0.02)
            assert sent < MUCH
            release.set()

    run(main())


def test_connections_beyond_the_cap_are_closed() -> None:
    async def main() -> None:
        async with relayed(echo, connections=1) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            other, extra = await asyncio.open_connection("127.0.0.1", port)
            with suppress(ConnectionResetError):  # closed all the same
                assert await other.read() == b""
            extra.close()
            writer.close()

    run(main())


def test_a_server_that_is_gone_closes_the_connection() -> None:
    async def main() -> None:
        relay = Relay(Path("/nowhere/socket"), connections=1)
        sock = bound_socket()
        port = sock.getsockname()[1]
        await relay.start(sock)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionResetError):  # closed all the same
            assert await reader.read() == b""
        writer.close()
        await relay.aclose()

    run(main())
