"""HTTP/2 by hand: a peer that sends what it likes, frame by frame."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = range(5)
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(5, 10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR = 0, 1, 3, 6
REFUSED_STREAM, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 7, 9, 11
_STATIC_NAMES = {8: b":status", 22: b"allow", 31: b"content-type"}
Fields = list[tuple[bytes, bytes]]


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def code(self) -> int:
        """The error code of a RST_STREAM or a GOAWAY."""
        at = 4 if self.kind == GOAWAY else 0
        return int.from_bytes(self.payload[at : at + 4], "big")

    @property
    def fields(self) -> dict[bytes, bytes]:
        """The headers, written as our server writes them: no table, no Huffman."""
        found, rest = {}, self.payload
        while rest:
            index, rest = rest[0], rest[1:]
            if index == 15:
                index, rest = 15 + rest[0], rest[1:]
            if index:
                name = _STATIC_NAMES[index]
            else:
                name, rest = rest[1 : 1 + rest[0]], rest[1 + rest[0] :]
            found[name], rest = rest[1 : 1 + rest[0]], rest[1 + rest[0] :]
        return found


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags))
    return head + stream.to_bytes(4, "big") + payload


def settings(**values: int) -> bytes:
    """A SETTINGS frame: `settings(x4=0)` is INITIAL_WINDOW_SIZE 0."""
    pairs = (
        int(name[1:]).to_bytes(2, "big") + value.to_bytes(4, "big")
        for name, value in values.items()
    )
    return frame(SETTINGS, payload=b"".join(pairs))


def _string(value: bytes) -> bytes:
    length = len(value)
    if length < 127:
        return bytes((length,)) + value
    written, length = bytearray((127,)), length - 127
    while length > 127:
        written.append(length % 128 + 128)
        length //= 128
    return bytes(written) + bytes((length,)) + value


def block(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """HPACK: literals that are not indexed."""
    return b"".join(b"\0" + _string(name) + _string(value) for name, value in fields)


def asking(path: bytes = b"/t.T/Echo", **changed: bytes | None) -> Fields:
    """The headers of a gRPC call; *changed* by name (`content_type=None` leaves it out)."""
    fields: dict[bytes, bytes | None] = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": path,
        b":authority": b"here",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
    }
    for name, value in changed.items():
        key = name.replace("_", "-").encode()
        fields[b":" + key if b":" + key in fields else key] = value
    return [(name, value) for name, value in fields.items() if value is not None]


def opening(stream: int, fields: Fields | None = None, flags: int = END_HEADERS) -> bytes:
    """The HEADERS of a call."""
    return frame(HEADERS, flags, stream, block(asking() if fields is None else fields))


def message(body: bytes) -> bytes:
    return b"\0" + len(body).to_bytes(4, "big") + body


def call(stream: int, path: bytes = b"/t.T/Echo", body: bytes = b"x") -> bytes:
    """A whole call."""
    return opening(stream, asking(path)) + frame(DATA, END_STREAM, stream, message(body))


class Peer:
    """A connection. It has sent the preface and *first*, unless told otherwise."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, first: bytes | None = None) -> Peer:
        peer = cls(*await asyncio.open_connection("127.0.0.1", port))
        peer.send(PREFACE + settings() if first is None else first)
        return peer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def read(self) -> Frame | None:
        """The next frame; None if the connection is closed."""
        try:
            head = await self.reader.readexactly(9)
            payload = await self.reader.readexactly(int.from_bytes(head[:3], "big"))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return Frame(head[3], head[4], int.from_bytes(head[5:9], "big"), payload)

    async def until(self, kind: int, stream: int | None = None) -> Frame:
        """The next frame of *kind*, on *stream* if one is given."""
        while (got := await self.read()) is not None:
            if got.kind == kind and stream in (None, got.stream):
                return got
        raise AssertionError(f"the connection was closed before a frame of kind {kind} came")

    async def rest(self) -> list[Frame]:
        """All that comes until the connection is closed."""
        frames = []
        while (got := await self.read()) is not None:
            frames.append(got)
        return frames

    async def last_words(self) -> int:
        """The error code of the GOAWAY with which the connection is closed."""
        return next(got.code for got in reversed(await self.rest()) if got.kind == GOAWAY)

    async def status(self, stream: int) -> dict[bytes, bytes]:
        """The trailers of *stream*."""
        while True:
            got = await self.until(HEADERS, stream)
            if got.flags & END_STREAM:
                return got.fields

    async def reply(self, stream: int) -> bytes:
        """What a call is answered, prefix and all; its status must be OK."""
        got = b""
        while True:
            one = await self.read()
            assert one is not None
            if one.stream == stream and one.kind == DATA:
                got += one.payload
            if one.stream == stream and one.kind == HEADERS and one.flags & END_STREAM:
                assert one.fields[b"grpc-status"] == b"0"
                return got

    async def close(self) -> None:
        self.writer.close()
        await asyncio.gather(self.writer.wait_closed(), return_exceptions=True)
