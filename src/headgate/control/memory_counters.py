"""The counters of rules in a store of this process."""

from __future__ import annotations

import asyncio
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from headgate.control.live_counters import LiveCounter, Look
from headgate.stores.port import group_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from headgate.stores import MemoryStore

MOST_LOOKED_AT: Final = 100_000
"""How many keys of a rule are looked at: among more, a look does not see everything."""


class MemoryCounters:
    """The counters that *store* has in *namespace*: those of this process alone."""

    def __init__(self, store: MemoryStore, *, namespace: str) -> None:
        self._store = store
        self._namespace = namespace

    async def find(self, rules: Collection[str], *, most: int, pattern: str | None = None) -> Look:
        """At most *most* counters of *rules*."""
        return await asyncio.to_thread(self._find, frozenset(rules), most, pattern)

    def _find(self, rules: Collection[str], most: int, pattern: str | None) -> Look:
        found: list[LiveCounter] = []
        has_more = False
        for rule, place, group in self._places(rules):
            keys = self._store.keys_in(group, most=MOST_LOOKED_AT)
            has_more = has_more or len(keys) == MOST_LOOKED_AT
            for key in keys:
                if pattern is not None and not fnmatchcase(key, pattern):
                    continue
                used = self._store.used_in(group, key)
                if not used:
                    continue
                if len(found) == most:
                    return Look(tuple(found), has_more=True)
                found.append(LiveCounter(rule, key, place, used))
        return Look(tuple(found), has_more)

    def _places(self, rules: Collection[str]) -> Iterator[tuple[str, int, str]]:
        """The groups that count for *rules*: whose each is, and which of its stacked limits."""
        start = group_name(self._namespace, "")
        for group in self._store.groups():
            rule, _, place = group.removeprefix(start).partition("#")
            is_place = not place or place.isdecimal()
            if group.startswith(start) and rule in rules and is_place:
                yield rule, int(place or 0), group
