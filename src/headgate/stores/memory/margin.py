"""What stands beside counters, by group and key: ledgers of loans, pots, totals from elsewhere.

Each is thrown away when it says nothing any more, in the same rounds in which counters are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from headgate.stores.memory.shelf import Shelf
from headgate.units import MINUTE

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMINED: Final = 4
"""How many are examined by one call."""

Name = tuple[str, str]
"""The group and the key of a counter."""


class Passing(Protocol):
    """Something that is over one day."""

    def is_over(self, now: int) -> bool: ...


V = TypeVar("V", bound=Passing)


class Margin(Generic[V]):
    """At most *most* of what *make* makes, by name. The caller has the store's turn."""

    __slots__ = ("_make", "_most", "_shelf", "is_watched")

    sweep_interval: Final = MINUTE

    def __init__(self, make: Callable[[], V], most: int) -> None:
        self._make = make
        self._most = most
        self._shelf: Shelf[Name, V] = Shelf()
        self.is_watched = False
        """Whether it is among those that are gone through."""

    def __len__(self) -> int:
        return len(self._shelf)

    @property
    def is_of_use(self) -> bool:
        return len(self._shelf) > 0

    def look(self, name: Name) -> V | None:
        """What is there, or None."""
        return self._shelf.get(name)

    def open(self, name: Name, now: int) -> V | None:
        """What is there, or a new one; None if there is no room."""
        value = self._shelf.get(name)
        if value is None:
            if len(self._shelf) >= self._most:
                self.examine_some(now)
            if len(self._shelf) < self._most:
                value = self._make()
                self._shelf.put(name, value)
        return value

    def forget(self, name: Name) -> None:
        self._shelf.pop(name)

    def examine_some(self, now: int) -> bool:
        """Do a few steps of a round; whether there is more to do in it."""
        if not self._shelf.aging:
            self._shelf.begin_round()
        for name, value in self._shelf.take_some(EXAMINED):
            if not value.is_over(now):
                self._shelf.put(name, value)
        return bool(self._shelf.aging)
