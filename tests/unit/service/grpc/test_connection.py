"""Calls come out the same however their frames are cut and mixed."""

from __future__ import annotations

import asyncio
import errno
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.service.grpc.connection import Connection
from headgate.service.grpc.server import GrpcServer
from tests.examples import example_count
from tests.support import http2_frames as h2
from tests.support.byte_transport import ByteTransport
from tests.support.http2_frames import DATA, END_STREAM, frame, message, opening

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.service.grpc.method import Methods

Frames = list[bytes]
"""The frames of one call, in their order."""


def call(stream: int, shape: str) -> Frames:
    """A call whose message is its number, in one of the shapes that calls may have."""
    whole = message(b"%d" % stream)
    head, cancel = opening(stream), frame(h2.RST_STREAM, 0, stream, b"\0\0\0\x08")
    rest = {
        "at once": [frame(DATA, END_STREAM, stream, whole)],
        "an empty end": [frame(DATA, 0, stream, whole), frame(DATA, END_STREAM, stream)],
        "in pieces": [
            frame(DATA, 0, stream, whole[:3]),
            frame(DATA, 0, stream, whole[3:5]),
            frame(DATA, END_STREAM, stream, whole[5:]),
        ],
        "cancelled": [cancel],
        "cancelled late": [frame(DATA, END_STREAM, stream, whole), cancel],
        "nothing": [frame(DATA, END_STREAM, stream)],
        "two messages": [frame(DATA, END_STREAM, stream, whole + whole)],
    }[shape]
    return [head, *rest]


def mixed(calls: Sequence[Frames], order: Iterable[int]) -> bytes:
    """The frames of all *calls*, heads in the order of streams, the rest as *order* has it."""
    left = [list(frames) for frames in calls]
    sent, opened = h2.PREFACE + h2.settings(), 0
    for number in order:
        place = number % len(left)
        if opened <= place:  # a stream is opened after those of lower numbers
            sent += b"".join([frames.pop(0) for frames in left[opened : place + 1]])
            opened = place + 1
        elif left[place]:
            sent += left[place].pop(0)
    return sent + b"".join(each for frames in left for each in frames)


def answers(sent: bytes, cuts: Iterable[int], *, is_waiting: bool) -> dict[int, list[Any]]:
    """What comes back on each stream: kinds of frames, and the bytes of messages."""

    async def later(body: bytes) -> bytes:
        return body

    async def talk() -> bytes:
        methods: Methods = {"/t.T/Echo": later if is_waiting else bytes}
        connection, transport = Connection(GrpcServer(methods, {})), ByteTransport()
        connection.connection_made(transport)
        places = sorted({0, *(cut % len(sent) for cut in cuts), len(sent)})
        for start, end in pairwise(places):
            connection.data_received(sent[start:end])
        for _ in range(5):
            await asyncio.sleep(0)
        assert not connection._calls
        return bytes(transport.written)

    return _by_stream(asyncio.run(talk()))


def _by_stream(written: bytes) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    while written:
        size, kind, stream = int.from_bytes(written[:3], "big"), written[3], written[5:9]
        payload, written = written[9 : 9 + size], written[9 + size :]
        if kind in (DATA, h2.HEADERS):
            found.setdefault(int.from_bytes(stream, "big"), []).append((kind, payload))
    return found


answered = ("at once", "an empty end", "in pieces")
refused = ("nothing", "two messages")
shapes = st.sampled_from([*answered, *refused, "cancelled", "cancelled late"])


@settings(max_examples=example_count(150), deadline=None)
@example(several=["an empty end", "nothing"], order=[1, 0, 1, 0], cuts=[], is_waiting=False)
@given(
    st.lists(shapes, min_size=1, max_size=5),
    st.lists(st.integers(0, 4), max_size=15),
    st.lists(st.integers(0, 2**16), max_size=6),
    st.booleans(),
)
def test_calls_are_answered_however_their_frames_come(
    several: list[str], order: list[int], cuts: list[int], is_waiting: bool
) -> None:
    calls = [call(2 * n + 1, shape) for n, shape in enumerate(several)]
    replies = answers(mixed(calls, order), cuts, is_waiting=is_waiting)
    for n, shape in enumerate(several):
        stream = 2 * n + 1
        if shape in answered or (shape == "cancelled late" and not is_waiting):
            head, body, end = replies[stream]
            assert (head[0], body) == (h2.HEADERS, (DATA, message(b"%d" % stream)))
            assert end[1].endswith(b"grpc-status\x010")
        elif shape in refused:
            ((kind, fields),) = replies[stream]
            assert kind == h2.HEADERS
            assert b"grpc-status\x0212" in fields
        else:
            assert stream not in replies


class GoneTransport(ByteTransport):
    """Its peer has gone, and asyncio has not noticed."""

    def write_eof(self) -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")


def test_a_connection_whose_peer_has_gone_can_be_finished() -> None:
    async def main() -> None:
        connection, transport = Connection(GrpcServer({}, {})), GoneTransport()
        connection.connection_made(transport)
        connection.finish()
        assert transport.is_closed

    asyncio.run(main())
