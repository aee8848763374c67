"""The counters of rules in Redis, found with SCAN, in a thread."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.control.live_counters import LiveCounter, Look
from headgate.stores.base import group_name
from headgate.stores.redis.inspect import Search, escaped, find_counters, open_primaries
from headgate.stores.redis.naming import prefix
from headgate.stores.redis.url import parse_redis_url

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from headgate.stores.redis.inspect import Primary, State
    from headgate.stores.redis.naming import ParsedName

LONGEST_LOOK: Final = 3.0
"""Seconds that a search may take: in a large store it does not find everything."""


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
        return Search.accepts(self, found) and place_in(found, self.rule) is not None


def place_in(found: ParsedName, rule: str) -> int | None:
    """Return which of the stacked limits of *rule* counts there; None if none does."""
    name, _, place = (found.name or "").partition("#")
    if name != rule or (place and not place.isdecimal()):
        return None
    return int(place or 0)


class RedisCounters:
    """The counters at *url* in *namespace*. Each search opens its own connections."""

    def __init__(self, url: str, *, namespace: str, longest_look: float = LONGEST_LOOK) -> None:
        self._url = parse_redis_url(url)
        self._namespace = namespace
        self._longest_look = longest_look

    async def find(self, rules: Collection[str], *, most: int, pattern: str | None = None) -> Look:
        """Find at most *most* counters of *rules*. Raises `StoreError`."""
        return await asyncio.to_thread(self._find, tuple(rules), most, pattern)

    def _find(self, rules: Sequence[str], most: int, pattern: str | None) -> Look:
        ends = time.monotonic() + self._longest_look
        found: list[LiveCounter] = []
        with open_primaries(self._url) as opened:
            primaries = [_BoundedPrimary(one, ends) for one in opened]
            for one in self._each(primaries, rules, pattern):
                if len(found) == most:
                    return Look(tuple(found), has_more=True)
                found.append(one)
        return Look(tuple(found), has_more=time.monotonic() > ends)

    def _each(
        self, primaries: Sequence[Primary], rules: Iterable[str], pattern: str | None
    ) -> Iterator[LiveCounter]:
        for rule in rules:
            search = RuleSearch(self._namespace, pattern, rule=rule)
            for counter in find_counters(primaries, search):
                name, place = counter.name, place_in(counter.name, rule)
                used = counter.state.in_use + counter.state.held
                yield LiveCounter(rule, name.key, place or 0, used, name.is_hashed)


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
