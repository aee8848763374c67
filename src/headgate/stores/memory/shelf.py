"""A dict that can be gone through a little at a time while it changes.

Going through it begins by declaring everything on it to be *aging* and starting with an empty
`live`. A few aging items are then taken at a time; whoever asks for an aging key brings it back at
once. So nothing is looked at twice in a round, nothing is missed, and no step is long.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

K = TypeVar("K")
V = TypeVar("V")


class Shelf(Generic[K, V]):
    """Values by key, some live, some aging. No value may be None."""

    __slots__ = ("aging", "live")

    def __init__(self) -> None:
        self.live: dict[K, V] = {}
        self.aging: dict[K, V] = {}

    def __iter__(self) -> Iterator[K]:
        return chain(self.live, self.aging)

    def __len__(self) -> int:
        return len(self.live) + len(self.aging)

    def __contains__(self, key: K) -> bool:
        return key in self.live or key in self.aging

    def get(self, key: K) -> V | None:
        """The value of *key*, live from now on."""
        value = self.live.get(key)
        if value is None and self.aging:
            value = self.aging.pop(key, None)
            if value is not None:
                self.live[key] = value
        return value

    def look(self, key: K) -> V | None:
        """The value of *key*, live or aging as it was."""
        value = self.live.get(key)
        return self.aging.get(key) if value is None else value

    def put(self, key: K, value: V) -> None:
        """Make *value* the value of *key*, live from now on."""
        if self.aging:
            self.aging.pop(key, None)
        self.live[key] = value

    def pop(self, key: K) -> V | None:
        """Take the value of *key* off the shelf."""
        value = self.live.pop(key, None)
        return self.aging.pop(key, None) if value is None else value

    def begin_round(self) -> None:
        """Declare everything to be aging, if nothing is."""
        if not self.aging:
            self.aging, self.live = self.live, {}

    def take_some(self, most: int) -> list[tuple[K, V]]:
        """Take up to *most* aging items off the shelf, to be put back or not."""
        return [self.aging.popitem() for _ in range(min(most, len(self.aging)))]
