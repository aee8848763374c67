"""What was made of requests of late, by what they say: gateways send the same over and over."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

MOST: Final = 2048
"""How many there are in each of the two halves."""

MOST_SEEN: Final = 8192
"""How many are known to have come by once."""

LARGEST: Final = 512
"""The most bytes of a request that is worth it; for whoever keeps them to look at."""


class Remembered(Generic[K, T]):
    """Bounded: when the younger half is full it becomes the older one, and what was there goes.

    So what is asked for often stays, however many others come by once; and nothing is kept of those
    but a number, for to keep more, and to drop it again, costs as much as making it.
    """

    __slots__ = ("_older", "_seen", "_younger")

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._younger: dict[K, T] = {}
        self._older: dict[K, T] = {}

    def __len__(self) -> int:
        return len(self._younger) + len(self._older)

    def get(self, message: K) -> T | None:
        """What was kept for *message*, if it is still here."""
        found = self._younger.get(message)
        if found is None and (found := self._older.get(message)) is not None:
            self._put(message, found)
        return found

    def keep(self, message: K, made: T) -> None:
        """Remember what was *made* of *message*, if it came by before."""
        mark = hash(message)
        if mark in self._seen:
            self._put(message, made)
            return
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        self._seen.add(mark)

    def _put(self, message: K, made: T) -> None:
        if len(self._younger) >= MOST:
            self._younger, self._older = {}, self._younger
        self._younger[message] = made

    def clear(self) -> None:
        """Forget everything."""
        self._younger, self._older = {}, {}
        self._seen.clear()
