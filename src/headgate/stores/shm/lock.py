"""Whose turn it is among processes: a lock of the kernel's on the file, with patience that ends.

The kernel takes the lock away from a process that dies, however it dies. From one that is stopped
(SIGSTOP, a debugger, a frozen container) it does not, and then nobody can know what that process
is about to write. So the others wait for a while, and then say that they could not decide.

Turns are counted, so that a turn that does not end can be told from many that come and go: who
waits in vain for the former gives up, and until the count goes on does not wait for it again. Who
is merely unlucky on a busy machine waits longer.

The lock belongs to an open file: a forked process has to open its own.
"""

from __future__ import annotations

import fcntl
import os
from time import monotonic_ns, sleep
from typing import Final

from headgate.errors import StoreError
from headgate.stores.shm.layout import TURNS_AT

TAKE: Final = fcntl.LOCK_EX | fcntl.LOCK_NB
GIVE_BACK: Final = fcntl.LOCK_UN
TURNS_WORD: Final = TURNS_AT // 8
MOST_TURNS: Final = (1 << 64) - 1
_YIELDS: Final = 100
"""How often to let others run before sleeping in between: a turn is over sooner than a sleep."""
_NAP: Final = 1e-6
"""Seconds; the kernel makes some fifty microseconds of it."""


def _sleep_not_at_all() -> None:
    sleep(0)


_let_others_run: Final = getattr(os, "sched_yield", _sleep_not_at_all)


class Patience:
    """How long to wait for the turn: *timeout_ns* for one that does not end, and *most_ns* for
    those of others who come and go."""

    __slots__ = ("_endless", "_most_ns", "_timeout_ns", "_words")

    def __init__(self, words: memoryview, *, timeout_ns: int, most_ns: int) -> None:
        self._words = words
        self._timeout_ns = timeout_ns
        self._most_ns = most_ns
        self._endless: int | None = None
        """Which turn was waited for in vain."""

    def take_turn(self, fd: int) -> None:
        """Take the lock of the file *fd*, or raise `StoreError`; to be given back by the caller.

        To be called where a `finally` gives it back: an interrupt may strike on the way out.
        """
        try:
            fcntl.flock(fd, TAKE)
        except BlockingIOError:
            self._wait(fd)
        words = self._words
        words[TURNS_WORD] = (words[TURNS_WORD] + 1) & MOST_TURNS

    def _wait(self, fd: int) -> None:
        turn = self._words[TURNS_WORD]
        if turn == self._endless:
            raise _no_turn(0)
        start = monotonic_ns()
        deadline = start + self._timeout_ns
        tries = 0
        while True:
            if tries < _YIELDS:
                _let_others_run()
            else:
                sleep(_NAP)
            tries += 1
            try:
                fcntl.flock(fd, TAKE)
            except BlockingIOError:
                now = monotonic_ns()
            else:
                return
            if now < deadline:
                continue
            before, turn = turn, self._words[TURNS_WORD]
            if turn == before or now >= start + self._most_ns:
                self._endless = turn
                raise _no_turn(now - start)
            deadline = now + self._timeout_ns


def _no_turn(waited_ns: int) -> StoreError:
    return StoreError(
        f"no turn at the shared memory within {waited_ns / 1e6:.0f} ms: a process that uses it is "
        "stopped, or the machine is overloaded",
        reason="timeout",
    )
