"""Documents: policies as data, read from the texts of files, and summaries of what differs.

A document is data as a JSON parser makes it. YAML keeps its shape, not its comments.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate.control.revision import Parsed
from headgate.policy.document import Listing, Table, free_in_steps, parse_text
from headgate.policy.fields import number_in
from headgate.policy.loader import examine_policies, examine_policy_data
from headgate.policy.path import compiled, readings
from headgate.policy.problems import Diagnostics, PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headgate.control.revision import Revision
    from headgate.policy.document import Node
    from headgate.policy.loader import Examined
    from headgate.policy.rule_cache import RuleCache

Data = dict[str, Any]


def parse_document(texts: Sequence[tuple[str, bytes]]) -> tuple[Data, Parsed]:
    """Read *texts* (each with its place) as one policy: the document, and the parsed policy.

    Raises `PolicyError` with all that is wrong.
    """
    document: Data = {}
    examined = examine_policies(texts, visit=partial(_merge, document))
    return document, _parsed(examined)


def parse_policy(texts: Sequence[tuple[str, bytes]]) -> tuple[Data, Parsed]:
    """Read *texts* as one policy, without a document: for sources that are not edited."""
    return {}, _parsed(examine_policies(texts))


def validated(document: Mapping[str, Any], cache: RuleCache) -> Parsed:
    """Validate *document*. Rules in *cache* are not loaded again. Raises `PolicyError`."""
    return _parsed(examine_policy_data(document, cache=cache))


def _parsed(examined: Examined) -> Parsed:
    if examined.policy is None:
        raise PolicyError(examined.problems)
    return Parsed(examined.policy, examined.problems)


def rules_of(document: Mapping[str, Any]) -> list[Data]:
    """Return the rules of *document*, those that are mappings."""
    rules = document.get("rules")
    return [rule for rule in rules if isinstance(rule, dict)] if isinstance(rules, list) else []


def rules_by_id(document: Mapping[str, Any]) -> dict[str, Data]:
    """Return the rules of *document* by their ids."""
    return {rule["id"]: rule for rule in rules_of(document) if isinstance(rule.get("id"), str)}


def versions_after(before: Revision, document: Mapping[str, Any], number: int) -> dict[str, int]:
    """Return the versions of the rules of *document*, the revision *number* after *before*."""
    old = rules_by_id(before.document)
    return {
        name: before.versions.get(name, number) if old.get(name) == rule else number
        for name, rule in rules_by_id(document).items()
    }


def summary_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Summarize the changes from one document to the next in a few words."""
    found = differences(before, after)
    parts = [
        _counted(kind, [one["rule_id"] for one in found["rules"] if one["change"] == kind])
        for kind in ("added", "changed", "removed")
    ]
    if not any(parts) and found["reordered"]:
        parts.append("the order of the rules")
    parts += [name for name in _BESIDES if before.get(name) != after.get(name)]
    return "; ".join(part for part in parts if part) or "no effective change"


_BESIDES: Final = ("identity", "overrides", "priority", "pressure")
"""Fields of a document besides rules."""

_MOST_NAMED: Final = 5


def _counted(what: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{what} {', '.join(names[:_MOST_NAMED])}{more}"


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Data:
    """Return what differs, as data for JSON: rules and other fields with their old and new values.

    `reordered`: the rules that stay are in another order.
    """
    old, new = rules_by_id(before), rules_by_id(after)
    stay = [name for name in old if name in new]
    old_overrides, new_overrides = before.get("overrides") or [], after.get("overrides") or []
    return {
        "rules": [*_changed_rules(old, new)],
        "reordered": stay != [name for name in new if name in old],
        "identity": _fields("identity", before, after),
        "overrides": {
            "added": [one for one in new_overrides if one not in old_overrides],
            "removed": [one for one in old_overrides if one not in new_overrides],
        },
        "priority": _fields("priority", before, after),
        "pressure": _fields("pressure", before, after),
    }


def _changed_rules(old: Mapping[str, Data], new: Mapping[str, Data]) -> Iterator[Data]:
    for name in dict.fromkeys((*new, *old)):
        before, after = old.get(name), new.get(name)
        if before != after:
            kind = "added" if before is None else "removed" if after is None else "changed"
            fields = [*_changed_fields("", _bare(before), _bare(after))]
            yield {"rule_id": name, "change": kind, "fields": fields}


def _bare(rule: Mapping[str, Any] | None) -> Data:
    return {name: value for name, value in (rule or {}).items() if name != "id"}


def _fields(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Data]:
    return [*_changed_fields(name, before.get(name), after.get(name))]


def _changed_fields(path: str, before: object, after: object) -> Iterator[Data]:
    """The fields that differ, as dotted paths (documents are not deep)."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            inner = f"{path}.{name}" if path else str(name)
            yield from _changed_fields(inner, before.get(name), after.get(name))
    else:
        yield {"field": path, "before": before, "after": after}


def _merge(document: Data, root: Node) -> None:
    """Add the data of *root* to *document*: lists are joined, of other values the first counts."""
    found = data_of(root)
    for name, value in found.items() if isinstance(found, dict) else ():
        if isinstance(value, list) and isinstance(document.get(name), list):
            document[name] = [*document[name], *value]
        else:
            document.setdefault(name, value)


def data_of(node: Node) -> object:
    """Return the data of a tree, which is not deep; a number where a field has read a number."""
    match node:
        case Table():
            return {name: data_of(one) for name, one in node.entries.items()}
        case Listing():
            return [data_of(one) for one in node.items]
    if node.is_null:
        return None
    value = node.number if node.boolean is None else node.boolean
    return node.text if value is None else value


def is_text_of(document: Mapping[str, Any], text: bytes) -> bool:
    """True if *text* reads as *document*. Raises `PolicyError` if it cannot be read at all."""
    root = parse_text(text, Diagnostics("<policy>"))
    try:
        return _says(root, document)
    finally:
        free_in_steps(root)


def _says(node: Node, data: Any) -> bool:
    if isinstance(node, Table):
        is_same = isinstance(data, dict) and data.keys() == node.entries.keys()
        return is_same and all(_says(one, data[name]) for name, one in node.entries.items())
    if isinstance(node, Listing):
        is_same = isinstance(data, list) and len(data) == len(node.items)
        return is_same and all(map(_says, node.items, data))
    if node.is_null or node.boolean is not None:
        return data is node.boolean
    if isinstance(data, str):
        return node.text == data
    is_number = node.is_plain and isinstance(data, int | float) and not isinstance(data, bool)
    return is_number and number_in(node.text) == data


# ---- finding rules: by the data as it was written, so that invalid documents work too ----------


def find_rules(
    document: Mapping[str, Any],
    *,
    mode: str | None = None,
    key_by: str | None = None,
    endpoint: str | None = None,
    tier: str | None = None,
    text: str | None = None,
) -> list[Data]:
    """Return the rules of *document* that meet all conditions, in their order.

    *mode*; *key_by*, a part of the key; *endpoint*, a pattern as it is written or a path that the
    rule matches (a rule without endpoints matches every path); *tier*, one that the rule matches or
    has limits for; *text*, anywhere in the rule, in any case. None does not matter.
    """
    return [
        rule
        for rule in rules_by_id(document).values()
        if mode in (None, mode_of(rule))
        and (key_by is None or key_by in _listed(rule.get("key_by")))
        and (endpoint is None or _has_endpoint(rule, endpoint))
        and (tier is None or _has_tier(rule, tier))
        and (text is None or text.casefold() in json.dumps(rule, ensure_ascii=False).casefold())
    ]


def mode_of(rule: Mapping[str, Any]) -> str:
    """Return the mode of *rule*."""
    mode = rule.get("mode", "enforce")
    return "off" if mode is False else str(mode)


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _has_endpoint(rule: Mapping[str, Any], endpoint: str) -> bool:
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
    tiers = _listed(match.get("tier")) if isinstance(match, dict) else []
    return tier in tiers or (isinstance(limits, dict) and tier in limits)
