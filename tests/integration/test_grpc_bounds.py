"""The gRPC server over a real socket: what a peer may keep, and how long it may take."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from headgate.service.grpc.method import GrpcLimits
from tests.support.grpc_abuse import connections, harm
from tests.support.grpc_server import run, serving
from tests.support.http2_frames import (
    DATA,
    END_HEADERS,
    ENHANCE_YOUR_CALM,
    HEADERS,
    NO_ERROR,
    PREFACE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Peer,
    asking,
    call,
    frame,
    message,
    opening,
    settings,
)

if TYPE_CHECKING:
    from tests.support.grpc_server import Serving

SHORT = 0.2


async def deaf_peer(here: Serving, sent: bytes) -> socket.socket:
    """A socket that takes next to nothing in, and has begun to send *sent* again and again."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, ("127.0.0.1", here.port))
    await loop.sock_sendall(sock, PREFACE + settings(x4=2**31 - 1))
    await loop.sock_sendall(sock, frame(WINDOW_UPDATE, payload=(2**31 - 2**17).to_bytes(4, "big")))
    await loop.sock_sendall(sock, sent)
    while not connections(here):  # noqa: ASYNC110 (it tells nobody)
        await asyncio.sleep(0)
    return sock


def test_what_a_peer_does_not_read_is_bounded_and_then_cut_off() -> None:
    async def main() -> None:
        limits = GrpcLimits(stall_s=2 * SHORT)
        async with serving(limits=limits) as here:
            asked = b"".join(call(n, b"/t.T/Big", b"100000") for n in range(1, 2001, 2))
            with await deaf_peer(here, asked):
                connection = connections(here)[0]
                worst = 0
                while connections(here):
                    transport = connection._transport
                    assert transport is not None
                    worst = max(worst, transport.get_write_buffer_size())
                    await asyncio.sleep(0.01)
                assert 1_000_000 < worst < 2_000_000

    run(main())


def test_a_peer_that_reads_late_gets_everything() -> None:
    async def main() -> None:
        async with serving() as here:
            asked = b"".join(call(n, b"/t.T/Big", b"100000") for n in range(1, 201, 2))
            with await deaf_peer(here, asked) as sock:
                while not connections(here)[0].is_full:  # noqa: ASYNC110 (it tells nobody)
                    await asyncio.sleep(0.01)
                reader, writer = await asyncio.open_connection(sock=sock)
                peer = Peer(reader, writer)
                for stream in range(1, 201, 2):
                    assert len(await peer.reply(stream)) == 100_005
                await peer.close()

    run(main())


def test_a_peer_that_does_not_read_is_not_read_either() -> None:
    async def main() -> None:
        async with serving(limits=GrpcLimits(stall_s=2.0)) as here:
            loop = asyncio.get_running_loop()
            with await deaf_peer(here, b"") as sock:
                flooding = asyncio.ensure_future(
                    loop.sock_sendall(
                        sock, b"".join(call(n, b"/t.T/Big", b"100000") for n in range(1, 6000, 2))
                    )
                )
                while not connections(here)[0].is_full:  # noqa: ASYNC110 (the same)
                    await asyncio.sleep(0.01)
                transport = connections(here)[0]._transport
                assert transport is not None
                assert not transport.is_reading()
                flooding.cancel()
                await asyncio.gather(flooding, return_exceptions=True)

    run(main())


def test_a_peer_that_opens_no_window_is_cut_off() -> None:
    async def main() -> None:
        limits = GrpcLimits(stall_s=SHORT)
        async with harm(PREFACE + settings(x4=0), limits) as (_, peer):
            peer.send(call(1, b"/t.T/Big", b"1000"))
            assert (await peer.until(HEADERS, 1)).flags == END_HEADERS
            assert await peer.last_words() == ENHANCE_YOUR_CALM

    run(main())


def test_replies_that_wait_for_a_window_are_bounded() -> None:
    async def main() -> None:
        limits = GrpcLimits(message_bytes=100_000, connection_bytes=1_000_000)
        async with harm(PREFACE + settings(x4=0), limits) as (_, peer):
            peer.send(b"".join(call(n, b"/t.T/Big", b"200000") for n in range(1, 21, 2)))
            assert await peer.last_words() == ENHANCE_YOUR_CALM

    run(main())


def test_requests_that_are_under_way_are_bounded() -> None:
    async def main() -> None:
        limits = GrpcLimits(message_bytes=100_000, connection_bytes=250_000)
        async with harm(None, limits) as (_, peer):
            for stream in (1, 3, 5):
                peer.send(opening(stream) + frame(DATA, 0, stream, message(b"x" * 90_000)[:16_000]))
                for _ in range(4):
                    peer.send(frame(DATA, 0, stream, b"x" * 16_000))
                    await asyncio.sleep(0.01)  # the window is opened again
            for _ in range(2):
                peer.send(frame(DATA, 0, 5, b"x" * 5_000))
            peer.send(frame(DATA, 0, 3, b"x" * 10_000) + frame(DATA, 0, 1, b"x" * 10_000))
            assert (await peer.status(3))[b"grpc-status"] == b"8"

    run(main())


def test_messages_that_wait_to_be_taken_are_bounded() -> None:
    async def main() -> None:
        limits = GrpcLimits(message_bytes=100_000, connection_bytes=250_000)
        async with harm(None, limits) as (here, peer):
            for stream in (1, 3, 5):
                peer.send(opening(stream, asking(b"/t.T/Deaf")))
                left = message(b"x" * 90_000)
                while left:
                    peer.send(frame(DATA, 0, stream, left[:16_000]))
                    left = left[16_000:]
                    await asyncio.sleep(0.01)  # the window is opened again
            assert (await peer.status(5))[b"grpc-status"] == b"8"
            assert connections(here)[0].held == 2 * 90_000

    run(main())


def test_calls_beyond_the_cap_wait_while_others_are_worked_on() -> None:
    # A gateway makes its first calls before it has heard how many it may make.
    async def main() -> None:
        async with harm(None, GrpcLimits(calls=3)) as (here, peer):
            streams = range(1, 41, 2)
            peer.send(b"".join(call(stream, b"/t.T/Hang") for stream in streams))
            await here.trial.began.wait()
            here.trial.release.set()
            for stream in streams:
                assert await peer.reply(stream) == message(b"x")
            assert connections(here)[0].working == 0

    run(main())


def test_calls_beyond_the_cap_are_refused_if_those_before_them_are_not_whole() -> None:
    async def main() -> None:
        async with harm(None, GrpcLimits(calls=3)) as (_, peer):
            peer.send(b"".join(opening(stream) for stream in (1, 3, 5, 7, 9)))
            for stream in (7, 9):
                assert (await peer.until(RST_STREAM, stream)).code == REFUSED_STREAM
            for stream in (1, 3, 5):
                peer.send(frame(DATA, 1, stream, message(b"x")))
                assert await peer.reply(stream) == message(b"x")

    run(main())


def test_a_peer_that_is_gone_while_its_calls_wait_leaves_nothing_behind() -> None:
    async def main() -> None:
        async with serving(limits=GrpcLimits(calls=3)) as here:
            peer = await Peer.connect(here.port)
            peer.send(b"".join(call(stream, b"/t.T/Hang") for stream in range(1, 41, 2)))
            await here.trial.began.wait()
            await peer.close()
            here.trial.release.set()
            while connections(here):  # noqa: ASYNC110 (the same)
                await asyncio.sleep(0.01)

    run(main())


def test_answered_calls_count_until_their_replies_can_be_sent() -> None:
    async def main() -> None:
        async with serving(limits=GrpcLimits(calls=3)) as here:
            peer = await Peer.connect(here.port, PREFACE + settings(x4=0))
            peer.send(b"".join(call(stream) for stream in range(1, 9, 2)))
            refused = await peer.until(RST_STREAM)
            assert (refused.stream, refused.code) == (7, REFUSED_STREAM)
            peer.send(frame(WINDOW_UPDATE, 0, 1, b"\0\0\1\0"))
            assert await peer.reply(1) == message(b"x")
            peer.send(call(9) + frame(WINDOW_UPDATE, 0, 9, b"\0\0\1\0"))
            assert await peer.reply(9) == message(b"x")
            await peer.close()

    run(main())


def test_connections_beyond_the_cap_are_closed_while_the_others_have_calls() -> None:
    async def main() -> None:
        async with serving(limits=GrpcLimits(connections=2)) as here:
            peers = [await Peer.connect(here.port) for _ in range(2)]
            for peer in peers:
                peer.send(call(1, b"/t.T/Hang") + call(3))
                assert await peer.reply(3) == message(b"x")
            third = await Peer.connect(here.port)
            assert await third.rest() == []
            await third.close()
            await peers.pop().close()
            while len(connections(here)) > 1:  # noqa: ASYNC110 (the same)
                await asyncio.sleep(0.01)
            fourth = await Peer.connect(here.port)
            fourth.send(call(1))
            assert await fourth.reply(1) == message(b"x")
            for peer in (*peers, fourth):
                await peer.close()

    run(main())


def test_at_the_cap_the_connection_that_is_idle_for_longest_gives_way() -> None:
    async def main() -> None:
        async with serving(limits=GrpcLimits(connections=2)) as here:
            silent, busy = [await Peer.connect(here.port) for _ in range(2)]
            busy.send(call(1, b"/t.T/Hang") + call(3))
            assert await busy.reply(3) == message(b"x")
            await silent.until(SETTINGS)
            late = await Peer.connect(here.port)
            late.send(call(1))
            assert await late.reply(1) == message(b"x")
            await silent.rest()
            here.trial.release.set()
            assert await busy.reply(1) == message(b"x")
            for peer in (silent, busy, late):
                await peer.close()

    run(main())


def test_beyond_the_memory_of_the_server_the_connection_with_the_most_is_closed() -> None:
    async def main() -> None:
        limits = GrpcLimits(message_bytes=100_000, server_bytes=150_000)
        async with serving(limits=limits) as here:
            small, large = [await Peer.connect(here.port) for _ in range(2)]
            small.send(opening(1) + frame(DATA, 0, 1, message(b"x" * 50_000)[:16_000]))
            for stream in range(1, 13, 2):
                large.send(opening(stream))
                for _ in range(3):
                    large.send(frame(DATA, 0, stream, message(b"x" * 90_000)[:16_000]))
                    await asyncio.sleep(0.01)  # the window is opened again
            assert await large.last_words() == ENHANCE_YOUR_CALM
            small.send(call(3))
            assert await small.reply(3) == message(b"x")
            while here.server.held != 16_000:  # noqa: ASYNC110 (the same)
                await asyncio.sleep(0.01)
            for peer in (small, large):
                await peer.close()

    run(main())


def test_replies_that_are_not_read_count_as_memory_of_the_server() -> None:
    async def main() -> None:
        async with serving(limits=GrpcLimits(server_bytes=300_000, stall_s=60.0)) as here:
            calls = b"".join(call(n, b"/t.T/Big", b"10000") for n in range(1, 41, 2))
            peers = [await Peer.connect(here.port, PREFACE + settings(x4=0)) for _ in range(2)]
            for peer in peers:
                peer.send(calls)
            first, _ = await asyncio.wait(
                [asyncio.ensure_future(peer.last_words()) for peer in peers],
                return_when=asyncio.FIRST_COMPLETED,
            )
            assert [each.result() for each in first] == [ENHANCE_YOUR_CALM]
            assert len(connections(here)) == 1
            for peer in peers:
                await peer.close()

    run(main())


@pytest.mark.parametrize("first", [b"", PREFACE[:10], PREFACE, PREFACE + settings()[:5]])
def test_a_peer_that_does_not_begin_is_hung_up_on(first: bytes) -> None:
    async def main() -> None:
        async with harm(first, GrpcLimits(preface_s=SHORT)) as (_, peer):
            await peer.rest()

    run(main())


def test_an_idle_connection_is_closed_in_good_order() -> None:
    async def main() -> None:
        async with harm(None, GrpcLimits(idle_s=SHORT)) as (_, peer):
            peer.send(call(1))
            assert await peer.reply(1) == message(b"x")
            assert await peer.last_words() == NO_ERROR

    run(main())


def test_a_connection_with_a_call_under_way_is_not_idle() -> None:
    async def main() -> None:
        async with harm(None, GrpcLimits(idle_s=SHORT)) as (here, peer):
            peer.send(call(1, b"/t.T/Hang"))
            await here.trial.began.wait()
            await asyncio.sleep(3 * SHORT)
            here.trial.release.set()
            assert await peer.reply(1) == message(b"x")

    run(main())


def test_a_request_that_does_not_come_to_its_end_is_given_up() -> None:
    async def main() -> None:
        async with harm(None, GrpcLimits(request_s=SHORT)) as (_, peer):
            peer.send(opening(1) + frame(DATA, 0, 1, message(b"hello")[:7]))
            assert (await peer.status(1))[b"grpc-status"] == b"4"
            peer.send(call(3))
            assert await peer.reply(3) == message(b"x")

    run(main())


def test_a_deadline_counts_while_the_request_is_still_coming() -> None:
    async def main() -> None:
        async with harm() as (_, peer):
            fields = asking(**{"grpc-timeout": b"10m"})
            peer.send(opening(1, fields) + frame(DATA, 0, 1, message(b"hello")[:7]))
            assert (await peer.status(1))[b"grpc-status"] == b"4"

    run(main())
