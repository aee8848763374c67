"""One direction of one connection through the proxy: what is passed on, when, and how it ends."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

_CHUNK = 65_536

Ending = Literal["close", "reset", "hang"]
"""What becomes of a connection that is cut: it ends in order, with a RST, or not at all."""


@dataclass(frozen=True, slots=True)
class Conduct:
    """How bytes of one direction are treated.

    They come *delay_ms* later, and up to *jitter_ms* more, but in order. If *is_lossy*, none
    comes at all. After *cut_after* bytes of a connection, none comes any more, and it ends as
    *then* says. No more than *piece* bytes come at once, each *every_ms* after those before.
    """

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    is_lossy: bool = False
    cut_after: int | None = None
    then: Ending = "close"
    piece: int | None = None
    every_ms: float = 0.0


PASSING = Conduct()


class Flow:
    """Pass on what *reader* gets to *writer*, as `conduct()` says at that moment.

    *flowing* is unset while nothing gets through. *seen* is told what came in, *end* is called
    when this direction is over, with whether by a RST.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        conduct: Callable[[], Conduct],
        flowing: asyncio.Event,
        chance: random.Random,
        seen: Callable[[bytes], None],
        end: Callable[[bool], None],
    ) -> None:
        self._reader, self._writer = reader, writer
        self._conduct, self._flowing, self._chance = conduct, flowing, chance
        self._seen, self._end = seen, end
        self._queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        self._last_due = 0.0
        self._followed = PASSING
        self._passed = 0

    async def read(self) -> None:
        """Take in what comes, with the time when it is due; nothing at the end."""
        data = b"."
        while data:
            data = b""
            with suppress(OSError):
                data = await self._reader.read(_CHUNK)
            if data:
                self._seen(data)
            self._queue.put_nowait((self._due(), data))

    async def write(self) -> None:
        """Pass on what is due, until the end or until the connection is cut."""
        while True:
            due, data = await self._queue.get()
            await asyncio.sleep(max(due - asyncio.get_running_loop().time(), 0.0))
            await self._flowing.wait()
            if not data:
                self._end(False)
                return
            try:
                if not await self._pass(data):
                    return
            except OSError:
                self._end(False)
                return

    def _due(self) -> float:
        conduct = self._conduct()
        late_ms = conduct.delay_ms + conduct.jitter_ms * self._chance.random()
        now = asyncio.get_running_loop().time()
        self._last_due = max(self._last_due, now + late_ms / 1_000)
        return self._last_due

    async def _pass(self, data: bytes) -> bool:
        """Pass *data* on, or lose it; whether more may come."""
        conduct = self._conduct()
        if conduct is not self._followed:
            self._followed, self._passed = conduct, 0
        if conduct.is_lossy:
            return True
        left = len(data) if conduct.cut_after is None else conduct.cut_after - self._passed
        await self._send(data[: max(left, 0)], conduct)
        self._passed += len(data)
        if conduct.cut_after is None or self._passed < conduct.cut_after or conduct.then == "hang":
            return True
        self._end(conduct.then == "reset")
        return False

    async def _send(self, data: bytes, conduct: Conduct) -> None:
        size = conduct.piece or max(len(data), 1)
        for start in range(0, len(data), size):
            if start and conduct.every_ms:
                await asyncio.sleep(conduct.every_ms / 1_000)
            self._writer.write(data[start : start + size])
            await self._writer.drain()
