"""The least that a client can be: asyncio's transport, hiredis's parser, and a queue of futures."""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

import hiredis

from benchmarks.redis.contestant import AsyncContestant, AsyncEntry, Quota, WrongAnswerError
from benchmarks.redis.script import SINGLE, arguments

if TYPE_CHECKING:
    from collections.abc import Iterator


class RawConnection(asyncio.Protocol):
    """One connection that all callers share; what is asked in one turn of the loop is one write."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader()
        self._waiting: deque[asyncio.Future[object]] = deque()
        self._unsent: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            waiter = self._waiting.popleft()
            if isinstance(reply, Exception):
                waiter.set_exception(reply)
            else:
                waiter.set_result(reply)

    def ask(self, *command: str | int | bytes) -> asyncio.Future[object]:
        """Send *command*, and promise its reply."""
        if not self._unsent:
            self._loop.call_soon(self._send)
        self._unsent.append(hiredis.pack_command(command))  # type: ignore[arg-type]
        waiter = self._loop.create_future()
        self._waiting.append(waiter)
        return waiter

    def close(self) -> None:
        self._transport.close()

    def _send(self) -> None:
        self._transport.write(b"".join(self._unsent))
        self._unsent.clear()


class Raw(AsyncEntry):
    """No library: the raw protocol, one connection."""

    def __init__(self, connection: RawConnection, sha: bytes, quota: Quota) -> None:
        self._connection = connection
        self._sha = sha
        self._arguments = arguments(quota.amount, quota.seconds)

    @classmethod
    async def enter(cls, url: str, quota: Quota) -> AsyncEntry:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(RawConnection, *place(url))
        sha = cast("bytes", await connection.ask("SCRIPT", "LOAD", SINGLE))
        return cls(connection, sha, quota)

    async def call(self, keys: Iterator[str], until: float) -> int:
        ask, sha = self._connection.ask, self._sha
        increment, tolerance = self._arguments
        checks = 0
        while perf_counter() < until:
            key = next(keys)
            if cast("int", await ask("EVALSHA", sha, 1, key, increment, tolerance)) < 0:
                raise WrongAnswerError(f"{key} was refused")
            checks += 1
        return checks

    async def hit(self, key: str) -> bool:
        reply = self._connection.ask("EVALSHA", self._sha, 1, key, *self._arguments)
        return cast("int", await reply) >= 0

    async def aclose(self) -> None:
        self._connection.close()


def place(url: str) -> tuple[str, int]:
    """Host and port."""
    parts = urlsplit(url)
    return str(parts.hostname), int(parts.port or 0)


RAW = AsyncContestant("raw protocol, hiredis", "bare EVALSHA", "bare", Raw.enter)
