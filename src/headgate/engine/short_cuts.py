"""The quick way of a store that has one, for requests that only one limit is for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.limits import Limit
    from headgate.stores.operations import Check
    from headgate.stores.port import AsyncStore, Hitter, Store

MOST: Final = 4096
"""How many are kept: policies change, and limits may depend on the caller."""


class ShortCuts:
    """What `Store.hitter` gave, by counter and limit, asked for once."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[str, Limit], Hitter | None] = {}

    def to(self, store: Store | AsyncStore, check: Check) -> Hitter | None:
        """The short cut of *store* for *check*; None if it has none."""
        place = check.group, check.limit
        try:
            return self._known[place]
        except KeyError:
            if len(self._known) >= MOST:
                self._known.clear()
            hitter = self._known[place] = store.hitter((place,))
            return hitter
