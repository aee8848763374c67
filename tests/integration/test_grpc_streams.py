"""Calls of many messages each way, by a grpcio client, on every server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc import aio

from headgate.service.grpc.method import GrpcLimits
from tests.support.grpc_server import many, run, serving, unary

if TYPE_CHECKING:
    from tests.support.grpc_server import Loop

LOOPS = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


@LOOPS
def test_messages_are_answered_as_they_come_until_the_caller_is_done(loop: Loop) -> None:
    async def main() -> None:
        async with serving() as here, aio.insecure_channel(here.target) as channel:
            call = many(channel, "/t.T/Chat")
            for message in (b"one", b"", b"x" * 200_000, b"last"):
                await call.write(message)
                assert await call.read() == message
            await call.done_writing()
            assert await call.read() is aio.EOF
            assert await call.code() is grpc.StatusCode.OK

    run(main(), loop)


@LOOPS
def test_a_server_speaks_unasked_and_ends_first(loop: Loop) -> None:
    async def main() -> None:
        async with serving() as here, aio.insecure_channel(here.target) as channel:
            call = many(channel, "/t.T/Push")
            assert [reply async for reply in call] == [b"0", b"1", b"2"]
            assert await call.code() is grpc.StatusCode.OK

    run(main(), loop)


@LOOPS
def test_errors_end_a_stream_with_their_status(loop: Loop) -> None:
    async def main() -> None:
        async with serving() as here, aio.insecure_channel(here.target) as channel:
            call = many(channel, "/t.T/FailChat")
            await call.write(b"hello")
            assert await call.read() == b"hello"
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert await call.details() == "enough"
            call = many(channel, "/t.T/BreakChat")
            await call.write(b"hello")
            assert await call.code() is grpc.StatusCode.INTERNAL
            assert "secret" not in await call.details()

    run(main(), loop)


@LOOPS
@pytest.mark.parametrize("path", ["/t.T/Ticks", "/t.T/Replies"])
def test_a_stream_is_closed_when_its_caller_cancels(path: str, loop: Loop) -> None:
    async def main() -> None:
        async with serving() as here, aio.insecure_channel(here.target) as channel:
            call = many(channel, path)
            assert await call.read() in (b"tick", b"one")
            await here.trial.began.wait()
            call.cancel()
            await here.trial.cancelled.wait()

    run(main(), loop)


@LOOPS
def test_a_stream_is_closed_when_its_caller_vanishes(loop: Loop) -> None:
    async def main() -> None:
        async with serving() as here:
            async with aio.insecure_channel(here.target) as channel:
                call = many(channel, "/t.T/Ticks")
                assert await call.read() == b"tick"
                await here.trial.began.wait()
            await here.trial.cancelled.wait()

    run(main(), loop)


@LOOPS
def test_a_stream_and_calls_share_a_connection(loop: Loop) -> None:
    async def main() -> None:
        async with serving() as here, aio.insecure_channel(here.target) as channel:
            call = many(channel, "/t.T/Chat")
            echo = unary(channel, "/t.T/Echo")
            for number in range(5):
                message = b"%d" % number
                await call.write(message)
                replies = await asyncio.gather(*(echo(message) for _ in range(50)))
                assert replies == [message] * 50
                assert await call.read() == message
            call.cancel()

    run(main(), loop)


@LOOPS
def test_a_stream_outlives_its_connection_being_renewed(loop: Loop) -> None:
    async def main() -> None:
        async with serving() as here, aio.insecure_channel(here.target) as channel:
            call = many(channel, "/t.T/Chat")
            await call.write(b"before")
            assert await call.read() == b"before"
            echo = unary(channel, "/t.T/Echo")
            for _ in range(5):
                await asyncio.gather(*(echo(b"x") for _ in range(700)))
            await call.write(b"after")
            assert await call.read() == b"after"
            call.cancel()

    run(main(), loop)


def test_a_method_waits_for_a_caller_that_does_not_read() -> None:
    async def main() -> None:
        small = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65536)]
        async with (
            serving() as here,
            aio.insecure_channel(here.target, options=small) as channel,
        ):
            call = many(channel, "/t.T/Flood")
            assert await call.read() == b"x" * 10_000
            before = -1
            while before != here.trial.asked:  # until it stands still
                before = here.trial.asked
                await asyncio.sleep(0.1)
            assert before < 100
            for _ in range(2 * before):
                await call.read()
            assert here.trial.asked > before
            call.cancel()

    run(main())


def test_a_caller_waits_for_a_method_that_does_not_read() -> None:
    async def main() -> None:
        limits = GrpcLimits(connection_bytes=5_000_000)
        async with (
            serving(limits=limits) as here,
            aio.insecure_channel(here.target) as channel,
        ):
            call = many(channel, "/t.T/Deaf")
            sent = 0

            async def write() -> None:
                nonlocal sent
                for _ in range(2000):
                    await call.write(b"x" * 10_000)
                    sent += 1
                await call.done_writing()

            writing = asyncio.ensure_future(write())
            await here.trial.began.wait()
            before = -1
            while before != sent:
                before = sent
                await asyncio.sleep(0.1)
            assert sent < 2000
            here.trial.release.set()
            assert len([reply async for reply in call]) == 2000
            await writing

    run(main())
