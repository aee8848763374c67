"""What differs between two documents: rules added, removed, moved, changed field by field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headgate.control.documents import rules_by_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headgate.control.documents import Data

Kind = Literal["added", "removed", "changed"]


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field, as a dotted path, that is otherwise; None where it is not there."""

    field: str
    before: Any = None
    after: Any = None


@dataclass(frozen=True, slots=True)
class RuleChange:
    """A rule that is new, gone or otherwise."""

    rule: str
    kind: Kind
    fields: tuple[FieldChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Differences:
    """All that differs. *is_reordered*: the rules that stay are in another order."""

    rules: tuple[RuleChange, ...] = ()
    is_reordered: bool = False
    identity: tuple[FieldChange, ...] = ()
    overrides_added: tuple[Data, ...] = ()
    overrides_removed: tuple[Data, ...] = ()
    priority: tuple[FieldChange, ...] = ()
    pressure: tuple[FieldChange, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs."""
        return self == Differences()


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Differences:
    """What is otherwise in *after* than in *before*."""
    old, new = rules_by_id(before), rules_by_id(after)
    changes = [*_changed(old, new)]
    stay = [name for name in old if name in new]
    old_overrides, new_overrides = _listed(before), _listed(after)
    return Differences(
        tuple(changes),
        is_reordered=stay != [name for name in new if name in old],
        identity=tuple(_fields("identity", before.get("identity"), after.get("identity"))),
        overrides_added=tuple(one for one in new_overrides if one not in old_overrides),
        overrides_removed=tuple(one for one in old_overrides if one not in new_overrides),
        priority=tuple(_fields("priority", before.get("priority"), after.get("priority"))),
        pressure=tuple(_fields("pressure", before.get("pressure"), after.get("pressure"))),
    )


def to_data(found: Differences) -> Data:
    """The same for JSON."""
    return {
        "rules": [
            {"rule_id": one.rule, "change": one.kind, "fields": _fields_to_data(one.fields)}
            for one in found.rules
        ],
        "reordered": found.is_reordered,
        "identity": _fields_to_data(found.identity),
        "overrides": {
            "added": list(found.overrides_added),
            "removed": list(found.overrides_removed),
        },
        "priority": _fields_to_data(found.priority),
        "pressure": _fields_to_data(found.pressure),
    }


def _fields_to_data(fields: Sequence[FieldChange]) -> list[Data]:
    return [{"field": one.field, "before": one.before, "after": one.after} for one in fields]


def _changed(old: Mapping[str, Data], new: Mapping[str, Data]) -> Iterator[RuleChange]:
    for name, rule in new.items():
        if name not in old:
            yield RuleChange(name, "added", tuple(_fields("", {}, _bare(rule))))
        elif old[name] != rule:
            yield RuleChange(name, "changed", tuple(_fields("", _bare(old[name]), _bare(rule))))
    for name, rule in old.items():
        if name not in new:
            yield RuleChange(name, "removed", tuple(_fields("", _bare(rule), {})))


def _bare(rule: Mapping[str, Any]) -> Data:
    return {name: value for name, value in rule.items() if name != "id"}


def _fields(path: str, before: object, after: object) -> Iterator[FieldChange]:
    """The fields that differ, mappings gone through (documents are not deep)."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            inner = f"{path}.{name}" if path else str(name)
            yield from _fields(inner, before.get(name), after.get(name))
    else:
        yield FieldChange(path, before, after)


def _listed(document: Mapping[str, Any]) -> list[Data]:
    found = document.get("overrides")
    return found if isinstance(found, list) else []
