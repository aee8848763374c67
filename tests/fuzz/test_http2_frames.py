"""Any frames to the gRPC server: well-formed frames come back, or the connection ends."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.service.grpc.connection import Connection
from headgate.service.grpc.method import GrpcLimits
from headgate.service.grpc.server import GrpcServer
from tests.support import http2_frames as h2
from tests.support.byte_transport import ByteTransport
from tests.support.fuzzing import Changes, bounded, changed, changes, fuzz_count
from tests.support.grpc_server import Trial
from tests.support.http2_frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    RST_STREAM,
    WINDOW_UPDATE,
    asking,
    block,
    call,
    frame,
    message,
    opening,
)
from tests.support.rls_client import Asker, desc, request

if TYPE_CHECKING:
    from collections.abc import Sequence

RLS = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
PATHS = ("/t.T/Echo", "/t.T/Later", "/t.T/Hang", "/t.T/Big", "/t.T/Chat", "/t.T/Ticks", RLS, "/no")
LIMITS = GrpcLimits(message_bytes=4096, connection_bytes=16_384, calls=4)
ASKER = Asker("version: 1\nrules: [{id: a, key_by: global, limit: 100/s}]\n")
CALL = message(request("headgate", desc("path=/a", "remote_address=192.0.2.1")))

streams = st.integers(0, 9)
numbers = st.sampled_from([0, 1, 2, 100, 16_384, 65_535, 2**31 - 1, 2**31, 2**32 - 1])
bodies = st.sampled_from([b"", message(b"10"), message(b"x" * 5000), CALL, b"\1\0\0\0\1x"])
names = st.sampled_from([b"te", b"grpc-timeout", b"content-length", b":path", b"X", b"connection"])
extras = st.lists(st.tuples(names, st.binary(max_size=9) | st.just(b"1m")), max_size=2)
heads = st.builds(
    lambda path, more: block([*asking(path.encode()), *more]), st.sampled_from(PATHS), extras
)
frames = st.one_of(
    st.builds(frame, st.integers(0, 11), st.integers(0, 255), streams, st.binary(max_size=20)),
    st.builds(
        lambda stream, head, end: frame(HEADERS, END_HEADERS | end, stream, head),
        *(streams, heads, st.sampled_from([0, END_STREAM])),
    ),
    st.builds(
        lambda stream, head, at: (
            frame(HEADERS, 0, stream, head[:at])
            + frame(CONTINUATION, END_HEADERS, stream, head[at:])
        ),
        *(streams, heads, st.integers(0, 60)),
    ),
    st.builds(
        lambda stream, body, end: frame(DATA, end, stream, body),
        *(streams, bodies, st.sampled_from([0, END_STREAM])),
    ),
    st.builds(lambda stream, path: call(stream, path.encode()), streams, st.sampled_from(PATHS)),
    st.builds(
        lambda kind, stream, number: frame(kind, 0, stream, number.to_bytes(4, "big")),
        *(st.sampled_from([WINDOW_UPDATE, RST_STREAM]), streams, numbers),
    ),
    st.builds(lambda name, value: h2.settings(**{f"x{name}": value}), st.integers(0, 10), numbers),
    st.builds(lambda text: frame(PING, 0, 0, text), st.binary(min_size=8, max_size=8)),
    st.just(frame(GOAWAY, 0, 0, bytes(8))),
    st.binary(max_size=12),
)


def whole_frames(written: bytes) -> list[tuple[int, int]]:
    """Kind and stream of each frame in *written*, which must have nothing else in it."""
    found = []
    while written:
        size = int.from_bytes(written[:3], "big")
        assert size <= 16_384
        assert len(written) >= 9 + size
        found.append((written[3], int.from_bytes(written[5:9], "big")))
        written = written[9 + size :]
    return found


async def attack(sent: bytes, cuts: Sequence[int]) -> list[tuple[int, int]]:
    """Send *sent*, cut into pieces; kind and stream of each frame that comes back."""
    trial, errors = Trial(), []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    methods: Any = {**trial.methods(), RLS: ASKER.calls.should_rate_limit}
    chats: Any = {path: method for path, method in trial.streams().items() if path in PATHS}
    server = GrpcServer(methods, chats, limits=LIMITS)
    connection, transport = Connection(server), ByteTransport()
    connection.connection_made(transport)
    for start, end in pairwise(sorted({0, *(cut % len(sent) for cut in cuts), len(sent)})):
        if not transport.is_closed:
            connection.data_received(sent[start:end])
        await asyncio.sleep(0)
        assert len(connection._calls) <= LIMITS.calls
        assert server.held == connection.held <= LIMITS.connection_bytes
        assert len(transport.written) < 1_000_000
    connection.tick(loop.time())
    trial.release.set()
    for _ in range(10):
        await asyncio.sleep(0)
    found = whole_frames(bytes(transport.written))
    connection.connection_lost(None)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not connection._calls
    assert not server.connections
    assert server.held == 0
    assert not errors
    return found


def test_undamaged_traffic_is_answered() -> None:
    for size in (1, len(GOOD)):
        found = asyncio.run(attack(GOOD, range(0, len(GOOD), size)))
        assert {stream for kind, stream in found if kind == DATA} >= {1, 3, 7}
        assert GOAWAY not in [kind for kind, _ in found]


def attacked(sent: bytes, cuts: Sequence[int]) -> None:
    with bounded():
        asyncio.run(attack(sent, cuts))


cuts = st.lists(st.integers(0, 2**16), max_size=4)


@settings(max_examples=fuzz_count(400))
@given(st.lists(frames, max_size=14), cuts)
@example([call(1, b"/t.T/Hang"), opening(3), frame(RST_STREAM, 0, 1, bytes(4))] * 3, [])
@example([frame(HEADERS, 0, 1, b""), *[frame(CONTINUATION, 0, 1)] * 12], [30])
def test_any_frames_are_answered_or_end_the_connection(several: list[bytes], at: list[int]) -> None:
    attacked(h2.PREFACE + h2.settings() + b"".join(several), at)


GOOD = (
    h2.PREFACE
    + h2.settings(x4=100)
    + call(1)
    + call(3, b"/t.T/Chat", b"hello")
    + opening(5, asking(b"/t.T/Ticks", grpc_timeout=b"1S"))
    + frame(PING, payload=b"12345678")
    + frame(WINDOW_UPDATE, 0, 1, b"\0\0\1\0")
    + opening(7, asking(RLS.encode()))
    + frame(DATA, END_STREAM, 7, CALL)
    + frame(RST_STREAM, 0, 5, b"\0\0\0\x08")
)


@settings(max_examples=fuzz_count(400))
@given(changes(len(GOOD), st.binary(max_size=4)), cuts)
def test_damaged_traffic_is_answered_or_ends_the_connection(
    several: Changes, at: list[int]
) -> None:
    attacked(changed(GOOD, several) or b"\0", at)
