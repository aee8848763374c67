"""Draining, TLS and sockets of all kinds, on every server."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc import aio

from headgate.errors import OptionError
from headgate.service.grpc import GrpcLimits, TlsFiles, open_server
from tests.support.grpc_server import Trial, many, run, serving, unary
from tests.support.servers import Certificates

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.service.grpc.method import Kind
    from tests.support.grpc_server import Loop

SERVERS = pytest.mark.parametrize(
    ("kind", "loop"), [("lean", "asyncio"), ("lean", "uvloop"), ("grpcio", "asyncio")]
)


async def refused(port: int) -> None:
    """Return when nobody listens on *port* any more."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            return
        except ConnectionResetError:  # it was waiting to be accepted
            continue
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        await asyncio.sleep(0.01)


@SERVERS
def test_a_drain_lets_calls_end_and_takes_no_new_connections(kind: Kind, loop: Loop) -> None:
    async def main() -> None:
        async with serving(kind) as here, aio.insecure_channel(here.target) as channel:
            call = unary(channel, "/t.T/Hang")(b"x")
            await here.trial.began.wait()
            draining = asyncio.ensure_future(here.server.drain(20))
            await refused(here.port)
            here.trial.release.set()
            assert await call == b"x"
            await draining

    run(main(), loop)


@SERVERS
def test_what_has_not_ended_after_the_grace_is_cut_off(kind: Kind, loop: Loop) -> None:
    async def main() -> None:
        async with serving(kind) as here, aio.insecure_channel(here.target) as channel:
            call = unary(channel, "/t.T/Hang")(b"x")
            await here.trial.began.wait()
            await here.server.drain(0.05)
            with pytest.raises(aio.AioRpcError) as caught:
                await call
            assert caught.value.code() in (
                grpc.StatusCode.UNAVAILABLE,
                grpc.StatusCode.CANCELLED,  # grpcio's word for it
            )
            await here.trial.cancelled.wait()

    run(main(), loop)


@SERVERS
def test_a_stream_is_told_of_a_drain_and_ends_by_itself(kind: Kind, loop: Loop) -> None:
    async def main() -> None:
        async with serving(kind) as here, aio.insecure_channel(here.target) as channel:
            call = many(channel, "/t.T/Chat")
            await call.write(b"hello")
            assert await call.read() == b"hello"
            draining = asyncio.ensure_future(here.server.drain(25))
            assert await call.read() is aio.EOF
            assert await call.code() is grpc.StatusCode.OK
            await draining

    run(main(), loop)


@SERVERS
def test_an_idle_server_drains_and_can_be_drained_again(kind: Kind, loop: Loop) -> None:
    async def main() -> None:
        async with serving(kind) as here, aio.insecure_channel(here.target) as channel:
            assert await unary(channel, "/t.T/Echo")(b"x") == b"x"
            await here.server.drain(20)
            await here.server.drain(20)

    run(main(), loop)


@SERVERS
def test_a_unix_socket_serves(kind: Kind, loop: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "grpc.sock"
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(str(path))
        trial = Trial()
        server = open_server(kind, trial.methods(), trial.streams())
        await server.start(sock)
        async with aio.insecure_channel(f"unix:{path}") as channel:
            assert await unary(channel, "/t.T/Echo")(b"x") == b"x"
        await server.drain(0)

    run(main(), loop)


@SERVERS
def test_servers_share_a_socket_that_listens_already(kind: Kind, loop: Loop) -> None:
    async def main() -> None:
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        sock.setblocking(False)
        target = f"127.0.0.1:{sock.getsockname()[1]}"
        trial = Trial()
        servers = [open_server(kind, trial.methods(), trial.streams()) for _ in range(2)]
        for server in servers:
            await server.start(sock.dup())
        await servers[0].drain(0)
        async with aio.insecure_channel(target) as channel:
            message = b"x" * 3_000_000
            assert await unary(channel, "/t.T/Echo")(message) == message
            call = many(channel, "/t.T/Chat")
            await call.write(b"hello")
            assert await call.read() == b"hello"
            draining = asyncio.ensure_future(servers[1].drain(20))
            assert await call.read() is aio.EOF
            await draining
        sock.close()

    run(main(), loop)


@SERVERS
def test_tls_with_and_without_certificates_of_callers(
    kind: Kind, loop: Loop, tmp_path: Path
) -> None:
    made = Certificates(tmp_path)
    ca = made.ca.read_bytes()
    proven = grpc.ssl_channel_credentials(
        ca, made.client_key.read_bytes(), made.client.read_bytes()
    )
    unproven = grpc.ssl_channel_credentials(ca)

    async def ask(port: int, credentials: grpc.ChannelCredentials) -> bytes:
        async with aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
            return bytes(await unary(channel, "/t.T/Echo")(b"x"))

    async def main() -> None:
        files = TlsFiles(certificate=made.server, key=made.server_key)
        async with serving(kind, tls=files) as here:
            assert await ask(here.port, unproven) == b"x"
            async with aio.insecure_channel(here.target) as channel:
                with pytest.raises(aio.AioRpcError):
                    await unary(channel, "/t.T/Echo")(b"x")
        files = TlsFiles(certificate=made.server, key=made.server_key, client_ca=made.ca)
        async with serving(kind, tls=files) as here:
            assert await ask(here.port, proven) == b"x"
            with pytest.raises(aio.AioRpcError):
                await ask(here.port, unproven)

    run(main(), loop)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_who_never_ends_the_handshake_of_tls_counts_and_is_cut_off(
    loop: Loop, tmp_path: Path
) -> None:
    made = Certificates(tmp_path)
    credentials = grpc.ssl_channel_credentials(made.ca.read_bytes())

    async def main() -> None:
        files = TlsFiles(certificate=made.server, key=made.server_key)
        limits = GrpcLimits(connections=3, preface_s=0.5)
        async with serving("lean", tls=files, limits=limits) as here:
            peers = [await asyncio.open_connection("127.0.0.1", here.port) for _ in range(9)]
            ends = [asyncio.ensure_future(reader.read()) for reader, _ in peers]
            most = 0
            while not all(end.done() for end in ends):
                most = max(most, len(here.server._state.handshakes))  # type: ignore[attr-defined]
                await asyncio.sleep(0.01)
            assert 1 <= most <= 3
            async with aio.secure_channel(f"127.0.0.1:{here.port}", credentials) as channel:
                assert await unary(channel, "/t.T/Echo")(b"x") == b"x"
            for end, (_, writer) in zip(ends, peers, strict=True):
                assert end.exception() is None or isinstance(end.exception(), OSError)
                writer.close()

    run(main(), loop)


def test_grpcio_says_what_it_needs_of_a_socket_that_another_holds() -> None:
    async def main() -> None:
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            with pytest.raises(OptionError, match="SO_REUSEPORT"):
                await open_server("grpcio", {}, {}).start(held.dup())

    run(main())
