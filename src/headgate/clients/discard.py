"""Reading a denial to its end before the retry, so that its connection can be used again.

An unread body makes a connection useless. But a server that sends its denial a byte at a time must
not hold a call for longer than it may wait. So the number of bytes and the time are bounded; a
response beyond either is closed, with its connection.
"""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.clock import Clock

MAX_BYTES: Final = 65_536
"""The most bytes of a denial that are read."""

MAX_SECONDS: Final = 1.0
"""The most seconds that this takes; less if the call has less time left."""


class DiscardBudget:
    """The bytes and the seconds, on the clock *now_ns*, for reading one body."""

    __slots__ = ("_now_ns", "_read", "_until_ns", "seconds")

    def __init__(self, time_left: float, now_ns: Clock) -> None:
        self.seconds = min(time_left, MAX_SECONDS)
        self._now_ns = now_ns
        self._until_ns = now_ns() + round(self.seconds * SECOND)
        self._read = 0

    def allows_more(self, read: int = 0) -> bool:
        """Add *read* bytes; return True if more may be read."""
        self._read += read
        return self._read <= MAX_BYTES and self._now_ns() < self._until_ns

    @contextmanager
    def watch(self, sock: object) -> Iterator[None]:
        """Shut *sock* down if the block takes too long, which ends a read that blocks.

        A socket timeout does not help: it starts again with each byte. The connection must go back
        to its pool after the block, not in it, or the socket of another call could be shut down.
        Anything but a socket is not watched.
        """
        if not isinstance(sock, socket.socket):
            yield
            return
        lock, ended = threading.Lock(), threading.Event()

        def shut_down() -> None:
            with lock, suppress(OSError):
                if not ended.is_set():
                    # Not its own method: that of a TLS socket is not safe in another thread.
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)

        timer = threading.Timer(self.seconds, shut_down)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            with lock:
                ended.set()
            timer.cancel()
