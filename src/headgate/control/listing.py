"""Finding rules in a document: filters and pages, as people ask for them.

It looks at the data as it was written, so that it works on documents too that this version of
Headgate cannot read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.control.documents import rules_by_id
from headgate.rules.matching import compiled, readings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.control.documents import Data
    from headgate.control.revision import Revision


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFilter:
    """Which rules are wanted; what is None does not matter, all the rest must hold.

    *mode*; *key_by*, a part of the key; *endpoint*, a pattern as it is written or a path that the
    rule is for (a rule without endpoints is for every path); *tier*, one that the rule is for or
    has limits for; *text*, anywhere in the rule, in any case.
    """

    mode: str | None = None
    key_by: str | None = None
    endpoint: str | None = None
    tier: str | None = None
    text: str | None = None

    def wants(self, rule: Mapping[str, Any]) -> bool:
        """Whether *rule* is one of those."""
        return (
            self.mode in (None, mode_of(rule))
            and (self.key_by is None or self.key_by in _listed(rule.get("key_by")))
            and (self.endpoint is None or _is_for(rule, self.endpoint))
            and (self.tier is None or _knows(rule, self.tier))
            and (self.text is None or self.text.casefold() in _text(rule))
        )


@dataclass(frozen=True, slots=True)
class RulePage:
    """Some of the rules that were found: of each the version and the data. *total* is of all."""

    revision: int
    total: int
    rules: tuple[tuple[int, Data], ...]


def rules_in(
    revision: Revision, wanted: RuleFilter, *, offset: int = 0, limit: int = 100
) -> RulePage:
    """The rules of *revision* that are *wanted*, in their order: *limit* of them after *offset*."""
    found = [rule for rule in rules_by_id(revision.document).values() if wanted.wants(rule)]
    some = found[offset : offset + limit]
    versions = revision.versions
    rules = tuple((versions.get(rule["id"], revision.number), rule) for rule in some)
    return RulePage(revision.number, len(found), rules)


def mode_of(rule: Mapping[str, Any]) -> str:
    """The mode that *rule* is in."""
    mode = rule.get("mode", "enforce")
    return "off" if mode is False else str(mode)


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _is_for(rule: Mapping[str, Any], endpoint: str) -> bool:
    match = rule.get("match")
    given = match.get("endpoint") if isinstance(match, dict) else None
    if given is None:
        return True
    patterns = [one for one in _listed(given) if isinstance(one, str)]
    ways = readings(endpoint)
    return endpoint in patterns or any(compiled(one).fits(way) for one in patterns for way in ways)


def _knows(rule: Mapping[str, Any], tier: str) -> bool:
    match, limits = rule.get("match"), rule.get("limits")
    wanted = _listed(match.get("tier")) if isinstance(match, dict) else []
    return tier in wanted or (isinstance(limits, dict) and tier in limits)


def _text(rule: Mapping[str, Any]) -> str:
    return json.dumps(rule, ensure_ascii=False).casefold()
