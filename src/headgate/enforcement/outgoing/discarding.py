"""How much of a refusal is read off before it is asked for again, so that its connection can be.

What is left unread makes the connection useless; but a server that sends its refusal a byte at a
time must not hold a call for longer than it would wait. So there is a bound in bytes and one in
time, and what goes beyond either is closed instead.
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

READ_OFF: Final = 65_536
"""Bytes of a refusal's body that are read at most."""

LONGEST: Final = 1.0
"""Seconds that this may take at most; less if the call has less left to wait."""


class Discarding:
    """So many bytes, and `seconds` on the clock *now_ns* from now on, for one body."""

    __slots__ = ("_now_ns", "_read", "_until_ns", "seconds")

    def __init__(self, patience: float, now_ns: Clock) -> None:
        self.seconds = min(patience, LONGEST)
        self._now_ns = now_ns
        self._until_ns = now_ns() + round(self.seconds * SECOND)
        self._read = 0

    def goes_on(self, read: int = 0) -> bool:
        """Take note of so many bytes *read*; whether more may be."""
        self._read += read
        return self._read <= READ_OFF and self._now_ns() < self._until_ns

    @contextmanager
    def watch(self, sock: object) -> Iterator[None]:
        """Shut *sock* down if the block takes too long, so that a read that blocks there ends.

        A timeout of the socket's would not do: it begins anew with each byte. Have the connection
        given back after the block, not in it: nobody else's is ever shut down. What is not a
        socket is not watched.
        """
        if not isinstance(sock, socket.socket):
            yield
            return
        lock, ended = threading.Lock(), threading.Event()

        def shut_down() -> None:
            with lock, suppress(OSError):
                if not ended.is_set():
                    # Not its own method: that of a TLS socket is not for other threads.
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
