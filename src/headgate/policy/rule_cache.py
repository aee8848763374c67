"""A cache of loaded rules: when one rule of a policy changes, the others are not loaded again.

Only rules without warnings and errors are kept, because a problem names its place in the document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.policy.document import Composed, Scalar, Table
from headgate.policy.problems import MAX_PROBLEMS

if TYPE_CHECKING:
    from headgate.policy.model import Policy
    from headgate.policy.problems import Problem

MAX_CHARACTERS: Final = 4 * 1024 * 1024
"""Characters of all cached rules and overrides together, at most."""

Key = tuple[str, str, str | None]
"""The identity that it was loaded with; a rule or an override as text; and of an override the text
of its rule."""


@dataclass(slots=True, kw_only=True)
class CachedNode(Table):
    """Stands for a rule or an override that was loaded before. Of its fields it has the first."""

    value: Any


@dataclass(frozen=True, slots=True)
class Lookup:
    """*data* with cached nodes in place of known rules and overrides; and those as given."""

    data: object
    rules: Sequence[tuple[Key, object]]
    overrides: Sequence[tuple[Key, object]]


class RuleCache:
    """Caches rules and overrides by their data and the identity of their policy.

    Threads may share it: at worst two of them load the same rule.
    """

    def __init__(self, *, max_characters: int = MAX_CHARACTERS) -> None:
        self._max = max_characters
        self._nodes: dict[Key, Composed] = {}
        self._size = 0

    def lookup(self, data: object) -> Lookup | None:
        """The known parts of *data*; None if it is no policy, or too large."""
        if not isinstance(data, Mapping):
            return None
        try:
            identity = repr(data.get("identity"))
            rules = [((identity, repr(one), None), one) for one in _list(data, "rules")]
            texts = {_word(rule, "id"): key[1] for key, rule in rules}
            overrides = [
                ((identity, repr(one), texts.get(_word(one, "rule"), "")), one)
                for one in _list(data, "overrides")
            ]
        except (RecursionError, ValueError):  # too deep, or a number without end
            return None
        if sum(len(key[1]) for key, _ in (*rules, *overrides)) > self._max:
            return None
        known, seen = self._nodes, dict(data)
        for name, items in (("rules", rules), ("overrides", overrides)):
            if items:
                seen[name] = [known.get(key, one) for key, one in items]
        return Lookup(seen, rules, overrides)

    def keep(self, lookup: Lookup, policy: Policy, problems: tuple[Problem, ...]) -> None:
        """Keep the rules of *policy*, which *lookup* was loaded as, with these *problems*."""
        if len(problems) >= MAX_PROBLEMS:  # there may be more, about any rule
            return
        named = {problem.rule for problem in problems}
        for (key, data), rule in zip(lookup.rules, policy.rules, strict=True):
            if rule.id not in named:
                self._put(key, data, rule, ("id", rule.id))
        if None in named:  # the problem may be about an override
            return
        for (key, data), override in zip(lookup.overrides, policy.overrides, strict=True):
            self._put(key, data, override, ("key", override.key))

    def _put(self, key: Key, data: object, value: object, first: tuple[str, str]) -> None:
        """Keep *value*; *first* is its first field with its text. Without room all others go."""
        if self._size + len(key[1]) > self._max:
            self._nodes, self._size = {}, 0
        if key not in self._nodes:
            name, text = (Scalar(one, is_plain=False, inset=0) for one in first)
            node = CachedNode(keys={first[0]: name}, entries={first[0]: text}, value=value)
            self._nodes[key] = Composed(node, *_extent(data))
            self._size += len(key[1])


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
