"""Rules that were loaded before: of a policy in which one rule has changed the others are known.

Only rules without warnings and errors are kept, because a problem names its place in the document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate.policy.diagnostics import MOST_PROBLEMS
from headgate.policy.document import Composed, Scalar, Table

if TYPE_CHECKING:
    from headgate.policy.model import Override, Policy, Rule
    from headgate.policy.problems import Problem

MOST_LETTERS: Final = 4 * 1024 * 1024
"""Characters of all cached rules and overrides together, at most."""


@dataclass(slots=True, kw_only=True)
class KnownRule(Table):
    """A rule that was loaded before. Of its fields it has the id only."""

    rule: Rule


@dataclass(slots=True, kw_only=True)
class KnownOverride(Table):
    """An override that was loaded before, of an unchanged rule. It has the key only."""

    override: Override


@dataclass(frozen=True, slots=True)
class Glance:
    """*data* with what is known in place of the rules and overrides that say it.

    *rules* and *overrides* are as given, each with its text; that of an override with the one of
    its rule.
    """

    data: object
    identity: str
    rules: tuple[tuple[str, object], ...]
    overrides: tuple[tuple[tuple[str, str], object], ...]


@dataclass(slots=True)
class _Cache:
    """The known rules and overrides for one *identity*, and the length of their texts."""

    identity: str
    rules: dict[str, Composed] = field(default_factory=dict)
    overrides: dict[tuple[str, str], Composed] = field(default_factory=dict)
    letters: int = 0

    def put_rule(self, text: str, data: object, rule: Rule) -> None:
        node = KnownRule(**_entry("id", rule.id), rule=rule)
        self.rules[text] = Composed(node, *_extent(data))
        self.letters += len(text)

    def put_override(self, texts: tuple[str, str], data: object, override: Override) -> None:
        node = KnownOverride(**_entry("key", override.key), override=override)
        self.overrides[texts] = Composed(node, *_extent(data))
        self.letters += len(texts[0])


class RuleMemory:
    """Caches rules and overrides by their data, for one identity at a time.

    Threads may share it: the worst that two at a time do is to load something again.
    """

    def __init__(self, *, most_letters: int = MOST_LETTERS) -> None:
        self._most = most_letters
        self._cache = _Cache("")

    def look(self, data: object) -> Glance | None:
        """The known parts of *data*; None if it is no policy, or too large."""
        if not isinstance(data, Mapping):
            return None
        try:
            identity = repr(data.get("identity"))
            rules = _texts(data.get("rules"))
            overrides = _texts(data.get("overrides"))
        except (RecursionError, ValueError):  # too deep, or a number without end
            return None
        if sum(len(text) for text, _ in (*rules, *overrides)) > self._most:
            return None
        texts = {_word(rule, "id"): text for text, rule in rules}
        placed = tuple(((text, texts.get(_word(one, "rule"), "")), one) for text, one in overrides)
        cache = self._cache if identity == self._cache.identity else _Cache(identity)
        seen = dict(data)
        if rules:
            seen["rules"] = [cache.rules.get(text, rule) for text, rule in rules]
        if placed:
            seen["overrides"] = [cache.overrides.get(both, one) for both, one in placed]
        return Glance(seen, identity, rules, placed)

    def learn(self, glance: Glance, policy: Policy, problems: tuple[Problem, ...]) -> None:
        """Keep the rules of *policy*, which *glance* was loaded as, with these *problems*."""
        if len(problems) >= MOST_PROBLEMS:  # there may be more, about any rule
            return
        named = {problem.rule for problem in problems}
        for (text, data), rule in zip(glance.rules, policy.rules, strict=True):
            if rule.id not in named:
                cache = self._cache_for(glance.identity, text)
                if text not in cache.rules:
                    cache.put_rule(text, data, rule)
        if None in named:  # that is about overrides, perhaps
            return
        for (texts, data), override in zip(glance.overrides, policy.overrides, strict=True):
            cache = self._cache_for(glance.identity, texts[0])
            if texts not in cache.overrides:
                cache.put_override(texts, data, override)

    def _cache_for(self, identity: str, text: str) -> _Cache:
        """The cache, emptied if it has no room for *text*."""
        cache = self._cache
        if cache.identity != identity or cache.letters + len(text) > self._most:
            cache = self._cache = _Cache(identity)
        return cache


def _texts(given: object) -> tuple[tuple[str, object], ...]:
    return tuple((repr(one), one) for one in given) if isinstance(given, list) else ()


def _word(data: object, name: str) -> str:
    found = data.get(name) if isinstance(data, Mapping) else None
    return found if isinstance(found, str) else ""


def _entry(name: str, text: str) -> dict[str, Any]:
    key, value = (Scalar(one, is_plain=False, inset=0) for one in (name, text))
    return {"keys": {name: key}, "entries": {name: value}}


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
