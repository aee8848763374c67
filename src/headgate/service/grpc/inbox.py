"""Messages of a caller that wait for a method to take them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

BACKLOG: Final = 16
"""Messages that may wait before the caller has to."""


class Inbox:
    """The messages of a caller, in the order in which they came; an iterator that is read once.

    `on_low` and `on_high` are called when the backlog has become small, and large.
    """

    def __init__(self, *, on_high: Callable[[], None], on_low: Callable[[], None]) -> None:
        self._waiting: deque[bytes] = deque()
        self._is_closed = False
        self._is_high = False
        self._reader: asyncio.Future[None] | None = None
        self._on_high, self._on_low = on_high, on_low

    def put(self, message: bytes) -> None:
        """One more; after `close` it is not taken any more."""
        if self._is_closed:
            return
        self._waiting.append(message)
        if len(self._waiting) > BACKLOG and not self._is_high:
            self._is_high = True
            self._on_high()
        self._wake()

    def close(self) -> None:
        """No more will come. What is there is still handed out."""
        self._is_closed = True
        self._wake()

    def clear(self) -> None:
        """Close it, and throw away what is there."""
        self.close()
        self._waiting.clear()
        self._lower()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._waiting:
            if self._is_closed:
                raise StopAsyncIteration
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        message = self._waiting.popleft()
        if len(self._waiting) <= BACKLOG // 2:
            self._lower()
        return message

    def _lower(self) -> None:
        if self._is_high:
            self._is_high = False
            self._on_low()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
