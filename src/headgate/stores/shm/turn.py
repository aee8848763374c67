"""Whose turn it is among processes: a lock of the kernel's on the file, with patience that ends.

The kernel takes the lock away from a process that dies, however it dies. From one that is stopped
(SIGSTOP, a debugger, a frozen container) it does not, and then nobody can know what that process
is about to write. So the others wait for a while, and then say that they could not decide. Once
that has happened they wait but briefly, until the lock is had again: requests do not pile up.

The lock belongs to an open file: a forked process has to open its own.
"""

from __future__ import annotations

import fcntl
from os import sched_yield
from time import monotonic_ns, sleep
from typing import Final

from headgate.errors import StoreError
from headgate.units import MILLISECOND

TAKE: Final = fcntl.LOCK_EX | fcntl.LOCK_NB
GIVE_BACK: Final = fcntl.LOCK_UN
BRIEF_NS: Final = MILLISECOND
"""How long to wait after somebody has waited in vain."""
_YIELDS: Final = 1_000
"""How often to let others run before sleeping in between: a turn is over sooner than a sleep."""
_NAP: Final = 1e-6
"""Seconds; the kernel makes some fifty microseconds of it."""


class Patience:
    """How long to wait for the turn."""

    __slots__ = ("_is_lost", "_timeout_ns")

    def __init__(self, timeout_ns: int) -> None:
        self._timeout_ns = timeout_ns
        self._is_lost = False

    def take_turn(self, fd: int) -> None:
        """Take the lock of the file *fd*, or raise `StoreError`; to be given back by the caller.

        To be called where a `finally` gives it back: an interrupt may strike on the way out.
        """
        try:
            fcntl.flock(fd, TAKE)
        except BlockingIOError:
            self._wait(fd)
        self._is_lost = False

    def _wait(self, fd: int) -> None:
        patience = min(BRIEF_NS, self._timeout_ns) if self._is_lost else self._timeout_ns
        deadline = monotonic_ns() + patience
        tries = 0
        while True:
            if tries < _YIELDS:
                sched_yield()
            else:
                sleep(_NAP)
            tries += 1
            try:
                fcntl.flock(fd, TAKE)
            except BlockingIOError:
                if monotonic_ns() < deadline:
                    continue
            else:
                return
            self._is_lost = True
            raise StoreError(
                f"no turn at the shared memory within {patience / 1e6:g} ms: a process that "
                "uses it is stopped, or the machine is overloaded",
                reason="timeout",
            )
