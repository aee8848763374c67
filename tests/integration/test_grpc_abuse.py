"""The gRPC server over a real socket: peers that mean harm lose their connection, and no more."""

from __future__ import annotations

import random

import pytest

from tests.support.grpc_abuse import harm
from tests.support.grpc_server import run
from tests.support.http2_frames import (
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
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


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", PROTOCOL_ERROR),
        (PREFACE[:-1] + b"X" + settings(), PROTOCOL_ERROR),
        (PREFACE + call(1), PROTOCOL_ERROR),
        (PREFACE + frame(SETTINGS, payload=b"12345"), FRAME_SIZE_ERROR),
        (PREFACE + frame(SETTINGS, 1, payload=b"123456"), FRAME_SIZE_ERROR),
        (PREFACE + frame(SETTINGS, stream=1), PROTOCOL_ERROR),
        (PREFACE + settings(x4=2**31), FLOW_CONTROL_ERROR),
        (PREFACE + settings(x5=1), PROTOCOL_ERROR),
    ],
)
def test_a_bad_beginning_is_told_and_ended(sent: bytes, code: int) -> None:
    async def main() -> None:
        async with harm(sent) as (_, peer):
            assert await peer.last_words() == code

    run(main())


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(DATA, 0, 1, b"x" * 16_385), FRAME_SIZE_ERROR),
        (b"\xff\xff\xff\0\0\0\0\0\x01", FRAME_SIZE_ERROR),
        (frame(PING, payload=b"1234567"), FRAME_SIZE_ERROR),
        (frame(PING, stream=1, payload=b"12345678"), PROTOCOL_ERROR),
        (frame(RST_STREAM, 0, 1, b"\0\0\0\x08"), PROTOCOL_ERROR),
        (frame(RST_STREAM, 0, 1, b"\0"), FRAME_SIZE_ERROR),
        (frame(GOAWAY, payload=b"\0" * 7), FRAME_SIZE_ERROR),
        (frame(WINDOW_UPDATE, payload=b"\0\0\0"), FRAME_SIZE_ERROR),
        (frame(WINDOW_UPDATE, payload=b"\0\0\0\0"), PROTOCOL_ERROR),
        (frame(WINDOW_UPDATE, payload=b"\x7f\xff\xff\xff"), FLOW_CONTROL_ERROR),
        (frame(WINDOW_UPDATE, 0, 7, b"\0\0\0\x01"), PROTOCOL_ERROR),
        (frame(HEADERS, END_HEADERS, 0, block(asking())), PROTOCOL_ERROR),
        (frame(HEADERS, END_HEADERS, 2, block(asking())), PROTOCOL_ERROR),
        (frame(HEADERS, END_HEADERS | 8, 1, b"\xff"), PROTOCOL_ERROR),
        (frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"), COMPRESSION_ERROR),
        (frame(HEADERS, END_HEADERS, 1, b"\x80"), COMPRESSION_ERROR),
        (frame(CONTINUATION, END_HEADERS, 1), PROTOCOL_ERROR),
        (frame(HEADERS, 0, 1) + frame(PING, payload=b"12345678"), PROTOCOL_ERROR),
        (frame(HEADERS, 0, 1) + frame(CONTINUATION, 0, 3), PROTOCOL_ERROR),
        (frame(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\x02"), PROTOCOL_ERROR),
        (frame(DATA, 0, 0, b"x"), PROTOCOL_ERROR),
        (frame(PRIORITY, 0, 0, b"\0\0\0\0\1"), PROTOCOL_ERROR),
        (frame(DATA, 0, 1, b"x"), PROTOCOL_ERROR),
        (call(3) + call(1), PROTOCOL_ERROR),
    ],
)
def test_a_malformed_frame_ends_the_connection_with_its_reason(sent: bytes, code: int) -> None:
    async def main() -> None:
        async with harm() as (_, peer):
            peer.send(sent)
            assert await peer.last_words() == code

    run(main())


@pytest.mark.parametrize(
    "sent",
    [
        opening(1, [(b":method", b"POST")]),
        opening(1, [*asking(), (b"Upper", b"x")]),
        opening(1, [*asking(), (b"connection", b"close")]),
        opening(1, [*asking(), (b"x", b"a\r\nb")]),
        opening(1, [*asking(), (b":path", b"/twice")]),
        opening(1) + frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\0"),
        opening(1) + frame(WINDOW_UPDATE, 0, 1, b"\x7f\xff\xff\xff"),
        opening(1, [*asking(), (b"content-length", b"3")]) + frame(DATA, END_STREAM, 1, b"x"),
        opening(1, flags=END_HEADERS | END_STREAM) + frame(DATA, END_STREAM, 1, b"x"),
    ],
)
def test_a_malformed_call_is_reset_and_the_connection_goes_on(sent: bytes) -> None:
    async def main() -> None:
        async with harm() as (here, peer):
            peer.send(sent)
            await peer.until(RST_STREAM, 1)
            assert here.trial.asked == 0
            peer.send(call(3))
            assert await peer.reply(3) == message(b"x")

    run(main())


def pieces(written: bytes, size: int) -> bytes:
    """HEADERS and as many CONTINUATIONs as *written* needs."""
    parts = [written[at : at + size] for at in range(0, len(written), size)]
    middle = b"".join(frame(CONTINUATION, 0, 1, part) for part in parts[1:])
    return frame(HEADERS, 0, 1, parts[0]) + middle


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(
            pieces(block([(b"x-%d" % n, b"y" * 1000) for n in range(200)]), 16_000),
            id="large headers",
        ),
        pytest.param(pieces(b"\0" * 100, 1), id="continuation flood"),
        pytest.param(frame(HEADERS, 0, 1) + frame(CONTINUATION, 0, 1) * 9999, id="empty ones"),
        pytest.param(frame(PING, payload=b"12345678") * 5000, id="ping flood"),
        pytest.param(settings() * 5000, id="settings flood"),
        pytest.param(opening(1) + frame(DATA, 0, 1) * 50_000, id="empty data flood"),
        pytest.param(frame(PRIORITY, 0, 1, b"\0\0\0\0\1") * 50_000, id="priority flood"),
        pytest.param(frame(0x42, 0, 1) * 50_000, id="unknown frames"),
        pytest.param(
            opening(1) + frame(DATA, 0, 1, b"\0\0\x10\0\0") + frame(DATA, 0, 1, b"x") * 5000,
            id="crumbs of data",
        ),
        pytest.param(
            opening(1) + frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\x01") * 5000, id="window updates"
        ),
        pytest.param(call(1) + frame(DATA, 0, 1, b"x") * 5000, id="data for a call that has ended"),
        pytest.param(b"".join(opening(n) for n in range(1, 9999, 2)), id="calls beyond the cap"),
        pytest.param(
            b"".join(opening(n) + frame(RST_STREAM, 0, n, b"\0\0\0\x08") for n in range(1, 999, 2)),
            id="rapid reset",
        ),
        pytest.param(
            b"".join(
                call(n, b"/t.T/Hang") + frame(RST_STREAM, 0, n, b"\0\0\0\x08")
                for n in range(1, 999, 2)
            ),
            id="rapid reset of running calls",
        ),
        pytest.param(
            b"".join(
                opening(n) + frame(WINDOW_UPDATE, 0, n, b"\0\0\0\0") for n in range(1, 999, 2)
            ),
            id="resets that we are made to send",
        ),
    ],
)
def test_a_flood_ends_the_connection_with_enhance_your_calm(sent: bytes) -> None:
    async def main() -> None:
        async with harm() as (_, peer):
            peer.send(sent)
            assert await peer.last_words() == ENHANCE_YOUR_CALM

    run(main())


@pytest.mark.parametrize("seed", range(4))
def test_garbled_traffic_harms_nobody_else(seed: int) -> None:
    chance = random.Random(seed)
    good = PREFACE + settings(x4=100) + call(1) + call(3, b"/t.T/Chat") + call(5, b"/t.T/Hang")
    good += opening(7) + frame(PING, payload=b"12345678") + frame(WINDOW_UPDATE, 0, 1, b"\0\0\1\0")

    async def main() -> None:
        async with harm() as (here, _):
            for _ in range(100):
                garbled = bytearray(good)
                for _ in range(chance.randint(1, 6)):
                    garbled[chance.randrange(24, len(good))] = chance.randrange(256)
                peer = await Peer.connect(
                    here.port, bytes(garbled[: chance.randint(30, len(good))])
                )
                peer.writer.write_eof()
                await peer.rest()
                await peer.close()

    run(main())
