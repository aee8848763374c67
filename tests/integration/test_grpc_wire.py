"""The gRPC server over a real socket: calls in all the shapes that frames can give them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from headgate.service.grpc.method import GrpcLimits
from tests.support.grpc_server import DEFAULT, run, serving
from tests.support.http2_frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    NO_ERROR,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Peer,
    asking,
    block,
    call,
    frame,
    message,
    opening,
    settings,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.grpc_server import Serving


@asynccontextmanager
async def connected(
    first: bytes | None = None, limits: GrpcLimits = DEFAULT
) -> AsyncIterator[tuple[Serving, Peer]]:
    async with serving(limits=limits) as here:
        peer = await Peer.connect(here.port, first)
        try:
            yield here, peer
        finally:
            await peer.close()


def test_a_message_comes_in_any_number_of_frames_and_segments() -> None:
    async def main() -> None:
        async with connected() as (_, peer):
            whole = message(b"hello")
            parts = [frame(DATA, 0, 1, whole[at : at + 1]) for at in range(len(whole))]
            peer.send(opening(1) + b"".join(parts) + frame(DATA, END_STREAM, 1))
            assert await peer.reply(1) == whole
            for byte in call(3, body=b"hello"):
                peer.send(bytes((byte,)))
                await asyncio.sleep(0)
            assert await peer.reply(3) == whole
            peer.send(b"".join(call(stream, body=b"%d" % stream) for stream in range(5, 105, 2)))
            for stream in range(5, 105, 2):
                assert await peer.reply(stream) == message(b"%d" % stream)

    run(main())


def test_headers_come_in_any_number_of_frames() -> None:
    async def main() -> None:
        async with connected() as (_, peer):
            written = block(asking())
            peer.send(
                frame(HEADERS, 0, 1, written[:10]) + frame(CONTINUATION, 0, 1, written[10:20])
            )
            peer.send(frame(CONTINUATION, END_HEADERS, 1, written[20:]))
            peer.send(frame(DATA, END_STREAM, 1, message(b"x")))
            assert await peer.reply(1) == message(b"x")

    run(main())


def test_padding_priorities_unknown_frames_and_trailers_do_not_matter() -> None:
    async def main() -> None:
        async with connected() as (_, peer):
            padded, prioritised = 8, 32
            head = b"\x03" + b"\0\0\0\0\x10" + block(asking()) + b"\0\0\0"
            peer.send(frame(HEADERS, END_HEADERS | padded | prioritised, 1, head))
            peer.send(
                frame(0x42, 0xFF, 1, b"?")
                + frame(DATA, padded, 1, b"\x02" + message(b"x") + b"\0\0")
            )
            peer.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block([(b"x", b"y")])))
            assert await peer.reply(1) == message(b"x")

    run(main())


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (asking(method=b"GET"), b"405"),
        (asking(method=b"PUT"), b"405"),
        (asking(content_type=b"application/json"), b"415"),
        (asking(content_type=b"application/grpc-web"), b"415"),
        (asking(content_type=None), b"415"),
    ],
)
def test_what_is_no_grpc_is_told_so_in_http(
    fields: list[tuple[bytes, bytes]], status: bytes
) -> None:
    async def main() -> None:
        async with connected() as (here, peer):
            peer.send(opening(1, fields) + frame(DATA, END_STREAM, 1, message(b"x")))
            answer = await peer.until(HEADERS, 1)
            assert answer.fields[b":status"] == status
            assert b"application/grpc" in (await peer.until(DATA, 1)).payload
            assert here.trial.asked == 0
            peer.send(call(3))
            assert await peer.reply(3) == message(b"x")

    run(main())


@pytest.mark.parametrize(
    ("fields", "body", "status"),
    [
        (asking(b"/t.T/None"), message(b"x"), b"12"),
        (asking(b"/t.T/Fail"), message(b"x"), b"5"),
        (asking(te=None), message(b"x"), b"13"),
        (asking(b"/t.T/Hang", **{"grpc-timeout": b"10x"}), message(b"x"), b"3"),
        (asking(b"/t.T/Hang", **{"grpc-timeout": b"1m"}), message(b"x"), b"4"),
        (asking(), b"\x01\0\0\0\x01x", b"12"),
        (asking(), b"", b"12"),
        (asking(), message(b"xyz")[:-1], b"12"),
        (asking(), message(b"x") + message(b"y"), b"12"),
        (asking(), b"\0\xff\xff\xff\xff", b"8"),
        # Of what is too long on a stream the beginning is read; here there is none.
        (asking(b"/t.T/Deaf"), b"\0\xff\xff\xff\xff", b"3"),
        (asking(b"/t.T/Chat"), message(b"xyz")[:-1], b"3"),
    ],
)
def test_a_call_that_fails_is_answered_in_one_frame_with_its_status(
    fields: list[tuple[bytes, bytes]], body: bytes, status: bytes
) -> None:
    async def main() -> None:
        async with connected() as (here, peer):
            peer.send(opening(1, fields) + frame(DATA, END_STREAM, 1, body))
            answer = await peer.until(HEADERS, 1)
            assert answer.flags & END_STREAM
            assert answer.fields[b":status"] == b"200"
            assert answer.fields[b"content-type"] == b"application/grpc"
            assert answer.fields[b"grpc-status"] == status
            assert here.trial.asked == 0
            peer.send(call(3))
            assert await peer.reply(3) == message(b"x")

    run(main())


def test_a_short_limit_holds_for_a_message_in_one_frame() -> None:
    async def main() -> None:
        async with connected(limits=GrpcLimits(message_bytes=100)) as (here, peer):
            peer.send(call(1, body=b"x" * 101))
            assert (await peer.status(1))[b"grpc-status"] == b"8"
            peer.send(call(3, body=b"x" * 100))
            assert await peer.reply(3) == message(b"x" * 100)
            assert here.trial.asked == 1

    run(main())


def test_what_calls_have_held_is_free_again_for_others() -> None:
    async def main() -> None:
        limits = GrpcLimits(message_bytes=20_000, connection_bytes=20_000)
        async with connected(limits=limits) as (_, peer):
            peer.send(frame(WINDOW_UPDATE, payload=(1_000_000).to_bytes(4, "big")))
            for stream in range(1, 21, 2):
                whole = message(b"x" * 10_000)
                peer.send(opening(stream) + frame(DATA, 0, stream, whole[:5000]))
                peer.send(frame(DATA, END_STREAM, stream, whole[5000:]))
                assert await peer.reply(stream) == whole
            for stream in range(21, 31, 2):
                peer.send(opening(stream) + frame(DATA, 0, stream, whole[:5000]))
                peer.send(frame(RST_STREAM, 0, stream, b"\0\0\0\x08"))
            for stream in range(31, 41, 2):
                chat = opening(stream, asking(b"/t.T/Chat"))
                peer.send(chat + frame(DATA, 0, stream, whole[:5000]))
                peer.send(frame(RST_STREAM, 0, stream, b"\0\0\0\x08"))
            peer.send(opening(41) + frame(DATA, 0, 41, whole[:5000]))
            peer.send(frame(DATA, END_STREAM, 41, whole[5000:]))
            assert await peer.reply(41) == whole

    run(main())


def test_a_connection_that_waited_for_a_stream_goes_on_when_the_stream_is_given_up() -> None:
    async def main() -> None:
        async with connected() as (_, peer):
            deaf = opening(1, asking(b"/t.T/Deaf", **{"grpc-timeout": b"50m"}))
            peer.send(deaf + frame(DATA, 0, 1, message(b"x")) * 40)
            await asyncio.sleep(0.01)
            peer.send(call(3))
            assert (await peer.status(1))[b"grpc-status"] == b"4"
            assert await peer.reply(3) == message(b"x")

    run(main())


def test_the_text_of_a_status_is_percent_encoded() -> None:
    async def main() -> None:
        async with connected() as (_, peer):
            peer.send(call(1, b"/t.T/Fail"))
            text = (await peer.status(1))[b"grpc-message"]
            assert text == b"n%C3%B6, 100%25 not there%0A"

    run(main())


def test_the_rest_of_a_request_that_has_failed_is_waved_away() -> None:
    async def main() -> None:
        async with connected() as (_, peer):
            peer.send(opening(1) + frame(DATA, 0, 1, b"\0\xff\xff\xff\xff"))
            assert (await peer.until(RST_STREAM, 1)).code == NO_ERROR
            peer.send(frame(DATA, 0, 1, b"x" * 1000) + call(3))
            assert await peer.reply(3) == message(b"x")

    run(main())


def test_a_reset_cancels_and_a_late_reply_is_not_sent() -> None:
    async def main() -> None:
        async with connected() as (here, peer):
            peer.send(call(1, b"/t.T/Hang"))
            await here.trial.began.wait()
            peer.send(frame(RST_STREAM, 0, 1, b"\0\0\0\x08"))
            await here.trial.cancelled.wait()
            peer.send(frame(PING, payload=b"12345678"))
            while (got := await peer.read()) is not None and got.kind != PING:
                assert got.stream == 0
            assert got is not None
            assert got.flags & ACK

    run(main())


def test_a_reply_follows_the_windows_of_its_caller() -> None:
    async def main() -> None:
        first = PREFACE + settings(x4=10)
        async with connected(first) as (_, peer):
            peer.send(call(1, b"/t.T/Big", b"100000"))
            assert len((await peer.until(DATA, 1)).payload) == 10
            peer.send(frame(WINDOW_UPDATE, 0, 1, (20).to_bytes(4, "big")))
            assert len((await peer.until(DATA, 1)).payload) == 20
            more = (200_000).to_bytes(4, "big")
            peer.send(frame(WINDOW_UPDATE, 0, 1, more) + frame(WINDOW_UPDATE, 0, 0, more))
            assert len(await peer.reply(1)) == 100_005 - 30

    run(main())


def test_a_busy_connection_is_asked_to_be_renewed_and_goes_on_meanwhile() -> None:
    async def main() -> None:
        async with connected() as (here, peer):
            goaways = []
            for stream in range(1, 2 * 3500, 2):
                peer.send(call(stream))
                while (got := await peer.read()) is not None:
                    if got.kind == GOAWAY:
                        goaways.append(got)
                    if got.kind == HEADERS and got.flags & END_STREAM:
                        break
            assert here.trial.asked == 3500
            assert [(one.payload[:4], one.code) for one in goaways] == [
                (b"\x7f\xff\xff\xff", NO_ERROR)
            ]
            frames = await peer.rest()
            assert [one.code for one in frames if one.kind == GOAWAY] == [NO_ERROR]

    run(main(), "uvloop")


def test_a_drain_asks_for_no_more_calls_and_serves_those_on_their_way() -> None:
    async def main() -> None:
        async with connected() as (here, peer):
            peer.send(call(1, b"/t.T/Hang"))
            await here.trial.began.wait()
            draining = asyncio.ensure_future(here.server.drain(20))
            notice = await peer.until(GOAWAY)
            assert notice.payload == b"\x7f\xff\xff\xff\0\0\0\0"
            peer.send(call(3))
            assert await peer.reply(3) == message(b"x")
            here.trial.release.set()
            assert await peer.reply(1) == message(b"x")
            final = await peer.until(GOAWAY)
            assert (final.payload[:4], final.code) == (b"\0\0\0\x03", NO_ERROR)
            assert await peer.rest() == []
            await draining

    run(main())


def test_the_settings_tell_how_many_calls_may_be_made_at_once() -> None:
    async def main() -> None:
        for calls, told in ((7, 7), (1000, 128)):
            async with connected(limits=GrpcLimits(calls=calls)) as (_, peer):
                payload = (await peer.until(SETTINGS)).payload
                pairs = [payload[at : at + 6] for at in range(0, len(payload), 6)]
                values = {int.from_bytes(one[:2], "big"): one[2:] for one in pairs}
                assert int.from_bytes(values[3], "big") == told

    run(main())
