"""A cache of what was made of requests: gateways send the same request over and over.

It is bounded by entries and by bytes, so that no caller can make it grow: neither many distinct
callers nor long descriptors and headers do. The least recently used entry goes first. An entry is
kept when its request comes a second time: of requests that come once only a number is kept, because
storing and evicting an entry costs as much as making it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

MOST: Final = 65_536
"""How many entries there are at most."""

MOST_BYTES: Final = 64 << 20
"""How much memory they take at most, as `size_of` estimates it."""

MOST_SEEN: Final = 65_536
"""How many requests are known to have come once."""

LARGEST: Final = 512
"""The most bytes of a request that is worth it; for whoever keeps them to look at."""

_CHECK_BYTES: Final = 400
_COPIES: Final = 3
"""The request itself, its texts, and the keys made of them."""

_WIDEST: Final = 4
"""Bytes of each character in a text with one beyond Latin-1."""


def size_of(text: bytes, *, checks: int, base: int) -> int:
    """Estimate the bytes of an entry whose key is made of *text*, with so many limits to check.

    *base* is what an entry takes besides. The estimate is above what CPython allocates.
    """
    width = 1 if text.isascii() else _WIDEST
    return base + _COPIES * width * len(text) + _CHECK_BYTES * checks


class Remembered(Generic[K, T]):
    """A least-recently-used cache of at most *most_bytes*; for one thread."""

    __slots__ = ("_entries", "_most_bytes", "_seen", "size")

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._seen: set[int] = set()
        self._entries: OrderedDict[K, tuple[T, int]] = OrderedDict()
        self.size = 0
        """The estimated bytes of all entries."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, message: K) -> T | None:
        """What was kept for *message*, if it is still here."""
        found = self._entries.get(message)
        if found is None:
            return None
        self._entries.move_to_end(message)
        return found[0]

    def keep(self, message: K, made: T, size: int) -> None:
        """Keep what was *made* of *message*, which takes *size* bytes, if it came before."""
        mark = hash(message)
        if mark not in self._seen:
            if len(self._seen) >= MOST_SEEN:
                self._seen.clear()
            self._seen.add(mark)
            return
        entries = self._entries
        replaced = entries.pop(message, None)
        if replaced is not None:
            self.size -= replaced[1]
        entries[message] = made, size
        self.size += size
        while len(entries) > MOST or self.size > self._most_bytes:
            _, (_, gone) = entries.popitem(last=False)
            self.size -= gone

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._seen.clear()
        self.size = 0
