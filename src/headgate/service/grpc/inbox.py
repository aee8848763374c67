"""Messages of a caller that wait for a method to take them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

BACKLOG: Final = 16
"""Messages that may wait before the caller has to."""
BACKLOG_BYTES: Final = 1 << 22
"""Bytes of messages that may wait so."""


class Inbox:
    """The messages of a caller, in the order in which they came; an iterator that is read once.

    `on_low` and `on_high` are called when the backlog has become small, and large, `on_taken` with
    the length of each message that is handed out.
    """

    def __init__(
        self,
        *,
        on_high: Callable[[], None],
        on_low: Callable[[], None],
        on_taken: Callable[[int], None] | None = None,
    ) -> None:
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._is_closed = False
        self._is_high = False
        self._reader: asyncio.Future[None] | None = None
        self._on_high, self._on_low, self._on_taken = on_high, on_low, on_taken

    def put(self, message: bytes) -> bool:
        """One more; after `close` it is not taken any more, which is what it says."""
        if self._is_closed:
            return False
        self._waiting.append(message)
        self._size += len(message)
        is_large = len(self._waiting) > BACKLOG or self._size > BACKLOG_BYTES
        if is_large and not self._is_high:
            self._is_high = True
            self._on_high()
        self._wake()
        return True

    def close(self) -> None:
        """No more will come. What is there is still handed out."""
        self._is_closed = True
        self._wake()

    def clear(self) -> None:
        """Close it, and throw away what is there."""
        self.close()
        self._waiting.clear()
        self._size = 0
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
        self._size -= len(message)
        if len(self._waiting) <= BACKLOG // 2 and self._size <= BACKLOG_BYTES // 2:
            self._lower()
        if self._on_taken is not None:
            self._on_taken(len(message))
        return message

    def _lower(self) -> None:
        if self._is_high:
            self._is_high = False
            self._on_low()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
