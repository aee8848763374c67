"""A cache that is bounded in bytes and safe to share among threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from headgate.fork import watch_forks

if TYPE_CHECKING:
    from collections.abc import Hashable

V = TypeVar("V")

MAX_OFFERED: Final = 65_536
"""Keys that are known to have been offered once."""


class BoundedCache(Generic[V]):
    """At most *max_bytes* of values; the oldest is dropped first.

    `get(key)` is the lookup: the value and its size, or None.
    """

    __slots__ = ("__weakref__", "_lock", "_max_bytes", "_offered", "_values", "get", "size")

    def __init__(self, max_bytes: int) -> None:
        self.size = 0
        """The bytes of all values, as their owners estimate them."""
        self._max_bytes = max_bytes
        self._values: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._offered: set[int] = set()
        self._lock = threading.Lock()
        self.get = self._values.get
        watch_forks(self)

    def __len__(self) -> int:
        return len(self._values)

    def after_fork(self) -> None:
        """Replace the lock, which another thread may have held."""
        self._lock = threading.Lock()

    def put(self, key: Hashable, value: V, size: int) -> None:
        """Keep *value*, which takes *size* bytes with its key."""
        values = self._values
        with self._lock:
            replaced = values.pop(key, None)
            if replaced is not None:
                self.size -= replaced[1]
            values[key] = value, size
            self.size += size
            while self.size > self._max_bytes:
                self.size -= values.popitem(last=False)[1][1]

    def is_offered_again(self, key: Hashable) -> bool:
        """True if *key* was offered before. Where most keys come once, only those are worth a
        `put`: to keep and drop a value takes as long as to make it."""
        offered, mark = self._offered, hash(key)
        if mark in offered:
            return True
        if len(offered) >= MAX_OFFERED:
            offered.clear()
        offered.add(mark)
        return False
