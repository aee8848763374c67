"""Counters in use now, and whether a change of limits would refuse those whom they count."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, Protocol

from headgate.stores.base import group_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from headgate.control.preview import Preview
    from headgate.limits import Limit
    from headgate.policy.model import Policy, Rule
    from headgate.stores import MemoryStore


MOST_SHOWN: Final = 100
"""How many counters are looked at for a preview."""


@dataclass(frozen=True, slots=True)
class LiveCounter:
    """A counter of *rule*: whose it is, which of stacked limits (*place*), and what is used of it.

    A key that is too long to be kept is told by its digest.
    """

    rule: str
    key: str
    place: int
    used: int
    is_digest: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """Some counters; *has_more* if there are, or may be, others."""

    counters: tuple[LiveCounter, ...] = ()
    has_more: bool = False


class LiveCounters(Protocol):
    """A store that can be looked through. It takes a bounded time, and changes nothing."""

    async def find(self, rules: Collection[str], *, most: int, pattern: str | None = None) -> Look:
        """At most *most* counters of *rules*, of keys like *pattern* (`*`, `?`) if it is given.

        Raises `StoreError`.
        """


@dataclass(frozen=True, slots=True)
class Affected:
    """What a change means for a counter. None: it depends on the tier of the caller."""

    counter: LiveCounter
    was_refused: bool | None
    would_be_refused: bool | None


async def affected_by(preview: Preview, live: LiveCounters, *, most: int = MOST_SHOWN) -> Look:
    """Some counters of the rules that *preview* would change."""
    if not preview.rules_changed or preview.policy is None:
        return Look()
    return await live.find(preview.rules_changed, most=most)


def judged(look: Look, preview: Preview) -> tuple[Affected, ...]:
    """What *preview* means for each counter of *look*; those that it would refuse come first."""
    found = [
        Affected(one, _is_refused(one, preview.before), _is_refused(one, preview.policy, preview))
        for one in look.counters
    ]
    return tuple(sorted(found, key=_urgency))


def _urgency(one: Affected) -> tuple[int, int]:
    order = {True: 0, None: 1, False: 2}
    return order[one.would_be_refused], -one.counter.used


def _is_refused(
    one: LiveCounter, policy: Policy | None, preview: Preview | None = None
) -> bool | None:
    """Whether a cost of 1 is refused under *policy*; with *preview*, after it."""
    rule = _rule(policy, one.rule)
    if rule is None or rule.mode != "enforce":
        return False
    old = None if preview is None else _rule(preview.before, one.rule)
    if old is not None and old.key_by != rule.key_by:
        return False  # nobody counts by it any more
    limits = [limits[one.place] for limits in rule.limits.values() if len(limits) > one.place]
    return _agreed(one.used, limits)


def _agreed(used: int, limits: Sequence[Limit]) -> bool | None:
    answers = {used >= limit.quota for limit in limits}
    return None if len(answers) > 1 else answers == {True}


def _rule(policy: Policy | None, rule_id: str) -> Rule | None:
    rules = () if policy is None else policy.rules
    return next((rule for rule in rules if rule.id == rule_id), None)


# The counters of rules in a store of this process.


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
