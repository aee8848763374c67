"""Draining, TLS and sockets of all kinds, on every server."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc import aio

from headgate.service.grpc.method import GrpcLimits
from headgate.service.grpc.server import GrpcServer
from headgate.service.tls import TlsFiles
from tests.support.grpc_server import Trial, many, run, serving, unary
from tests.support.http2_frames import PREFACE, call, message, settings
from tests.support.servers import Certificates

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.grpc_server import Loop

LOOPS = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


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


@LOOPS
def test_a_drain_lets_calls_end_and_takes_no_new_connections(loop: Loop) -> None:
    async def main() -> None:
        async with serving() as here, aio.insecure_channel(here.target) as channel:
            call = unary(channel, "/t.T/Hang")(b"x")
            await here.trial.began.wait()
            draining = asyncio.ensure_future(here.server.drain(20))
            await refused(here.port)
            here.trial.release.set()
            assert await call == b"x"
            await draining

    run(main(), loop)


@LOOPS
def test_what_has_not_ended_after_the_grace_is_cut_off(loop: Loop) -> None:
    async def main() -> None:
        async with serving() as here, aio.insecure_channel(here.target) as channel:
            call = unary(channel, "/t.T/Hang")(b"x")
            await here.trial.began.wait()
            await here.server.drain(0.05)
            with pytest.raises(aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            await here.trial.cancelled.wait()

    run(main(), loop)


@LOOPS
def test_a_stream_is_told_of_a_drain_and_ends_by_itself(loop: Loop) -> None:
    async def main() -> None:
        async with serving() as here, aio.insecure_channel(here.target) as channel:
            call = many(channel, "/t.T/Chat")
            await call.write(b"hello")
            assert await call.read() == b"hello"
            draining = asyncio.ensure_future(here.server.drain(25))
            assert await call.read() is aio.EOF
            assert await call.code() is grpc.StatusCode.OK
            await draining

    run(main(), loop)


@LOOPS
def test_an_idle_server_drains_and_can_be_drained_again(loop: Loop) -> None:
    async def main() -> None:
        async with serving() as here, aio.insecure_channel(here.target) as channel:
            assert await unary(channel, "/t.T/Echo")(b"x") == b"x"
            await here.server.drain(20)
            await here.server.drain(20)

    run(main(), loop)


@LOOPS
def test_a_drain_serves_connections_that_wait_to_be_accepted(loop: Loop) -> None:
    async def main() -> None:
        async with serving() as here:
            with socket.create_connection(("127.0.0.1", here.port)) as peer:
                peer.sendall(PREFACE + settings() + call(1, body=b"queued"))
                draining = asyncio.ensure_future(here.server.drain(20))
                peer.setblocking(False)
                reader, writer = await asyncio.open_connection(sock=peer)
                assert message(b"queued") in await reader.read()
                await draining
                writer.close()

    run(main(), loop)


@LOOPS
def test_a_unix_socket_serves(loop: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "grpc.sock"
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(str(path))
        trial = Trial()
        server = GrpcServer(trial.methods(), trial.streams())
        await server.start(sock)
        async with aio.insecure_channel(f"unix:{path}") as channel:
            assert await unary(channel, "/t.T/Echo")(b"x") == b"x"
        await server.drain(0)

    run(main(), loop)


@LOOPS
def test_servers_share_a_socket_that_listens_already(loop: Loop) -> None:
    async def main() -> None:
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        sock.setblocking(False)
        target = f"127.0.0.1:{sock.getsockname()[1]}"
        trial = Trial()
        servers = [GrpcServer(trial.methods(), trial.streams()) for _ in range(2)]
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


@LOOPS
def test_tls_with_and_without_certificates_of_callers(loop: Loop, tmp_path: Path) -> None:
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
        async with serving(tls=files) as here:
            assert await ask(here.port, unproven) == b"x"
            async with aio.insecure_channel(here.target) as channel:
                with pytest.raises(aio.AioRpcError):
                    await unary(channel, "/t.T/Echo")(b"x")
        files = TlsFiles(certificate=made.server, key=made.server_key, client_ca=made.ca)
        async with serving(tls=files) as here:
            assert await ask(here.port, proven) == b"x"
            with pytest.raises(aio.AioRpcError):
                await ask(here.port, unproven)

    run(main(), loop)


@LOOPS
def test_replaced_certificates_are_used_from_the_next_connection_on(
    loop: Loop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "new").mkdir()
    old, new = Certificates(tmp_path), Certificates(tmp_path / "new")

    async def ask(port: int, made: Certificates) -> bytes:
        credentials = grpc.ssl_channel_credentials(
            made.ca.read_bytes(), made.client_key.read_bytes(), made.client.read_bytes()
        )
        options = [("grpc.use_local_subchannel_pool", 1)]
        target = f"127.0.0.1:{port}"
        async with aio.secure_channel(target, credentials, options=options) as channel:
            return bytes(await unary(channel, "/t.T/Echo")(b"x"))

    async def main() -> None:
        trusted = tmp_path / "trusted.crt"
        trusted.write_bytes(old.ca.read_bytes())
        files = TlsFiles(certificate=old.server, key=old.server_key, client_ca=trusted)
        async with serving(tls=files) as here:
            assert await ask(here.port, old) == b"x"
            old.server.write_bytes(b"not a certificate")
            assert await ask(here.port, old) == b"x"
            assert "the previous files stay in use" in caplog.text
            for before, after in ((old.server, new.server), (old.server_key, new.server_key)):
                before.write_bytes(after.read_bytes())
            trusted.write_bytes(new.ca.read_bytes())
            assert await ask(here.port, new) == b"x"
            with pytest.raises(aio.AioRpcError):
                await ask(here.port, old)

    run(main(), loop)


@LOOPS
def test_who_never_ends_the_handshake_of_tls_counts_and_is_cut_off(
    loop: Loop, tmp_path: Path
) -> None:
    made = Certificates(tmp_path)
    credentials = grpc.ssl_channel_credentials(made.ca.read_bytes())

    async def main() -> None:
        files = TlsFiles(certificate=made.server, key=made.server_key)
        limits = GrpcLimits(connections=3, preface_s=0.5)
        async with serving(tls=files, limits=limits) as here:
            peers = [await asyncio.open_connection("127.0.0.1", here.port) for _ in range(9)]
            ends = [asyncio.ensure_future(reader.read()) for reader, _ in peers]
            most = 0
            while not all(end.done() for end in ends):
                most = max(most, len(here.server._handshakes))
                await asyncio.sleep(0.01)
            assert 1 <= most <= 3
            async with aio.secure_channel(f"127.0.0.1:{here.port}", credentials) as channel:
                assert await unary(channel, "/t.T/Echo")(b"x") == b"x"
            for end, (_, writer) in zip(ends, peers, strict=True):
                assert end.exception() is None or isinstance(end.exception(), OSError)
                writer.close()

    run(main(), loop)
