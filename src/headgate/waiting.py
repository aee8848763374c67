"""Waiting in line: the callers of `acquire`, first come, first served, a line for each key.

Only the first in a line asks the store; the others wait for it to leave. The first sleeps until
its retry time or until it is woken because quota came back early. A place that is given up, by a
timeout or a cancellation, is simply taken out: nothing had been charged for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Generic, TypeVar

P = TypeVar("P", threading.Event, asyncio.Event)


class Lines(Generic[P]):
    """The lines of waiting callers by key. Safe to share among threads."""

    __slots__ = ("_by_key", "_lock")

    def __init__(self) -> None:
        self._by_key: dict[str, deque[P]] = {}
        self._lock = threading.Lock()

    def join(self, key: str, place: P) -> bool:
        """Line up; whether *place* is the first already."""
        with self._lock:
            line = self._by_key.setdefault(key, deque())
            line.append(place)
            return len(line) == 1

    def leave(self, key: str, place: P) -> None:
        """Step out, served or not, and let the next one come first."""
        with self._lock:
            line = self._by_key.get(key)
            if line is None or place not in line:
                return  # an interrupt came before it had lined up
            was_first = line[0] is place
            line.remove(place)
            if not line:
                del self._by_key[key]
            elif was_first:
                line[0].set()

    def wake(self, key: str) -> None:
        """Have the first in line ask again at once: something may have come back."""
        if self._by_key:
            with self._lock:
                line = self._by_key.get(key)
                if line:
                    line[0].set()
