"""Edits of a policy as values: each makes the document after it from the one before.

They are about the shape alone; `policy.loader` validates the result.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.control.documents import mode_of, rules_by_id
from headgate.control.revision import ControlError, json_text
from headgate.policy.document import MAX_BYTES
from headgate.policy.fields import instant_ns, instant_text
from headgate.policy.problems import PolicyError, Problem, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.control.documents import Data

    Document = Mapping[str, Any]

MOST_RULES: Final = 10_000
"""The most rules of a policy that is changed over the network."""
SUFFIX: Final = "-candidate"
"""The end of the id of a candidate."""
_WHERE: Final = "<policy>"
_OF: Final = "candidate_of"
_OWN: Final = ("id", "mode", _OF)
"""Fields of a candidate that are not adopted."""


class UnknownRuleError(ControlError):
    """There is no such rule, or no candidate of it."""


class UnknownOverrideError(ControlError):
    """There is no such override."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a policy. *what* summarizes it, *make* returns the document after one.

    A request may name the version of the rule *rule*, and of its candidate if it *is_pair*; of the
    whole policy if *rule* is None. *is_whole*: it depends on nothing in the document before.
    """

    what: str
    make: Callable[[Document], Data]
    rule: str | None = None
    is_pair: bool = False
    is_whole: bool = False


def put_rule(rule_id: str, data: Document) -> Edit:
    """Make *data* the rule *rule_id*: in its place if it exists, else after the others."""
    own = plain_data(data)
    return Edit(f"put rule {rule_id}", lambda before: _with_rule(before, rule_id, own), rule_id)


def delete_rule(rule_id: str) -> Edit:
    """Remove a rule, its candidate, and the overrides of their counters."""
    return Edit(f"delete rule {rule_id}", lambda before: _without_rule(before, rule_id), rule_id)


def change_rules(rules: Mapping[str, Document | None]) -> Edit:
    """Put all *rules* by their ids; None deletes one."""

    def make(before: Document) -> Data:
        document = dict(before)
        for rule_id, data in rules.items():
            if data is not None:
                document = _with_rule(document, rule_id, plain_data(data))
            elif rule_id in rules_by_id(document) or rule_id not in rules_by_id(before):
                document = _without_rule(document, rule_id)  # else it was removed with its rule
        return document

    return Edit("change rules", make)


def switch_rule(rule_id: str, mode: str) -> Edit:
    """Give a rule another mode, and leave all else as it is; `off` is the kill switch."""

    def make(before: Document) -> Data:
        rule = rule_in(before, rule_id)
        if mode_of(rule) == mode:
            return dict(before)
        bare = {name: value for name, value in rule.items() if name != "mode"}
        return _with_rule(before, rule_id, bare if mode == "enforce" else {**bare, "mode": mode})

    what = f"switch off {rule_id}" if mode == "off" else f"switch {rule_id} to {mode}"
    return Edit(what, make, rule_id)


def put_candidate(rule_id: str, data: Document) -> Edit:
    """Try *data* in shadow beside the rule *rule_id*, in place of its present candidate.

    Raises `UnknownRuleError`, and `PolicyError` if *data* has fields that only the rule itself has,
    or the id belongs to another rule.
    """
    own = plain_data(data)
    what = f"try a candidate of {rule_id}"
    return Edit(what, lambda before: _with_candidate(before, rule_id, own), rule_id, is_pair=True)


def adopt_candidate(rule_id: str) -> Edit:
    """Replace a rule by its candidate.

    The rule keeps its id and its mode; its description too, if the candidate has none.
    Raises `UnknownRuleError` if there is no such rule, or no candidate.
    """
    what = f"adopt the candidate of {rule_id}"
    return Edit(what, lambda before: _with_adopted(before, rule_id), rule_id, is_pair=True)


def replace_policy(document: Document) -> Edit:
    """Replace the whole policy by *document*."""
    return Edit("replace the policy", lambda _: plain_data(document), is_whole=True)


def put_override(
    rule_id: str, key: str, *, until_ns: int, extra: int = 0, block: bool = False
) -> Edit:
    """*block* a key under a rule, or make its limits larger by *extra*, until then.

    Replaces any other override of the same counter.
    """
    until = instant_text(until_ns)
    given: Data = {"block": True} if block else {"extra": extra}
    override = {"rule": rule_id, "key": key, **given, "until": until}

    def make(before: Document) -> Data:
        rule_in(before, rule_id)
        others = [one for one in _overrides(before) if _counter(one) != (rule_id, key)]
        return {**before, "overrides": [*others, override]}

    what = f"block {key}" if block else f"grant {extra} more to {key}"
    return Edit(f"{what} under {rule_id} until {until}", make)


def remove_override(rule_id: str, key: str) -> Edit:
    """End the override of *key* under a rule. Raises `UnknownOverrideError`."""

    def make(before: Document) -> Data:
        override_in(before, rule_id, key)
        return _filtered(before, lambda one: _counter(one) != (rule_id, key))

    return Edit(f"end the override of {key} under {rule_id}", make)


# ---- reading documents ---------------------------------------------------------------------


def rule_in(document: Document, rule_id: str) -> Data:
    """Return a rule of *document*. Raises `UnknownRuleError`."""
    rule = rules_by_id(document).get(rule_id)
    if rule is None:
        raise UnknownRuleError(f"there is no rule {quoted(rule_id)}")
    return rule


def candidate_in(document: Document, rule_id: str) -> str | None:
    """Return the id of the candidate of a rule; None if it has none."""
    rules = rules_by_id(document)
    return next((name for name, rule in rules.items() if rule.get(_OF) == rule_id), None)


def override_in(document: Document, rule_id: str, key: str) -> Data:
    """Return the override of a counter. Raises `UnknownOverrideError`."""
    for one in _overrides(document):
        if _counter(one) == (rule_id, key):
            return one
    message = f"there is no override for the key {quoted(key)} of the rule {quoted(rule_id)}"
    raise UnknownOverrideError(message)


def plain_data(given: object) -> Any:
    """Copy *given* as JSON data. Raises `PolicyError` for values that JSON does not have."""
    try:
        return json.loads(json.dumps(given, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise _invalid(f"not JSON: {error}") from error


def check_size(document: Document) -> None:
    """Raise `PolicyError` if *document* is too large."""
    rules = document.get("rules")
    if isinstance(rules, list) and len(rules) > MOST_RULES:
        raise _invalid(f"{len(rules)} rules; at most {MOST_RULES} are allowed")
    if len(json_text(document)) > MAX_BYTES:
        raise _invalid(f"too large; at most {MAX_BYTES} bytes (1 MiB) of JSON are allowed")


def without_expired(document: Document, now_ns: int) -> Data:
    """Remove overrides that have ended."""

    def is_active(override: Data) -> bool:
        until = override.get("until")
        ends = instant_ns(until) if isinstance(until, str) else None
        return ends is None or ends > now_ns

    return _filtered(document, is_active)


# ---- documents after an edit ---------------------------------------------------------------


def _with_rule(document: Document, rule_id: str, data: Document) -> Data:
    if data.get("id", rule_id) != rule_id:
        message = f"found {quoted(str(data['id']))} in the rule {quoted(rule_id)}; expected none"
        raise _invalid(message, rule=rule_id, field="id")
    rule = {"id": rule_id, **{name: value for name, value in data.items() if name != "id"}}
    rules = document.get("rules") or []
    if rule_id in rules_by_id(document):
        return {**document, "rules": [rule if _is(old, rule_id) else old for old in rules]}
    return {**document, "rules": [*rules, rule]}


def _without_rule(document: Document, rule_id: str) -> Data:
    rule_in(document, rule_id)
    removed = {rule_id, candidate_in(document, rule_id) or rule_id}
    left = [rule for rule in document["rules"] if not any(_is(rule, name) for name in removed)]
    return _filtered({**document, "rules": left}, lambda one: one.get("rule") not in removed)


def _with_candidate(document: Document, rule_id: str, data: Document) -> Data:
    rule_in(document, rule_id)
    name = f"{rule_id}{SUFFIX}"
    fixed = {"id": name, "mode": "shadow", _OF: rule_id}
    problems = [
        Problem(
            "error",
            _WHERE,
            f"found {quoted(str(data[key]))}; a candidate of this rule has {quoted(value)}",
            rule=name,
            field=key,
            hint="expected none",
        )
        for key, value in fixed.items()
        if data.get(key, value) != value
    ]
    if problems:
        raise PolicyError(problems)
    earlier = candidate_in(document, rule_id)
    if name in rules_by_id(document) and name != earlier:
        message = f"the id belongs to a rule that is not a candidate of {quoted(rule_id)}"
        raise _invalid(message, rule=name, field="id", hint="rename or remove that rule first")
    candidate = {"id": name, **_bare(data), "mode": "shadow", _OF: rule_id}
    if name == earlier:
        return _with_rule(document, name, candidate)
    if earlier is not None:
        document = _without_rule(document, earlier)
    rules: list[Any] = []
    for one in document["rules"]:
        rules += [one, candidate] if _is(one, rule_id) else [one]
    return {**document, "rules": rules}


def _with_adopted(document: Document, rule_id: str) -> Data:
    live = rule_in(document, rule_id)
    name = candidate_in(document, rule_id)
    if name is None:
        of = live.get(_OF)
        hint = f"; it is itself the candidate of {quoted(of)}" if isinstance(of, str) else ""
        raise UnknownRuleError(f"the rule {quoted(rule_id)} has no candidate{hint}")
    kept: Data = {key: live[key] for key in ("description", "mode") if key in live}
    adopted = {**kept, **_bare(rule_in(document, name))}
    return _with_rule(_without_rule(document, name), rule_id, adopted)


def _bare(candidate: Document) -> Data:
    return {key: value for key, value in candidate.items() if key not in _OWN}


def _is(rule: object, rule_id: str) -> bool:
    return isinstance(rule, dict) and rule.get("id") == rule_id


def _overrides(document: Document) -> list[Data]:
    found = document.get("overrides")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _counter(override: Document) -> tuple[object, object]:
    return override.get("rule"), override.get("key")


def _filtered(document: Document, keeps: Callable[[Data], bool]) -> Data:
    """Remove the overrides that *keeps* rejects; without any the field goes."""
    given = document.get("overrides")
    if not isinstance(given, list):
        return dict(document)
    left = [one for one in given if not isinstance(one, dict) or keeps(one)]
    if left or left == given:
        return {**document, "overrides": left}
    return {name: value for name, value in document.items() if name != "overrides"}


def _invalid(message: str, **more: Any) -> PolicyError:
    return PolicyError([Problem("error", _WHERE, message, **more)])
