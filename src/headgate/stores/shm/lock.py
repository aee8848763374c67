"""The lock among processes: `flock` on the store's file, with a bound on the wait.

The kernel releases the lock of a process that ends, whatever ends it. It does not release the lock
of a process that is stopped (SIGSTOP, a debugger, a frozen container), and another process cannot
know what the stopped one would write next. So a wait has an end: the store reports an outage.

A holder that is merely not scheduled is no outage. Every *timeout* a waiter looks at the holder:

- the count of acquisitions has changed: others make progress, wait on;
- the holder can run (`R` in /proc/<pid>/task/*/stat) and will when it is scheduled: wait on;
- the holder is stopped (`T` or `t`): give up;
- it is in another state, or cannot be seen (another pid namespace, no /proc): give up if that
  lasts for `PATIENCE` timeouts.

No wait is longer than `MAX_PATIENCE` timeouts. After a wait that failed, further calls fail at once
until the count changes or the lock is free.

The lock belongs to an open file description: a forked process opens the file again.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from time import monotonic_ns, sleep
from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

TRY: Final = fcntl.LOCK_EX | fcntl.LOCK_NB
UNLOCK: Final = fcntl.LOCK_UN
MAX_COUNT: Final = (1 << 64) - 1
PATIENCE: Final = 10
MAX_PATIENCE: Final = 100
"""Timeouts. On two processors with a load of 16 a holder was not scheduled for 540 ms."""
_STOPPED: Final = frozenset("Tt")
_TRIES: Final = 10
"""Tries before the first sleep: a holder on another core is done by then. To yield the processor in
between lets other waiters run: 11 switches in 1,000 checks of 8 processes on 2 cores, else 3."""
_FIRST_SLEEP: Final = 1e-3
_LONGEST_SLEEP: Final = 8e-3
"""Seconds. Waiters that wake often preempt the holder of the lock."""


class FileLock:
    """An exclusive lock on the file *fd* among processes. Threads of one process need their own.

    *words*[*count_at*] counts acquisitions, for all processes.
    """

    __slots__ = ("_count_at", "_failed_at", "_fd", "_timeout_ns", "_words")

    def __init__(self, fd: int, words: memoryview, count_at: int, timeout_ns: int) -> None:
        self._fd = fd
        self._words = words
        self._count_at = count_at
        self._timeout_ns = timeout_ns
        self._failed_at: int | None = None
        """The count at which a wait failed."""

    def acquire(self) -> None:
        """Take the lock, or raise `StoreError` with reason `timeout`.

        Call it inside a `try` whose `finally` calls `release`: an interrupt may come at any time.
        """
        try:
            fcntl.flock(self._fd, TRY)
        except BlockingIOError:
            self.wait()
        words, at = self._words, self._count_at
        words[at] = (words[at] + 1) & MAX_COUNT

    def release(self) -> None:
        """Release the lock; do nothing if it is not held."""
        fcntl.flock(self._fd, UNLOCK)

    def wait(self) -> None:
        """Wait for the lock, which another holds, or raise `StoreError` with reason `timeout`."""
        words, at = self._words, self._count_at
        count = words[at]
        if count == self._failed_at:
            raise _timed_out(0)
        start = alive_at = monotonic_ns()
        look_at = start + self._timeout_ns
        for seconds in _pauses():
            if seconds:
                sleep(seconds)
            try:
                fcntl.flock(self._fd, TRY)
            except BlockingIOError:
                now = monotonic_ns()
            else:
                return
            if now < look_at:
                continue
            before, count = count, words[at]
            state = "R" if count != before else holder_state(self._fd)
            if state == "R":
                alive_at = now
            if state in _STOPPED or self._is_out_of_time(now, start, alive_at):
                self._failed_at = count
                raise _timed_out(now - start)
            look_at = now + self._timeout_ns

    def _is_out_of_time(self, now: int, start: int, alive_at: int) -> bool:
        """True if nothing has moved for too long, or the wait has taken too long as a whole."""
        timeout = self._timeout_ns
        return now - alive_at >= PATIENCE * timeout or now - start >= MAX_PATIENCE * timeout


def _pauses() -> Iterator[float]:
    """Yield the seconds to sleep before each next try, without end."""
    for _ in range(_TRIES):
        yield 0
    seconds = _FIRST_SLEEP
    while True:
        yield seconds
        seconds = min(2 * seconds, _LONGEST_SLEEP)


def holder_state(fd: int) -> str:
    """Return the state of the process that holds the `flock` of the file *fd*: "R" if a thread of
    it can run, else as /proc/<pid>/stat shows it; "" if none is visible from here.

    The kernel translates the pids in /proc/locks to the reader's pid namespace and hides others.
    """
    file = os.fstat(fd)
    name = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    try:
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            match line.split():
                case [_, "FLOCK", _, _, pid, inode, *_] if inode == name:
                    process = Path("/proc", pid)
                    states = [_state(thread) for thread in (process / "task").iterdir()]
                    return "R" if "R" in states else _state(process)
    except OSError:
        pass
    return ""


def _state(task: Path) -> str:
    text = (task / "stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()[0]


def _timed_out(waited_ns: int) -> StoreError:
    return StoreError(
        f"the lock of the shared memory was not free within {waited_ns / 1e6:.0f} ms: a process "
        "that holds it is stopped, or the machine is overloaded",
        reason="timeout",
    )
