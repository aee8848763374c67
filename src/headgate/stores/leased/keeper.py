"""The thread that gives back and tells what is due, for a store whose callers may block."""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

if TYPE_CHECKING:
    from headgate.stores.leased.store import LeasedStore

LONGEST_NAP: Final = 0.25
SHORTEST_NAP: Final = 0.005


class Keeper:
    """Calls `keep` of its store when something is due. Runs only while something will be, and as
    long as the store lives; it keeps neither the store nor the process alive."""

    def __init__(self, store: LeasedStore) -> None:
        self._store = weakref.ref(store)
        self._is_closed = False
        self.begin_anew()
        _keepers.add(self)

    def begin_anew(self) -> None:
        """In a forked process no thread is left."""
        self._lock = threading.Lock()
        self._bell = threading.Event()
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0

    def wake(self, due_in_ns: int | None) -> None:
        """Something is due then; None: nothing is."""
        if due_in_ns is None or self._is_closed:
            return
        due_at = time.monotonic() + due_in_ns / 1e9
        if self._thread is not None and due_at >= self._wakes_at:
            return
        with self._lock:
            if self._thread is None:
                name = "headgate-leases"
                self._wakes_at = due_at
                self._thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._thread.start()
            else:
                self._bell.set()

    def close(self) -> None:
        """End it, and wait for what it is doing."""
        self._is_closed = True
        self._bell.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)

    def _work(self) -> None:
        nap: float | None = max(SHORTEST_NAP, self._wakes_at - time.monotonic())
        bell = self._bell
        try:
            while nap is not None:
                nap = min(LONGEST_NAP, max(SHORTEST_NAP, nap))
                self._wakes_at = time.monotonic() + nap
                bell.wait(nap)
                bell.clear()
                nap = self._round()
        finally:
            if nap is not None:  # it failed: who comes next starts another
                self._thread = None

    def _round(self) -> float | None:
        """Do what is due; how long to sleep then, None: for good."""
        store = self._store()
        if store is not None and not self._is_closed:
            self._wakes_at = math.inf
            nap = store.keep()
            if nap is not None:
                return nap
        with self._lock:
            if self._bell.is_set() and not self._is_closed:
                return SHORTEST_NAP
            self._thread = None
        return None


_keepers: WeakSet[Keeper] = WeakSet()


def _begin_anew() -> None:
    for keeper in list(_keepers):
        keeper.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
