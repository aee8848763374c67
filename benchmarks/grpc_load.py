"""A gRPC client that is cheap enough to load a server: unary calls as prepared HTTP/2 frames.

h2load sends the same body over and over, so it cannot play many callers.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Final, cast

from tests.support.http2_frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    asking,
    block,
    frame,
    message,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

CONNECTIONS: Final = 4
IN_FLIGHT: Final = 25
"""Calls on a connection at a time."""
CALLS_PER_CONNECTION: Final = 2_500
"""The lean server asks for a new connection after 3,072 calls."""
_PREFIX: Final = 5
_OPENING: Final = (
    PREFACE + frame(SETTINGS) + frame(WINDOW_UPDATE, payload=(2**30).to_bytes(4, "big"))
)


@dataclass(frozen=True, slots=True)
class Target:
    """Where the calls go, what they ask, and how every reply begins if all is well."""

    port: int
    path: str
    bodies: Sequence[bytes]
    reply: bytes = b""


@dataclass(slots=True)
class _Connection(asyncio.Protocol):
    """Takes the next call of *queue* whenever one is answered, if *refill*."""

    target: Target
    queue: Iterator[bytes]
    refill: bool
    answered: Callable[[float], None]
    closed: asyncio.Future[None]
    _headers: bytes = b""
    _left: int = CALLS_PER_CONNECTION
    _stream: int = -1
    _sent: dict[int, float] = field(default_factory=dict)
    _received: bytearray = field(default_factory=bytearray)
    _transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)
        self._headers = block(asking(self.target.path.encode()))
        self._transport.write(_OPENING)
        if self.refill:
            self._write([call for _ in range(IN_FLIGHT) if (call := self._next(perf_counter()))])

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_exception(exc or ConnectionError("the server closed the connection"))

    def call(self, due: float) -> None:
        """Send the next call, whose time counts from *due*."""
        self._write([self._next(due)])

    @property
    def is_idle(self) -> bool:
        return not self._sent

    def data_received(self, data: bytes) -> None:
        received, now = self._received, perf_counter()
        received += data
        at, calls = 0, []
        while len(received) - at >= 9:
            length = int.from_bytes(received[at : at + 3], "big")
            end = at + 9 + length
            if len(received) < end:
                break
            kind, flags = received[at + 3], received[at + 4]
            if kind == DATA:
                reply = received[at + 9 + _PREFIX : end]
                assert reply.startswith(self.target.reply), bytes(reply)
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                stream = int.from_bytes(received[at + 5 : at + 9], "big")
                self.answered(now - self._sent.pop(stream))
                calls.append(self._next(now) if self.refill else b"")
            elif kind not in (DATA, HEADERS):
                calls.append(self._control(kind, flags, bytes(received[at + 9 : end])))
            at = end
        del received[:at]
        self._write(calls)
        if self.refill and not self._sent:
            self._close()

    def _control(self, kind: int, flags: int, payload: bytes) -> bytes:
        assert kind not in (GOAWAY, RST_STREAM), (kind, payload)
        if kind in (SETTINGS, PING) and not flags & ACK:
            return frame(kind, ACK, payload=payload if kind == PING else b"")
        return b""

    def _next(self, now: float) -> bytes:
        body = next(self.queue, None) if self._left else None
        if body is None:
            return b""
        self._left -= 1
        self._stream += 2
        self._sent[self._stream] = now
        return frame(HEADERS, END_HEADERS, self._stream, self._headers) + frame(
            DATA, END_STREAM, self._stream, message(body)
        )

    def _write(self, calls: list[bytes]) -> None:
        assert self._transport is not None
        self._transport.write(b"".join(calls))

    def _close(self) -> None:
        assert self._transport is not None
        if not self.closed.done():
            self.closed.set_result(None)
        self._transport.close()


async def _connect(
    target: Target, queue: Iterator[bytes], answered: Callable[[float], None], *, refill: bool
) -> _Connection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(
        lambda: _Connection(target, queue, refill, answered, loop.create_future()),
        "127.0.0.1",
        target.port,
    )
    return connection


async def full_load(target: Target, calls: int) -> int:
    """Make *calls* calls, 100 at a time; how many were answered."""
    queue = itertools.islice(itertools.cycle(target.bodies), calls)
    times: list[float] = []

    async def connections() -> None:
        while True:
            before = len(times)
            connection = await _connect(target, queue, times.append, refill=True)
            if connection.is_idle:
                connection._close()
                return
            await connection.closed
            assert len(times) > before

    await asyncio.gather(*(connections() for _ in range(CONNECTIONS)))
    return len(times)


async def paced_load(target: Target, rate: int, seconds: float) -> list[float]:
    """Make *rate* calls a second, due at even times; how long each took after it was due."""
    total = int(rate * seconds)
    assert total <= CONNECTIONS * CALLS_PER_CONNECTION, "too many for the connections"
    queue = itertools.islice(itertools.cycle(target.bodies), total)
    times: list[float] = []
    connections = [
        await _connect(target, queue, times.append, refill=False) for _ in range(CONNECTIONS)
    ]
    began = perf_counter() + 0.05
    for number in range(total):
        due = began + number / rate
        if (wait := due - perf_counter()) > 0:
            await asyncio.sleep(wait)
        connections[number % CONNECTIONS].call(due)
    deadline = perf_counter() + 5
    while not all(one.is_idle for one in connections):
        assert perf_counter() < deadline, "calls were not answered within 5 seconds"
        await asyncio.sleep(0.01)
    for one in connections:
        one._close()
    return times
