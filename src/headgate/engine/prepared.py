"""Prepared takes of a store, kept by their groups and limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.stores.base import concluded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.decision import Decision
    from headgate.stores.base import Place, Prepared, Store
    from headgate.stores.operations import Check, Outcomes

MOST: Final = 4096
"""Prepared takes that are kept: policies change, and limits may depend on the caller."""


class PreparedTakes:
    """The prepared takes of *store*."""

    __slots__ = ("_known", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store
        # By the identity of the limits, which are kept too: to hash one takes longer than a hit.
        self._known: dict[tuple[tuple[str, int], ...], tuple[list[Place], Prepared]] = {}

    def of(self, checks: Sequence[Check]) -> Prepared:
        """The prepared take for checks like *checks*."""
        names = tuple([(check.group, id(check.limit)) for check in checks])
        found = self._known.get(names)
        if found is None:
            if len(self._known) >= MOST:
                self._known.clear()
            places = [(check.group, check.limit) for check in checks]
            found = self._known[names] = places, self._store.prepare(places)
        return found[1]


def decisions_of(checks: Sequence[Check], outcomes: Outcomes) -> list[Decision]:
    """The decision that each outcome is."""
    pairs = zip(checks, outcomes, strict=True)
    return [concluded(check.key, check.limit, outcome) for check, outcome in pairs]
