"""A cache that is bounded in bytes and safe to share among threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

from headgate.fork import watch_forks

if TYPE_CHECKING:
    from collections.abc import Hashable

V = TypeVar("V")


class BoundedCache(Generic[V]):
    """At most *max_bytes* of values; the oldest is dropped first.

    `get(key)` is the lookup: the value and its size, or None.
    """

    __slots__ = ("__weakref__", "_lock", "_max_bytes", "_values", "get", "size")

    def __init__(self, max_bytes: int) -> None:
        self.size = 0
        """The bytes of all values, as their owners estimate them."""
        self._max_bytes = max_bytes
        self._values: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
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
