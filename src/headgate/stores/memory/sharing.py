"""What several processes, or parts of one, make of the same thing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.stores.memory.margin import Margin
from headgate.stores.operations import MOST_ORIGINS

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.stores.operations import Share, Shared


class Voices:
    """What each origin told of one thing, until it lapses."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: dict[str, tuple[float, float, int]] = {}

    def is_over(self, now: int) -> bool:
        """Whether all has lapsed."""
        return all(lapses <= now for _, _, lapses in self._told.values())

    def hear(self, now: int) -> Shared:
        """All that has not lapsed."""
        self._told = {origin: one for origin, one in self._told.items() if one[2] > now}
        return tuple((origin, value, weight) for origin, (value, weight, _) in self._told.items())

    def tell(self, share: Share, now: int) -> None:
        """Remember what *share* says, if there is room for another origin."""
        if share.origin not in self._told and len(self._told) >= MOST_ORIGINS:
            self.hear(now)
        if share.origin in self._told or len(self._told) < MOST_ORIGINS:
            self._told[share.origin] = (share.value, share.weight, now + share.ttl_ns)


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

    def share(self, operation: Share, now: int) -> Shared:
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
