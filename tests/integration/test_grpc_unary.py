"""Calls of one message each way, by a grpcio client, on every server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc import aio

from headgate.service.grpc.method import GrpcLimits
from tests.support.grpc_server import run, serving, unary

if TYPE_CHECKING:
    from tests.support.grpc_server import Loop

LOOPS = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


async def failure(call: Any) -> tuple[grpc.StatusCode, str]:
    """The status that *call* ends with."""
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


@LOOPS
def test_a_method_answers_at_once_or_later(loop: Loop) -> None:
    async def main() -> None:
        async with serving() as here, aio.insecure_channel(here.target) as channel:
            for path in ("/t.T/Echo", "/t.T/Later"):
                for message in (b"", b"hello", b"\0" * 70_000):
                    assert await unary(channel, path)(message) == message

    run(main(), loop)


@LOOPS
def test_an_error_of_a_method_reaches_its_caller_word_for_word(loop: Loop) -> None:
    async def main() -> None:
        async with serving() as here, aio.insecure_channel(here.target) as channel:
            code, text = await failure(unary(channel, "/t.T/Fail")(b""))
            assert (code, text) == (grpc.StatusCode.NOT_FOUND, "nö, 100% not there\n")
            code, text = await failure(unary(channel, "/t.T/FailLater")(b""))
            assert (code, text) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "later")

    run(main(), loop)


@LOOPS
def test_an_unexpected_error_is_logged_once_and_not_told(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with serving() as here, aio.insecure_channel(here.target) as channel:
            for path in ("/t.T/Break", "/t.T/BreakLater"):
                caplog.clear()
                code, text = await failure(unary(channel, path)(b""))
                assert code is grpc.StatusCode.INTERNAL
                assert "secret" not in text
                records = [one for one in caplog.records if one.levelname == "ERROR"]
                assert [one.name for one in records] == ["headgate.service"]
                assert "a secret" in (records[0].exc_text or "")

    run(main(), loop)


@LOOPS
def test_an_unknown_method_is_unimplemented(loop: Loop) -> None:
    async def main() -> None:
        async with serving() as here, aio.insecure_channel(here.target) as channel:
            for path in ("/t.T/None", "/", "/t.T/Echo/", "/t.T/Echo?x"):
                code, _ = await failure(unary(channel, path)(b"x"))
                assert code is grpc.StatusCode.UNIMPLEMENTED
            assert here.trial.asked == 0

    run(main(), loop)


@LOOPS
def test_a_deadline_ends_the_call_and_its_method(loop: Loop) -> None:
    async def main() -> None:
        async with serving() as here, aio.insecure_channel(here.target) as channel:
            code, _ = await failure(unary(channel, "/t.T/Hang")(b"x", timeout=0.05))
            assert code is grpc.StatusCode.DEADLINE_EXCEEDED
            await here.trial.cancelled.wait()
            assert await unary(channel, "/t.T/Echo")(b"still here") == b"still here"

    run(main(), loop)


@LOOPS
def test_a_caller_that_cancels_stops_the_method(loop: Loop) -> None:
    async def main() -> None:
        async with serving() as here, aio.insecure_channel(here.target) as channel:
            call = unary(channel, "/t.T/Hang")(b"x")
            await here.trial.began.wait()
            call.cancel()
            await here.trial.cancelled.wait()
            assert await unary(channel, "/t.T/Echo")(b"still here") == b"still here"

    run(main(), loop)


@LOOPS
def test_a_caller_that_vanishes_stops_the_method(loop: Loop) -> None:
    async def main() -> None:
        async with serving() as here, aio.insecure_channel(here.target) as channel:
            asking = asyncio.ensure_future(failure(unary(channel, "/t.T/Hang")(b"x")))
            await here.trial.began.wait()
            await channel.close()
            await here.trial.cancelled.wait()
            await asyncio.gather(asking, return_exceptions=True)

    run(main(), loop)


@LOOPS
def test_a_message_above_the_limit_is_refused_and_one_at_the_limit_is_not(loop: Loop) -> None:
    async def main() -> None:
        limits = GrpcLimits(message_bytes=100_000)
        async with (
            serving(limits=limits) as here,
            aio.insecure_channel(here.target) as channel,
        ):
            echo = unary(channel, "/t.T/Echo")
            assert await echo(b"x" * 100_000) == b"x" * 100_000
            for size in (100_001, 3_000_000):
                code, _ = await failure(echo(b"x" * size))
                assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert here.trial.asked == 1
            assert await echo(b"again") == b"again"

    run(main(), loop)


@LOOPS
def test_a_compressed_message_is_refused_in_words(loop: Loop) -> None:
    async def main() -> None:
        async with serving() as here:
            gzip = grpc.Compression.Gzip
            async with aio.insecure_channel(here.target, compression=gzip) as channel:
                code, text = await failure(unary(channel, "/t.T/Echo")(b"x" * 1000))
                assert code is grpc.StatusCode.UNIMPLEMENTED
                assert "identity" in text

    run(main(), loop)


@LOOPS
def test_large_messages_pass_both_ways(loop: Loop) -> None:
    async def main() -> None:
        async with serving() as here, aio.insecure_channel(here.target) as channel:
            message = bytes(range(256)) * 12_000
            replies = await asyncio.gather(
                *(unary(channel, "/t.T/Echo")(message) for _ in range(3))
            )
            assert replies == [message] * 3

    run(main(), loop)


@LOOPS
def test_a_thousand_calls_at_once_are_all_answered(loop: Loop) -> None:
    async def main() -> None:
        async with serving() as here, aio.insecure_channel(here.target) as channel:
            for path in ("/t.T/Echo", "/t.T/Later"):
                method = unary(channel, path)
                asked = [b"%d" % number for number in range(1000)]
                assert await asyncio.gather(*map(method, asked)) == asked

    run(main(), loop)


def test_a_busy_caller_outlives_the_connections_that_it_uses_up() -> None:
    async def main() -> None:
        async with serving() as here, aio.insecure_channel(here.target) as channel:
            method = unary(channel, "/t.T/Echo")
            for _ in range(10):
                asked = [b"%d" % number for number in range(1000)]
                assert await asyncio.gather(*map(method, asked)) == asked
            assert here.trial.asked == 10_000

    run(main(), "uvloop")


def test_a_caller_with_many_cancelled_calls_gets_on() -> None:
    async def main() -> None:
        async with serving() as here, aio.insecure_channel(here.target) as channel:
            for _ in range(600):
                call = unary(channel, "/t.T/Hang")(b"x")
                await here.trial.began.wait()
                here.trial.began.clear()
                call.cancel()
                assert await unary(channel, "/t.T/Echo")(b"x") == b"x"

    run(main())
