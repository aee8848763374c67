"""Edits of a document, as pure functions: the one before goes in, the one after comes out.

They are about the shape alone; `policy.loader` validates the result.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
"""The most rules of a policy that is changed over the network."""
WHERE: Final = "<policy>"
SUFFIX: Final = "-candidate"
"""The end of the id of a candidate."""
_OF: Final = "candidate_of"
_OWN: Final = ("id", "mode", _OF)
"""Fields of a candidate that are not adopted."""


class UnknownRuleError(ControlError):
    """There is no such rule, or no candidate of it."""


class UnknownOverrideError(ControlError):
    """There is no such override."""


def rule_in(document: Mapping[str, Any], rule_id: str) -> Data:
    """Return a rule of *document*. Raises `UnknownRuleError`."""
    rule = rules_by_id(document).get(rule_id)
    if rule is None:
        raise UnknownRuleError(f"there is no rule {shown(rule_id)}")
    return rule


def plain_data(given: object) -> Any:
    """Copy *given* as JSON data. Raises `PolicyError` for values that JSON does not have."""
    try:
        return json.loads(json.dumps(given, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise _invalid(f"not JSON: {error}") from error


def with_rule(document: Mapping[str, Any], rule_id: str, data: Mapping[str, Any]) -> Data:
    """Put the rule *rule_id*: in its place if it exists, else after the others."""
    if data.get("id", rule_id) != rule_id:
        message = f"found {shown(str(data['id']))} in the rule {shown(rule_id)}; expected none"
        raise _invalid(message, rule=rule_id, field="id")
    rule = {"id": rule_id, **{name: value for name, value in data.items() if name != "id"}}
    rules = document.get("rules") or []
    if rule_id in rules_by_id(document):
        return {**document, "rules": [rule if _is(old, rule_id) else old for old in rules]}
    return {**document, "rules": [*rules, rule]}


def without_rule(document: Mapping[str, Any], rule_id: str) -> Data:
    """Remove the rule *rule_id*, its candidate, and the overrides of their counters."""
    rule_in(document, rule_id)
    rules = rules_by_id(document)
    gone = {rule_id, *(name for name, rule in rules.items() if rule.get(_OF) == rule_id)}
    left = [rule for rule in document["rules"] if not any(_is(rule, name) for name in gone)]
    return _filtered({**document, "rules": left}, lambda one: one.get("rule") not in gone)


def candidate_id(document: Mapping[str, Any], rule_id: str) -> str | None:
    """Return the id of the candidate of a rule; None if it has none."""
    rules = rules_by_id(document)
    return next((name for name, rule in rules.items() if rule.get(_OF) == rule_id), None)


def with_candidate(document: Mapping[str, Any], rule_id: str, data: Mapping[str, Any]) -> Data:
    """Put *data* as the candidate of a rule, after it or in the place of another candidate.

    Raises `UnknownRuleError`, and `PolicyError` if *data* has fields that only the rule itself has,
    or the id belongs to another rule.
    """
    rule_in(document, rule_id)
    name = f"{rule_id}{SUFFIX}"
    expected = {"id": name, "mode": "shadow", _OF: rule_id}
    problems = [
        Problem(
            "error",
            WHERE,
            f"found {shown(str(data[key]))}; a candidate of this rule has {shown(value)}",
            rule=name,
            field=key,
            hint="expected none",
        )
        for key, value in expected.items()
        if data.get(key, value) != value
    ]
    if problems:
        raise PolicyError(problems)
    earlier = candidate_id(document, rule_id)
    if name in rules_by_id(document) and name != earlier:
        message = f"the id belongs to a rule that is not a candidate of {shown(rule_id)}"
        raise _invalid(message, rule=name, field="id", hint="rename or remove that rule first")
    bare = {key: value for key, value in data.items() if key not in _OWN}
    candidate = {"id": name, **bare, "mode": "shadow", _OF: rule_id}
    if name == earlier:
        return with_rule(document, name, candidate)
    if earlier is not None:
        document = without_rule(document, earlier)
    rules: list[Any] = []
    for one in document["rules"]:
        rules += [one, candidate] if _is(one, rule_id) else [one]
    return {**document, "rules": rules}


def with_adopted(document: Mapping[str, Any], rule_id: str) -> Data:
    """Replace a rule by its candidate.

    The rule keeps its id and its mode; its description too, if the candidate has none.
    Raises `UnknownRuleError` if there is no such rule, or no candidate.
    """
    live = rule_in(document, rule_id)
    name = candidate_id(document, rule_id)
    if name is None:
        of = live.get(_OF)
        hint = f"; it is itself the candidate of {shown(of)}" if isinstance(of, str) else ""
        raise UnknownRuleError(f"the rule {shown(rule_id)} has no candidate{hint}")
    candidate = rule_in(document, name)
    kept: Data = {key: live[key] for key in ("description", "mode") if key in live}
    bare = {key: value for key, value in candidate.items() if key not in _OWN}
    return with_rule(without_rule(document, name), rule_id, {**kept, **bare})


def with_override(document: Mapping[str, Any], override: Mapping[str, Any]) -> Data:
    """Put *override* in the place of any other for the same counter."""
    place = (override["rule"], override["key"])
    rule_in(document, place[0])
    others = [one for one in _overrides(document) if _place(one) != place]
    return {**document, "overrides": [*others, dict(override)]}


def without_override(document: Mapping[str, Any], rule_id: str, key: str) -> Data:
    """Remove the override of *key* under *rule_id*. Raises `UnknownOverrideError`."""
    if override_of(document, rule_id, key) is None:
        message = f"there is no override for the key {shown(key)} of the rule {shown(rule_id)}"
        raise UnknownOverrideError(message)
    return _filtered(dict(document), lambda one: _place(one) != (rule_id, key))


def without_expired(document: Mapping[str, Any], now_ns: int) -> Data:
    """Remove overrides that have ended."""

    def goes_on(override: Data) -> bool:
        until = override.get("until")
        ends = instant_ns(until) if isinstance(until, str) else None
        return ends is None or ends > now_ns

    return _filtered(dict(document), goes_on)


def override_of(document: Mapping[str, Any], rule_id: str, key: str) -> Data | None:
    """Return the override of a counter."""
    return next((one for one in _overrides(document) if _place(one) == (rule_id, key)), None)


def check_size(document: Mapping[str, Any]) -> None:
    """Raise `PolicyError` if *document* is too large."""
    rules = document.get("rules")
    if isinstance(rules, list) and len(rules) > MOST_RULES:
        raise _invalid(f"{len(rules)} rules; at most {MOST_RULES} are allowed")
    if len(json_text(document)) > LARGEST_TEXT:
        raise _invalid(f"too large; at most {LARGEST_TEXT} bytes (1 MiB) of JSON are allowed")


def _invalid(message: str, **more: Any) -> PolicyError:
    return PolicyError([Problem("error", WHERE, message, **more)])


def _is(rule: object, rule_id: str) -> bool:
    return isinstance(rule, dict) and rule.get("id") == rule_id


def _overrides(document: Mapping[str, Any]) -> list[Data]:
    found = document.get("overrides")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _place(override: Mapping[str, Any]) -> tuple[object, object]:
    return override.get("rule"), override.get("key")


def _filtered(document: Data, wanted: Callable[[Data], bool]) -> Data:
    """Keep the overrides that are *wanted*; without any the field goes."""
    given = document.get("overrides")
    if not isinstance(given, list):
        return document
    left = [one for one in given if not isinstance(one, dict) or wanted(one)]
    if left or left == given:
        return {**document, "overrides": left}
    return {name: value for name, value in document.items() if name != "overrides"}


# ---- finding rules: by the data as it was written, so that invalid documents work too ----------


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFilter:
    """Conditions that a rule must meet; None does not matter.

    *mode*; *key_by*, a part of the key; *endpoint*, a pattern as it is written or a path that the
    rule matches (a rule without endpoints matches every path); *tier*, one that the rule matches or
    has limits for; *text*, anywhere in the rule, in any case.
    """

    mode: str | None = None
    key_by: str | None = None
    endpoint: str | None = None
    tier: str | None = None
    text: str | None = None

    def wants(self, rule: Mapping[str, Any]) -> bool:
        """True if *rule* meets all conditions."""
        text = "" if self.text is None else json.dumps(rule, ensure_ascii=False).casefold()
        return (
            self.mode in (None, mode_of(rule))
            and (self.key_by is None or self.key_by in _listed(rule.get("key_by")))
            and (self.endpoint is None or _matches(rule, self.endpoint))
            and (self.tier is None or _has_tier(rule, self.tier))
            and (self.text is None or self.text.casefold() in text)
        )


class RulePage(NamedTuple):
    """Some of the rules that were found, each with its version. *total* counts all."""

    revision: int
    total: int
    rules: tuple[tuple[int, Data], ...]


def rules_in(
    revision: Revision, wanted: RuleFilter, *, offset: int = 0, limit: int = 100
) -> RulePage:
    """Return *limit* of the *wanted* rules of *revision* after *offset*, in their order."""
    found = [rule for rule in rules_by_id(revision.document).values() if wanted.wants(rule)]
    some = found[offset : offset + limit]
    versions = revision.versions
    rules = tuple((versions.get(rule["id"], revision.number), rule) for rule in some)
    return RulePage(revision.number, len(found), rules)


def mode_of(rule: Mapping[str, Any]) -> str:
    """Return the mode of *rule*."""
    mode = rule.get("mode", "enforce")
    return "off" if mode is False else str(mode)


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _matches(rule: Mapping[str, Any], endpoint: str) -> bool:
    match = rule.get("match")
    given = match.get("endpoint") if isinstance(match, dict) else None
    if given is None:
        return True
    patterns = [one for one in _listed(given) if isinstance(one, str)]
    paths = readings(endpoint)
    return endpoint in patterns or any(
        compiled(one).fits(path) for one in patterns for path in paths
    )


def _has_tier(rule: Mapping[str, Any], tier: str) -> bool:
    match, limits = rule.get("match"), rule.get("limits")
    wanted = _listed(match.get("tier")) if isinstance(match, dict) else []
    return tier in wanted or (isinstance(limits, dict) and tier in limits)
