"""Edits of a document that are about candidates: rules in shadow beside those they may replace.

As in `edits`: the document before goes in, the one after comes out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.control.documents import rules_by_id
from headgate.control.edits import WHERE, UnknownRuleError, with_rule, without_rule
from headgate.rules.problems import PolicyError, Problem
from headgate.rules.reading.tree import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.control.documents import Data

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
    if rule_id not in rules:
        raise UnknownRuleError(f"there is no rule {shown(rule_id)}")
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
    live = rules_by_id(document).get(rule_id)
    if live is None:
        raise UnknownRuleError(f"there is no rule {shown(rule_id)}")
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
