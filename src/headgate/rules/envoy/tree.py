"""Descriptors arranged for finding: a dict on each level, and the patterns in their order.

An entry of a request looks for `key_value`, then for the first pattern that `key_value` fits, then
for `key`. What is found first decides; nothing goes back to try another. Key and value are looked
up in one string, as the original does, so that the key `a` with the value `b` also answers to the
key `a_b` with a value that nobody names.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headgate.rules.envoy.model import WILDCARD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headgate.rules.envoy.model import Descriptor


@dataclass(frozen=True, slots=True)
class Pattern:
    """A text with wildcards in it; *parts* is what stands between them, two at least."""

    parts: tuple[str, ...]
    length: int

    @classmethod
    def of(cls, text: str) -> Pattern:
        parts = tuple(text.split(WILDCARD))
        return cls(parts, sum(map(len, parts)))

    def fits(self, text: str) -> bool:
        """Whether *text* is the parts in their order, with anything between them."""
        first, *middle, last = self.parts
        if len(text) < self.length or not text.startswith(first) or not text.endswith(last):
            return False
        start, end = len(first), len(text) - len(last)
        for part in middle:
            found = text.find(part, start, end)
            if found < 0:
                return False
            start = found + len(part)
        return True


@dataclass(frozen=True, slots=True)
class Node:
    """A descriptor (None at the top of a domain) and what is below it."""

    descriptor: Descriptor | None
    below: Mapping[str, Node]
    patterns: tuple[tuple[Pattern, Node], ...] = field(repr=False)
    names: tuple[str, ...] = field(repr=False)
    """Those of *below*, sorted."""

    def next(self, key: str, value: str) -> Node | None:
        """What an entry of *key* and *value* leads to from here."""
        name = f"{key}_{value}"
        node = self.below.get(name)
        if node is not None:
            return node
        for pattern, node in self.patterns:
            if pattern.fits(name):
                return node
        return self.below.get(key)

    def all_next(self, key: str) -> Iterator[Node]:
        """What entries of *key* can lead to, whatever their values; some patterns in vain."""
        beginning = f"{key}_"
        at = bisect_left(self.names, beginning)
        while at < len(self.names) and self.names[at].startswith(beginning):
            yield self.below[self.names[at]]
            at += 1
        for pattern, node in self.patterns:
            if beginning.startswith(pattern.parts[0]) and pattern.parts[0] != beginning:
                yield node
        if key in self.below:
            yield self.below[key]


def arrange(descriptors: Iterable[Descriptor], top: Descriptor | None = None) -> Node:
    """The node of *top* with *descriptors* below it."""
    below = {each.name: arrange(each.descriptors, each) for each in descriptors}
    patterns = [(Pattern.of(name), below[name]) for name in below if WILDCARD in name]
    return Node(top, below, tuple(patterns), tuple(sorted(below)))
