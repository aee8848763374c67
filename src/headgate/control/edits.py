"""Edits of a document: the one before goes in, the one after comes out. No I/O, nothing in place.

They are about shape only; whether what comes out is a policy is for `rules.reading` to say.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from headgate.control.documents import rules_by_id
from headgate.control.revision import ControlError
from headgate.rules.problems import PolicyError, Problem
from headgate.rules.reading.instants import instant_ns
from headgate.rules.reading.tree import LARGEST_TEXT, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.control.documents import Data

MOST_RULES: Final = 10_000
"""How many a policy may have that is changed over the network."""
WHERE: Final = "<policy>"


class UnknownRuleError(ControlError):
    """A rule that is not there."""


class UnknownOverrideError(ControlError):
    """An override that is not there."""


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
    if rule_id not in rules:
        raise UnknownRuleError(f"there is no rule {shown(rule_id)}")
    gone = {rule_id, *(name for name, rule in rules.items() if rule.get("candidate_of") == rule_id)}
    left = [rule for rule in document["rules"] if not any(_is(rule, name) for name in gone)]
    return _filtered({**document, "rules": left}, lambda one: one.get("rule") not in gone)


def with_override(document: Mapping[str, Any], override: Mapping[str, Any]) -> Data:
    """*document* with *override* in the place of any other for the same counter."""
    place = (override["rule"], override["key"])
    if place[0] not in rules_by_id(document):
        raise UnknownRuleError(f"there is no rule {shown(place[0])}")
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
    elif len(json.dumps(document, separators=(",", ":"))) > LARGEST_TEXT:
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
