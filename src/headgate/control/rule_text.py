"""A rule as YAML: written for an editor, read back, and problems with their place in its lines."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

from headgate.control.yaml_text import written
from headgate.policy.document import Listing, Table, locate, parse_text
from headgate.policy.fields import number_in
from headgate.policy.problems import Diagnostics, PolicyError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headgate.policy.document import Node

    Data = dict[str, Any]

_WHERE: Final = "<rule>"
_STEP: Final = re.compile(r"\[(\d+)\]|\['([^']*)'\]|\.?([^.\[\]]+)")
_OCTAL: Final = re.compile(r"-?0\d")


def rule_text(rule: Mapping[str, Any]) -> str:
    """Write *rule* as YAML."""
    return written(dict(rule))


@dataclass(frozen=True, slots=True)
class RuleText:
    """The text of one rule: its *data*, and the tree with the places of its fields."""

    data: Data
    root: Table

    @classmethod
    def read(cls, text: bytes) -> Self:
        """Read *text*, YAML or JSON, without an id. Raises `PolicyError`."""
        diagnostics = Diagnostics(_WHERE)
        root = parse_text(text, diagnostics)
        if not isinstance(root, Table):
            hint = "expected fields, such as `key_by: ip` and `limit: 100/minute`"
            diagnostics.error(root.place, "this is not a rule", hint=hint)
        if diagnostics.errors or not isinstance(root, Table):
            raise PolicyError(diagnostics.problems())
        return cls({name: _data(one) for name, one in root.entries.items()}, root)

    def located(self, problem: Problem) -> Problem:
        """*problem* of this rule in a document without lines, with its line and column."""
        nodes, keys, _ = locate(self.root, [*_steps(problem.field)])
        place = (keys[-1] or nodes[-1]).place
        return replace(problem, line=place.line, column=place.column)


def _steps(field: str) -> Iterator[str | int]:
    """The steps of the path *field* within its rule."""
    for index, quoted, name in _STEP.findall(re.sub(r"^rules\[\d+\]", "", field)):
        yield int(index) if index else quoted or name


def _data(node: Node) -> object:
    """The data of a tree that no field has read: plain numbers are numbers."""
    match node:
        case Table():
            return {name: _data(one) for name, one in node.entries.items()}
        case Listing():
            return [_data(one) for one in node.items]
    if node.is_null:
        return None
    if not node.is_plain or _OCTAL.match(node.text):
        return node.text
    number = number_in(node.text) if node.boolean is None else node.boolean
    return node.text if number is None else number
