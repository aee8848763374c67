"""What a call raises that was not sent."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Literal

from headgate.errors import HeadgateError
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.clock import Clock
    from headgate.decision import Decision


Cause = Literal["closed", "paced", "store"]
"""`closed`: the server said to wait for longer. `paced`: its turn would come too late. `store`:
nobody knows its turn, since the store cannot be reached, and `on_store_failure` is `fail_closed`.
"""

_WHY: Final[dict[Cause, str]] = {
    "closed": "the server said to wait, longer than max_wait allows",
    "paced": "its pace is used up, for longer than max_wait allows",
    "store": "the store of its pace cannot be reached, and on_store_failure is 'fail_closed'",
}


class NotSentError(HeadgateError):
    """A call was not sent: it would have had to wait for longer than `Courtesy.max_wait`.

    `destination` is whom it was for: scheme, host and port. `retry_after` in how many seconds it
    may be sent (None: there is no telling), `cause` why not now. `attempts` is how often it had
    been sent and refused before; mostly 0. What each client raises is an error of that client too.
    """

    def __init__(
        self, destination: str, retry_after: float | None, cause: Cause, attempts: int = 0
    ) -> None:
        # Not super(): next in line may be a client's own base, which takes other arguments.
        Exception.__init__(self, destination, retry_after, cause, attempts)
        self.destination = destination
        self.retry_after = retry_after
        self.cause: Cause = cause
        self.attempts = attempts

    def __str__(self) -> str:
        what = "not sent again" if self.attempts else "not sent"
        when = "" if self.retry_after is None else f"; retry after {self.retry_after:.3g} s"
        return f"{what} to {self.destination}: {_WHY[self.cause]}{when}"


def cause_of(decision: Decision) -> Cause:
    """Why the pace refused."""
    return "store" if decision.source == "fail_closed" else "paced"


# How much of a refusal is read off before it is asked for again, so that its connection can be.
#
# What is left unread makes the connection useless; but a server that sends its refusal a byte at a
# time must not hold a call for longer than it would wait. So there is a bound in bytes and one in
# time, and what goes beyond either is closed instead.


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
