"""Rules that were read lately: of a policy in which one rule has changed the others are known.

Only what was read without a word is remembered, so that warnings and errors, which name the place
in the document, are found anew each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate.policy.loader.diagnostics import MOST_PROBLEMS, Scalar, Table

if TYPE_CHECKING:
    from headgate.policy.model import Override, Policy, Rule
    from headgate.policy.problems import Problem

MOST_LETTERS: Final = 4 * 1024 * 1024
"""How long the texts of all that is remembered may be together."""


@dataclass(slots=True, kw_only=True)
class KnownRule(Table):
    """A rule that was read before. Of its fields it has the id only."""

    rule: Rule


@dataclass(slots=True, kw_only=True)
class KnownOverride(Table):
    """An override that was read before, for a rule that is as it was then. It has the key only."""

    override: Override


@dataclass(frozen=True, slots=True)
class Known:
    """Stands in data for what was read: of the *size* and *height* that it would be grown to."""

    node: KnownRule | KnownOverride
    size: int
    height: int


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
class _Shelf:
    """What is known for callers as one *identity* tells them, and how long its texts are."""

    identity: str
    rules: dict[str, Known] = field(default_factory=dict)
    overrides: dict[tuple[str, str], Known] = field(default_factory=dict)
    letters: int = 0

    def put_rule(self, text: str, data: object, rule: Rule) -> None:
        node = KnownRule(**_entry("id", rule.id), rule=rule)
        self.rules[text] = Known(node, *_extent(data))
        self.letters += len(text)

    def put_override(self, texts: tuple[str, str], data: object, override: Override) -> None:
        node = KnownOverride(**_entry("key", override.key), override=override)
        self.overrides[texts] = Known(node, *_extent(data))
        self.letters += len(texts[0])


class RuleMemory:
    """Remembers rules and overrides of data by what they say, for callers as one identity tells
    them.

    Threads may share it: the worst that two at a time do is to read something again.
    """

    def __init__(self, *, most_letters: int = MOST_LETTERS) -> None:
        self._most = most_letters
        self._shelf = _Shelf("")

    def look(self, data: object) -> Glance | None:
        """What is known of *data*; None if it is no policy, or too large to be remembered."""
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
        shelf = self._shelf if identity == self._shelf.identity else _Shelf(identity)
        seen = dict(data)
        if rules:
            seen["rules"] = [shelf.rules.get(text, rule) for text, rule in rules]
        if placed:
            seen["overrides"] = [shelf.overrides.get(both, one) for both, one in placed]
        return Glance(seen, identity, rules, placed)

    def learn(self, glance: Glance, policy: Policy, problems: tuple[Problem, ...]) -> None:
        """Remember the rules of *policy*, which *glance* was read as, with these *problems*."""
        if len(problems) >= MOST_PROBLEMS:  # there may be more, about any rule
            return
        named = {problem.rule for problem in problems}
        for (text, data), rule in zip(glance.rules, policy.rules, strict=True):
            if rule.id not in named:
                shelf = self._shelf_for(glance.identity, text)
                if text not in shelf.rules:
                    shelf.put_rule(text, data, rule)
        if None in named:  # that is about overrides, perhaps
            return
        for (texts, data), override in zip(glance.overrides, policy.overrides, strict=True):
            shelf = self._shelf_for(glance.identity, texts[0])
            if texts not in shelf.overrides:
                shelf.put_override(texts, data, override)

    def _shelf_for(self, identity: str, text: str) -> _Shelf:
        """Where there is room for *text*."""
        shelf = self._shelf
        if shelf.identity != identity or shelf.letters + len(text) > self._most:
            shelf = self._shelf = _Shelf(identity)
        return shelf


def _texts(given: object) -> tuple[tuple[str, object], ...]:
    return tuple((repr(one), one) for one in given) if isinstance(given, list) else ()


def _word(data: object, name: str) -> str:
    found = data.get(name) if isinstance(data, Mapping) else None
    return found if isinstance(found, str) else ""


def _entry(name: str, text: str) -> dict[str, Any]:
    key, value = (Scalar(one, is_plain=False, inset=0) for one in (name, text))
    return {"keys": {name: key}, "entries": {name: value}}


def _extent(data: Any) -> tuple[int, int]:
    """How many nodes *data* grows into, keys among them, and how high. It is not deep."""
    if isinstance(data, Mapping):
        inside, keys = [_extent(one) for one in data.values()], len(data)
    elif isinstance(data, list | tuple):
        inside, keys = [_extent(one) for one in data], 0
    else:
        return 1, 0
    size = 1 + keys + sum(size for size, _ in inside)
    return size, 1 + max((height for _, height in inside), default=0)
