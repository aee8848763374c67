"""Waiting in line: the callers of `acquire`, first come, first served, a line for each key.

Only the first in a line asks the store; the others wait for it to leave. The first sleeps until
its retry time or until it is woken because quota came back early. A place that is given up, by a
timeout or a cancellation, is simply taken out: nothing had been charged for it.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections import deque
from contextlib import suppress
from typing import Any, Generic, TypeVar


class LoopEvent(asyncio.Event):
    """An event that may be set from another thread, or another event loop, than waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting_in = asyncio.get_running_loop()

    def set(self) -> None:
        try:
            is_here = asyncio.get_running_loop() is self._waiting_in
        except RuntimeError:
            is_here = False
        if is_here:
            super().set()
        else:
            with suppress(RuntimeError):  # that loop is closed: nobody waits there any more
                self._waiting_in.call_soon_threadsafe(super().set)


P = TypeVar("P", threading.Event, LoopEvent)


class Lines(Generic[P]):
    """The lines of waiting callers by key. Safe to share among threads."""

    __slots__ = ("__weakref__", "_by_key", "_lock")

    def __init__(self) -> None:
        self.disperse()
        _all_lines.add(self)

    def disperse(self) -> None:
        """Begin with no lines at all."""
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


_all_lines: weakref.WeakSet[Lines[Any]] = weakref.WeakSet()


def _disperse_all() -> None:
    """In a forked child none of those who waited are left."""
    for lines in _all_lines:
        lines.disperse()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disperse_all)
