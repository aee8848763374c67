"""Values that several processes, or parts of one, publish about the same thing.

They are kept beside the counters of a shard, by group and key, and vanish when they have expired.

Clock: a value that expires later than twice its TTL from now does not count, since its publisher
may be gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from headgate.stores.memory.shard import Aging, Room
from headgate.stores.operations import MOST_PUBLISHERS, PublishedValues, PublishValue

if TYPE_CHECKING:
    from collections.abc import Callable

Name = tuple[str, str]
"""The group and the key of a counter."""


class Expiring(Protocol):
    """Something that has no effect any more after a while."""

    def is_over(self, now: int) -> bool:
        """Return True if it has no effect any more."""


V = TypeVar("V", bound=Expiring)


class ExpiringTable(Aging[Name, V]):
    """Objects that *make* makes, by the name of a counter."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], V], room: Room) -> None:
        super().__init__(room)
        self._make = make

    def open(self, name: Name, now: int) -> V | None:
        """Return what is there, or a new one; None if there is no room."""
        value = self.look(name)
        if value is None:
            if self.room.is_full:
                self.examine(len(self), now, is_urgent=True)
            if not self.room.reserve():
                return None
            value = self._make()
            self.put(name, value)
        return value

    def forget(self, name: Name) -> None:
        """Drop what is there."""
        if self.look(name) is not None:
            self.pop(name)
            self.room.release()

    def is_over(self, key: Name, value: V, now: int) -> bool:
        return value.is_over(now)


class Value(NamedTuple):
    """The value that one origin published, until it expires."""

    value: float
    weight: float
    expires: int
    lasts: int

    def counts(self, now: int) -> bool:
        """Return True if it has not expired and was not published before a step back."""
        return now < self.expires <= now + 2 * self.lasts


class Values:
    """The values that all origins published about one thing."""

    __slots__ = ("_by_origin",)

    def __init__(self) -> None:
        self._by_origin: dict[str, Value] = {}

    def is_over(self, now: int) -> bool:
        """Return True if all have expired."""
        return not any(one.counts(now) for one in self._by_origin.values())

    def read(self, now: int) -> PublishedValues:
        """Return all that have not expired."""
        live = [(origin, one) for origin, one in self._by_origin.items() if one.counts(now)]
        self._by_origin = dict(live)
        return tuple([(origin, one.value, one.weight) for origin, one in live])

    def publish(self, operation: PublishValue, now: int) -> None:
        """Keep the value of *operation*, if there is room for another origin."""
        origin, lasts = operation.origin, operation.ttl_ns
        self.read(now)
        if origin in self._by_origin or len(self._by_origin) < MOST_PUBLISHERS:
            value = Value(operation.value, operation.weight, now + lasts, lasts)
            self._by_origin[origin] = value


def publish(operation: PublishValue, values: ExpiringTable[Values], now: int) -> PublishedValues:
    """Carry *operation* out. Nothing is kept or returned if there is no room for the thing."""
    name, is_published = (operation.group, operation.key), operation.weight > 0
    found = values.open(name, now) if is_published else values.look(name)
    if found is None:
        return ()
    if is_published:
        found.publish(operation, now)
    return found.read(now)
