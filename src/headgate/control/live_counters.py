"""Counters in use now, in memory or in Redis, and which of them a change would deny."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from headgate.stores.base import group_name
from headgate.stores.redis.inspect import Search, escaped, find_counters, open_primaries
from headgate.stores.redis.naming import prefix
from headgate.stores.redis.url import parse_redis_url

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator, Sequence

    from headgate.control.preview import Preview
    from headgate.policy.model import Policy, Rule
    from headgate.stores import MemoryStore
    from headgate.stores.redis.inspect import Primary, State
    from headgate.stores.redis.naming import ParsedName


MOST_SHOWN: Final = 100
"""The most counters that a preview shows."""
MOST_SEARCHED: Final = 100_000
"""The most keys of a rule that are searched in memory."""
SEARCH_TIMEOUT: Final = 3.0
"""Seconds that a search in Redis may take: in a large store it does not find everything."""


@dataclass(frozen=True, slots=True)
class LiveCounter:
    """A counter of *rule*: its key, which of stacked limits it is (*place*), and the units used.

    A key that is too long to be kept is shown by its digest.
    """

    rule: str
    key: str
    place: int
    used: int
    is_digest: bool = False


@dataclass(frozen=True, slots=True)
class FoundCounters:
    """Some counters; *has_more* if there are, or may be, others."""

    counters: tuple[LiveCounter, ...] = ()
    has_more: bool = False


class LiveCounters(Protocol):
    """A store whose counters can be listed, in bounded time and without a change."""

    async def find(
        self, rules: Collection[str], *, most: int, pattern: str | None = None
    ) -> FoundCounters:
        """Find at most *most* counters of *rules*, of keys like *pattern* (`*`, `?`) if given.

        Raises `StoreError`.
        """


@dataclass(frozen=True, slots=True)
class Affected:
    """The effect of a change on a counter. None: it depends on the tier of the caller."""

    counter: LiveCounter
    was_denied: bool | None
    would_be_denied: bool | None


async def affected_by(
    preview: Preview, live: LiveCounters, *, most: int = MOST_SHOWN
) -> tuple[tuple[Affected, ...], bool]:
    """Find some counters of the rules that *preview* would change, and its effect on each.

    Those that it would deny come first. Also returns whether there are, or may be, others.
    """
    if not preview.rules_changed or preview.policy is None:
        return (), False
    look = await live.find(preview.rules_changed, most=most)
    found = [
        Affected(one, _is_denied(one, preview.before), _is_denied(one, preview.policy, preview))
        for one in look.counters
    ]
    order = {True: 0, None: 1, False: 2}
    found.sort(key=lambda one: (order[one.would_be_denied], -one.counter.used))
    return tuple(found), look.has_more


def _is_denied(
    one: LiveCounter, policy: Policy | None, preview: Preview | None = None
) -> bool | None:
    """True if *policy* denies a cost of 1; with *preview*, after it."""
    rule = _rule(policy, one.rule)
    if rule is None or rule.mode != "enforce":
        return False
    old = None if preview is None else _rule(preview.before, one.rule)
    if old is not None and old.key_by != rule.key_by:
        return False  # the key is no longer used
    limits = [limits[one.place] for limits in rule.limits.values() if len(limits) > one.place]
    answers = {one.used >= limit.quota for limit in limits}
    return None if len(answers) > 1 else answers == {True}


def _rule(policy: Policy | None, rule_id: str) -> Rule | None:
    rules = () if policy is None else policy.rules
    return next((rule for rule in rules if rule.id == rule_id), None)


def _take(each: Generator[LiveCounter | None, None, None], most: int) -> FoundCounters:
    """Take at most *most* counters of *each*; None stands for others that were not searched."""
    with closing(each):
        found = [*islice(each, most + 1)]
    counters = [one for one in found if one is not None]
    return FoundCounters(tuple(counters[:most]), len(counters) > most or None in found)


class MemoryCounters:
    """The counters of *store* in *namespace*: those of this process alone."""

    def __init__(self, store: MemoryStore, *, namespace: str) -> None:
        self._store = store
        self._namespace = namespace

    async def find(
        self, rules: Collection[str], *, most: int, pattern: str | None = None
    ) -> FoundCounters:
        """Find at most *most* counters of *rules*."""
        return await asyncio.to_thread(_take, self._each(rules, pattern), most)

    def _each(
        self, rules: Collection[str], pattern: str | None
    ) -> Generator[LiveCounter | None, None, None]:
        for rule, place, group in self._places(rules):
            keys = self._store.keys_in(group, most=MOST_SEARCHED)
            for key in keys:
                if pattern is not None and not fnmatchcase(key, pattern):
                    continue
                if used := self._store.used_in(group, key):
                    yield LiveCounter(rule, key, place, used)
            if len(keys) == MOST_SEARCHED:
                yield None

    def _places(self, rules: Collection[str]) -> Iterator[tuple[str, int, str]]:
        """The groups of *rules*: the rule of each, and which of its stacked limits it is."""
        start = group_name(self._namespace, "")
        for group in self._store.groups():
            rule = group.removeprefix(start).partition("#")[0]
            place = place_in(group.removeprefix(start), rule)
            if group.startswith(start) and rule in rules and place is not None:
                yield rule, place, group


# ---- in Redis: found with SCAN, in a thread ------------------------------------------------


@dataclass(frozen=True, slots=True)
class RuleSearch(Search):
    """The counters of one *rule* in *namespace*."""

    rule: str = ""

    def match(self, *, has_tags: bool) -> bytes:
        """Return a pattern for SCAN that finds all these names, and perhaps others."""
        start = b"{*}" if has_tags else b""
        group = prefix(group_name(self.namespace or "", self.rule)).rstrip(b":")
        return b"%b%b*:*" % (start, escaped(group))

    def accepts(self, found: ParsedName) -> bool:
        """True if the name is one of those searched for."""
        # The base class by name: a dataclass with slots is another class than the one defined here.
        return Search.accepts(self, found) and place_in(found.name, self.rule) is not None


def place_in(counter: str | None, rule: str) -> int | None:
    """Return which of the stacked limits of *rule* counts there; None if none does."""
    name, _, place = (counter or "").partition("#")
    if name != rule or (place and not place.isdecimal()):
        return None
    return int(place or 0)


class RedisCounters:
    """The counters at *url* in *namespace*. Each search opens its own connections."""

    def __init__(self, url: str, *, namespace: str, timeout: float = SEARCH_TIMEOUT) -> None:
        self._url = parse_redis_url(url)
        self._namespace = namespace
        self._timeout = timeout

    async def find(
        self, rules: Collection[str], *, most: int, pattern: str | None = None
    ) -> FoundCounters:
        """Find at most *most* counters of *rules*. Raises `StoreError`."""
        return await asyncio.to_thread(_take, self._each(rules, pattern), most)

    def _each(
        self, rules: Collection[str], pattern: str | None
    ) -> Generator[LiveCounter | None, None, None]:
        ends = time.monotonic() + self._timeout
        with open_primaries(self._url) as opened:
            primaries = [_BoundedPrimary(one, ends) for one in opened]
            for rule in rules:
                search = RuleSearch(self._namespace, pattern, rule=rule)
                for counter in find_counters(primaries, search):
                    name, place = counter.name, place_in(counter.name.name, rule)
                    used = counter.state.in_use + counter.state.held
                    yield LiveCounter(rule, name.key, place or 0, used, name.is_hashed)
        if time.monotonic() > ends:
            yield None


class _BoundedPrimary:
    """A primary that is searched only until *ends*, by the monotonic clock."""

    def __init__(self, primary: Primary, ends: float) -> None:
        self._primary = primary
        self._ends = ends
        self.has_tags = primary.has_tags

    def scan(self, match: bytes) -> Iterator[Sequence[bytes]]:
        for step in self._primary.scan(match):
            if time.monotonic() > self._ends:
                return
            yield step

    def read(self, names: Sequence[bytes]) -> Iterable[tuple[bytes, State, int]]:
        return self._primary.read(names)
