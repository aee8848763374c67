"""Edits of a document: the one before goes in, the one after comes out. No I/O, nothing in place.

They are about shape only; whether what comes out is a policy is for `policy.loader` to say.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.control.documents import rules_by_id
from headgate.control.revision import ControlError, json_text
from headgate.policy.diagnostics import shown
from headgate.policy.document import LARGEST_TEXT
from headgate.policy.fields import instant_ns
from headgate.policy.matcher import compiled, readings
from headgate.policy.problems import PolicyError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.control.documents import Data
    from headgate.control.revision import Revision


MOST_RULES: Final = 10_000
"""How many a policy may have that is changed over the network."""
WHERE: Final = "<policy>"


class UnknownRuleError(ControlError):
    """A rule that is not there."""


class UnknownOverrideError(ControlError):
    """An override that is not there."""


def rule_in(document: Mapping[str, Any], rule_id: str) -> Data:
    """Return a rule of *document*. Raises `UnknownRuleError`."""
    rule = rules_by_id(document).get(rule_id)
    if rule is None:
        raise UnknownRuleError(f"there is no rule {shown(rule_id)}")
    return rule


def plain_data(given: object) -> Any:
    """A copy of *given* as JSON has it. Raises `PolicyError` for what JSON has not."""
    try:
        return json.loads(json.dumps(given, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise PolicyError([Problem("error", WHERE, f"not to be had in JSON: {error}")]) from error


def with_rule(document: Mapping[str, Any], rule_id: str, data: Mapping[str, Any]) -> Data:
    """*document* with the rule *rule_id*: in its place if there is one, else after the others."""
    if data.get("id", rule_id) != rule_id:
        told = f"found {shown(str(data['id']))} in the rule {shown(rule_id)}; expected none"
        raise PolicyError([Problem("error", WHERE, told, rule=rule_id, field="id")])
    rule = {"id": rule_id, **{name: value for name, value in data.items() if name != "id"}}
    rules = document.get("rules") or []
    if rule_id in rules_by_id(document):
        return {**document, "rules": [rule if _is(old, rule_id) else old for old in rules]}
    return {**document, "rules": [*rules, rule]}


def without_rule(document: Mapping[str, Any], rule_id: str) -> Data:
    """*document* without the rule *rule_id*, without its candidate, which is nothing by itself, and
    without overrides for their counters."""
    rules = rules_by_id(document)
    rule_in(document, rule_id)
    gone = {rule_id, *(name for name, rule in rules.items() if rule.get("candidate_of") == rule_id)}
    left = [rule for rule in document["rules"] if not any(_is(rule, name) for name in gone)]
    return _filtered({**document, "rules": left}, lambda one: one.get("rule") not in gone)


def with_override(document: Mapping[str, Any], override: Mapping[str, Any]) -> Data:
    """*document* with *override* in the place of any other for the same counter."""
    place = (override["rule"], override["key"])
    rule_in(document, place[0])
    others = [one for one in _overrides(document) if _place(one) != place]
    return {**document, "overrides": [*others, dict(override)]}


def without_override(document: Mapping[str, Any], rule_id: str, key: str) -> Data:
    """*document* without what is otherwise for the counter *key* of *rule_id*."""
    if not any(_place(one) == (rule_id, key) for one in _overrides(document)):
        told = f"there is no override for the key {shown(key)} of the rule {shown(rule_id)}"
        raise UnknownOverrideError(told)
    return _filtered(dict(document), lambda one: _place(one) != (rule_id, key))


def without_expired(document: Mapping[str, Any], now_ns: int) -> Data:
    """*document* without overrides that have ended."""
    return _filtered(dict(document), lambda one: not _has_ended(one, now_ns))


def override_of(document: Mapping[str, Any], rule_id: str, key: str) -> Data | None:
    """What is otherwise for a counter."""
    return next((one for one in _overrides(document) if _place(one) == (rule_id, key)), None)


def check_size(document: Mapping[str, Any]) -> None:
    """Raise `PolicyError` if *document* is larger than what may be kept."""
    problem = None
    rules = document.get("rules")
    if isinstance(rules, list) and len(rules) > MOST_RULES:
        problem = f"{len(rules)} rules; at most {MOST_RULES} are kept"
    elif len(json_text(document)) > LARGEST_TEXT:
        problem = f"too large; at most {LARGEST_TEXT} bytes (1 MiB) of JSON are kept"
    if problem is not None:
        raise PolicyError([Problem("error", WHERE, problem)])


def _is(rule: object, rule_id: str) -> bool:
    return isinstance(rule, dict) and rule.get("id") == rule_id


def _overrides(document: Mapping[str, Any]) -> list[Data]:
    found = document.get("overrides")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _place(override: Mapping[str, Any]) -> tuple[object, object]:
    return override.get("rule"), override.get("key")


def _has_ended(override: Mapping[str, Any], now_ns: int) -> bool:
    until = override.get("until")
    ends = instant_ns(until) if isinstance(until, str) else None
    return ends is not None and ends <= now_ns


def _filtered(document: Data, wanted: Callable[[Data], bool]) -> Data:
    """*document* with those overrides only that are *wanted*, and none if none is."""
    given = document.get("overrides")
    if not isinstance(given, list):
        return document
    left = [one for one in given if not isinstance(one, dict) or wanted(one)]
    if left == given:
        return document
    if left:
        return {**document, "overrides": left}
    return {name: value for name, value in document.items() if name != "overrides"}


# Edits of a document that are about candidates: rules in shadow beside those they may replace.
#
# As in `edits`: the document before goes in, the one after comes out.


SUFFIX: Final = "-candidate"
"""What the id of a candidate ends with that is made of a rule."""

_OF: Final = "candidate_of"
_OWN: Final = ("id", "mode", _OF)
"""What a candidate does not hand on."""


def candidate_id(document: Mapping[str, Any], rule_id: str) -> str | None:
    """The id of the candidate of a rule; None if it has none."""
    rules = rules_by_id(document)
    return next((name for name, rule in rules.items() if rule.get(_OF) == rule_id), None)


def with_candidate(document: Mapping[str, Any], rule_id: str, data: Mapping[str, Any]) -> Data:
    """*document* with *data* as the candidate of a rule, after it or in the place of another.

    Raises `UnknownRuleError`, and `PolicyError` if *data* says what only the rule itself can, or
    the id is another rule's.
    """
    rules = rules_by_id(document)
    rule_in(document, rule_id)
    name = f"{rule_id}{SUFFIX}"
    _check(data, {"id": name, "mode": "shadow", _OF: rule_id})
    earlier = candidate_id(document, rule_id)
    if name in rules and name != earlier:
        told = f"the id is taken by a rule that is no candidate of {shown(rule_id)}"
        hint = "expected it to be free; rename or remove that rule first"
        raise PolicyError([Problem("error", WHERE, told, rule=name, field="id", hint=hint)])
    bare = {key: value for key, value in data.items() if key not in _OWN}
    candidate = {"id": name, **bare, "mode": "shadow", _OF: rule_id}
    if name == earlier:
        return with_rule(document, name, candidate)
    if earlier is not None:
        document = without_rule(document, earlier)
    return _after(document, rule_id, candidate)


def with_adopted(document: Mapping[str, Any], rule_id: str) -> Data:
    """*document* with the content of a rule's candidate in the rule's place, and without that.

    The rule keeps its id and its mode; its description too, if the candidate has none.
    Raises `UnknownRuleError` if there is no such rule, or no candidate.
    """
    live = rule_in(document, rule_id)
    name = candidate_id(document, rule_id)
    if name is None:
        raise UnknownRuleError(f"the rule {shown(rule_id)} has no candidate{_meant(live)}")
    candidate = rules_by_id(document)[name]
    kept: Data = {key: live[key] for key in ("description", "mode") if key in live}
    bare = {key: value for key, value in candidate.items() if key not in _OWN}
    return with_rule(without_rule(document, name), rule_id, {**kept, **bare})


def _meant(rule: Mapping[str, Any]) -> str:
    live = rule.get(_OF)
    return f"; it is itself the candidate of {shown(live)}" if isinstance(live, str) else ""


def _check(data: Mapping[str, Any], expected: Mapping[str, str]) -> None:
    """Refuse what is otherwise in *data* than a candidate must have it."""
    found = [key for key, value in expected.items() if data.get(key, value) != value]
    told = "found {}; a candidate of this rule has {}"
    problems = [
        Problem(
            "error",
            WHERE,
            told.format(shown(str(data[key])), shown(expected[key])),
            rule=expected["id"],
            field=key,
            hint="expected none",
        )
        for key in found
    ]
    if problems:
        raise PolicyError(problems)


def _after(document: Mapping[str, Any], rule_id: str, rule: Data) -> Data:
    """*document* with a new *rule* after the one with *rule_id*."""
    rules: list[Any] = []
    for one in document["rules"]:
        rules.append(one)
        if isinstance(one, dict) and one.get("id") == rule_id:
            rules.append(rule)
    return {**document, "rules": rules}


# Finding rules in a document: filters and pages, as people ask for them.
#
# It looks at the data as it was written, so that it works on documents too that this version of
# Headgate cannot read.


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
