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

    __slots__ = ("_known", "_lately")

    def __init__(self) -> None:
        self._known: dict[tuple[str, Limit], Hitter | None] = {}
        # By the identity of the limit, which is kept with it: to hash one takes longer than a hit.
        self._lately: dict[tuple[str, int], tuple[Limit, Hitter | None]] = {}

    def to(self, store: Store | AsyncStore, check: Check) -> Hitter | None:
        """The short cut of *store* for *check*; None if it has none."""
        found = self._lately.get((check.group, id(check.limit)))
        return self._find(store, check) if found is None else found[1]

    def _find(self, store: Store | AsyncStore, check: Check) -> Hitter | None:
        place = check.group, check.limit
        if max(len(self._known), len(self._lately)) >= MOST:
            self._known.clear()
            self._lately.clear()
        if place not in self._known:
            self._known[place] = store.hitter((place,))
        hitter = self._known[place]
        self._lately[check.group, id(check.limit)] = check.limit, hitter
        return hitter
