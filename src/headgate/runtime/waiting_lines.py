"""Waiting lines: the callers of `acquire`, first come, first served, a line for each key.

Only the first in a line calls the store; the others wait until it has left. The first waits for its
retry time, or until it is woken because quota came back early. A place that is given up, by a
timeout or an interruption, is taken out: nothing was charged for it.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.fork import watch_forks
from headgate.runtime.effects import Signal
from headgate.units import DAY, SECOND, seconds_at_least

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_TIMEOUT: Final = 366 * 86_400
"""Seconds; a caller that waits longer waits for ever."""


class Place:
    """A place in a line. Its signal is set when the caller is to call the store (again)."""

    __slots__ = ("signal",)

    def __init__(self) -> None:
        self.signal = Signal()


class Lines:
    """The lines of waiting callers, by key. Safe to share among threads and event loops."""

    __slots__ = ("__weakref__", "_by_key", "_lock")

    def __init__(self) -> None:
        self.after_fork()
        watch_forks(self)

    def after_fork(self) -> None:
        """Begin with no lines: none of the callers is in the child process."""
        self._by_key: dict[str, deque[Place]] = {}
        self._lock = threading.Lock()

    def has(self, key: str) -> bool:
        """True if callers wait in the line of *key*."""
        return key in self._by_key

    def join(self, key: str, place: Place) -> bool:
        """Line up; True if *place* is the first."""
        with self._lock:
            line = self._by_key.setdefault(key, deque())
            line.append(place)
            return len(line) == 1

    def arm(self, place: Place) -> Signal:
        """Give *place* a new signal, before its caller calls the store."""
        with self._lock:
            place.signal = Signal()
            return place.signal

    def leave(self, key: str, place: Place) -> None:
        """Step out, served or not; the next one becomes the first."""
        with self._lock:
            line = self._by_key.get(key)
            if line is None or place not in line:
                return  # it was interrupted before it had lined up
            was_first = line[0] is place
            line.remove(place)
            if not line:
                del self._by_key[key]
            elif was_first:
                line[0].signal.set()

    def wake(self, key: str) -> None:
        """Have the first in line try again now: quota may have come back."""
        if self._by_key:
            with self._lock:
                line = self._by_key.get(key)
                if line:
                    line[0].signal.set()


def deadline_ns(timeout: float | None, now: int) -> int | None:
    """The end of *timeout* seconds from *now* on; None if there is none."""
    if timeout is None:
        return None
    if type(timeout) not in (int, float) or not timeout >= 0:
        raise OptionError(f"timeout is {timeout!r}; expected seconds from 0, or None to wait on")
    return None if timeout > LONGEST_TIMEOUT else now + round(timeout * SECOND)


def nap(wait_ns: int) -> float:
    """The seconds to sleep for *wait_ns*: at most a day, then try again."""
    return min(seconds_at_least(wait_ns), 86_400.0)


def naps(delay_ns: int) -> Iterator[float]:
    """The seconds to sleep, one after the other, for *delay_ns*: at most a day each."""
    while delay_ns > 0:
        yield seconds_at_least(min(delay_ns, DAY))
        delay_ns -= DAY
