"""What stands beside counters, by group and key: ledgers of loans, pots, totals from elsewhere.

Each is thrown away when it says nothing any more, in the same rounds in which counters are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from headgate.stores.memory.counters import Shelf
from headgate.stores.operations import MOST_ORIGINS
from headgate.units import MINUTE

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.stores.operations import PublishedValues, PublishValue


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


# What several processes, or parts of one, make of the same thing.


class Voice(NamedTuple):
    """What one origin told, until it lapses."""

    value: float
    weight: float
    lapses: int
    lasts: int

    def counts(self, now: int) -> bool:
        """Whether it has not lapsed; nor was it told before the clock was set back, for whoever did
        may be gone."""
        return now < self.lapses <= now + 2 * self.lasts


class Voices:
    """What each origin told of one thing, until it lapses."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: dict[str, Voice] = {}

    def is_over(self, now: int) -> bool:
        """Whether all has lapsed."""
        return not any(one.counts(now) for one in self._told.values())

    def hear(self, now: int) -> PublishedValues:
        """All that has not lapsed."""
        self._told = {origin: one for origin, one in self._told.items() if one.counts(now)}
        return tuple((origin, one.value, one.weight) for origin, one in self._told.items())

    def tell(self, share: PublishValue, now: int) -> None:
        """Remember what *share* says, if there is room for another origin."""
        if share.origin not in self._told and len(self._told) >= MOST_ORIGINS:
            self.hear(now)
        if share.origin in self._told or len(self._told) < MOST_ORIGINS:
            lasts = share.ttl_ns
            self._told[share.origin] = Voice(share.value, share.weight, now + lasts, lasts)


class Sharing:
    """All that is told, of at most *most* things. The caller has the store's turn.

    *watch* is called before something is remembered: it is to be thrown away one day.
    """

    __slots__ = ("_voices", "_watch")

    def __init__(self, most: int, watch: Callable[[Margin[Any], int], None]) -> None:
        self._voices = Margin(Voices, most)
        self._watch = watch

    def __len__(self) -> int:
        return len(self._voices)

    def share(self, operation: PublishValue, now: int) -> PublishedValues:
        """Carry *operation* out. When there is no room for another thing, nobody is heard."""
        name = (operation.group, operation.key)
        if not operation.weight > 0:
            found = self._voices.look(name)
            return () if found is None else found.hear(now)
        self._watch(self._voices, now)
        voices = self._voices.open(name, now)
        if voices is None:
            return ()
        voices.tell(operation, now)
        return voices.hear(now)
