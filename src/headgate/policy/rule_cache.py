"""A cache of loaded rules: when one rule of a policy changes, the others are not loaded again.

Only rules without warnings and errors are kept, because a problem names its place in the document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate.policy.document import Composed, Scalar, Table
from headgate.policy.problems import MAX_PROBLEMS

if TYPE_CHECKING:
    from headgate.policy.model import Policy
    from headgate.policy.problems import Problem

MAX_CHARACTERS: Final = 4 * 1024 * 1024
"""Characters of all cached rules and overrides together, at most."""

Key = tuple[str, str]
"""A rule or an override as text; of an override also the text of its rule."""


@dataclass(slots=True, kw_only=True)
class CachedNode(Table):
    """Stands for a rule or an override that was loaded before. Of its fields it has the first."""

    value: Any


@dataclass(frozen=True, slots=True)
class Lookup:
    """*data* with cached nodes in place of known rules and overrides; and those as given."""

    data: object
    identity: str
    rules: list[tuple[Key, object]]
    overrides: list[tuple[Key, object]]


@dataclass(slots=True)
class _Entries:
    """The nodes that were loaded with one *identity*, and the length of their texts."""

    identity: str
    rules: dict[Key, Composed] = field(default_factory=dict)
    overrides: dict[Key, Composed] = field(default_factory=dict)
    size: int = 0

    def put(
        self, known: dict[Key, Composed], key: Key, data: object, value: object, first: Key
    ) -> None:
        """Add *value* to *known*; *first* is its first field with its text."""
        if key not in known:
            name, text = (Scalar(one, is_plain=False, inset=0) for one in first)
            node = CachedNode(keys={first[0]: name}, entries={first[0]: text}, value=value)
            known[key] = Composed(node, *_extent(data))
            self.size += len(key[0])


class RuleCache:
    """Caches rules and overrides by their data, for one identity at a time.

    Threads may share it: at worst two of them load the same rule.
    """

    def __init__(self, *, max_characters: int = MAX_CHARACTERS) -> None:
        self._max = max_characters
        self._entries = _Entries("")

    def lookup(self, data: object) -> Lookup | None:
        """The known parts of *data*; None if it is no policy, or too large."""
        if not isinstance(data, Mapping):
            return None
        try:
            identity = repr(data.get("identity"))
            rules = [((repr(one), ""), one) for one in _list(data, "rules")]
            texts = {_word(rule, "id"): key[0] for key, rule in rules}
            overrides = [
                ((repr(one), texts.get(_word(one, "rule"), "")), one)
                for one in _list(data, "overrides")
            ]
        except (RecursionError, ValueError):  # too deep, or a number without end
            return None
        if sum(len(key[0]) for key, _ in (*rules, *overrides)) > self._max:
            return None
        entries = self._entries if identity == self._entries.identity else _Entries(identity)
        seen = dict(data)
        if rules:
            seen["rules"] = [entries.rules.get(key, one) for key, one in rules]
        if overrides:
            seen["overrides"] = [entries.overrides.get(key, one) for key, one in overrides]
        return Lookup(seen, identity, rules, overrides)

    def keep(self, lookup: Lookup, policy: Policy, problems: tuple[Problem, ...]) -> None:
        """Keep the rules of *policy*, which *lookup* was loaded as, with these *problems*."""
        if len(problems) >= MAX_PROBLEMS:  # there may be more, about any rule
            return
        named = {problem.rule for problem in problems}
        for (key, data), rule in zip(lookup.rules, policy.rules, strict=True):
            if rule.id not in named:
                entries = self._with_room(lookup.identity, key)
                entries.put(entries.rules, key, data, rule, ("id", rule.id))
        if None in named:  # the problem may be about an override
            return
        for (key, data), override in zip(lookup.overrides, policy.overrides, strict=True):
            entries = self._with_room(lookup.identity, key)
            entries.put(entries.overrides, key, data, override, ("key", override.key))

    def _with_room(self, identity: str, key: Key) -> _Entries:
        """The entries, emptied if they have no room for *key*."""
        entries = self._entries
        if entries.identity != identity or entries.size + len(key[0]) > self._max:
            entries = self._entries = _Entries(identity)
        return entries


def _list(data: Mapping[Any, Any], name: str) -> list[Any]:
    found = data.get(name)
    return found if isinstance(found, list) else []


def _word(data: object, name: str) -> str:
    found = data.get(name) if isinstance(data, Mapping) else None
    return found if isinstance(found, str) else ""


def _extent(data: Any) -> tuple[int, int]:
    """The number of nodes of *data*, keys among them, and their height. It is not deep."""
    if isinstance(data, Mapping):
        inside, keys = [_extent(one) for one in data.values()], len(data)
    elif isinstance(data, list | tuple):
        inside, keys = [_extent(one) for one in data], 0
    else:
        return 1, 0
    size = 1 + keys + sum(size for size, _ in inside)
    return size, 1 + max((height for _, height in inside), default=0)
