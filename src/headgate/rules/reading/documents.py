"""From a text or from data to a tree: what cannot be read at all is refused here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headgate.rules.reading import json_text, yaml_text
from headgate.rules.reading.data import grow_data
from headgate.rules.reading.tree import LARGEST_TEXT, NOWHERE, Grower, Place

if TYPE_CHECKING:
    from headgate.rules.reading.findings import Findings
    from headgate.rules.reading.tree import Node

_UNFIT: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]"
)
"""What neither YAML nor JSON may contain."""


def grow_text(source: str | bytes, findings: Findings) -> Node:
    """The tree of a text in YAML or JSON. Raises `PolicyError` for what has none."""
    text = _decoded(source, findings)
    if not text.lstrip().startswith(("{", "[")):
        return _rooted(yaml_text.grow_yaml(text, findings), findings)
    grown = json_text.grow_json(text, findings)
    if isinstance(grown, json_text.Flaw):
        if not yaml_text.is_available():
            findings.stop(grown.place, f"not JSON: {grown.message}", hint=yaml_text.MISSING)
        return _rooted(yaml_text.grow_yaml(text, findings), findings)
    return grown


def grow_object(data: object, findings: Findings) -> Node:
    """The tree of *data* as a JSON parser makes it. Raises `PolicyError` for what has none."""
    grower = Grower(findings)
    grow_data(data, grower, findings)
    return _rooted(grower.root, findings)


def _rooted(root: Node | None, findings: Findings) -> Node:
    if root is None:
        findings.stop(NOWHERE, "there is nothing in it; expected a mapping with version and rules")
    return root


def _decoded(source: str | bytes, findings: Findings) -> str:
    size = len(source)
    if size <= LARGEST_TEXT and isinstance(source, str) and not source.isascii():
        size = len(source.encode("utf-8", "surrogatepass"))
    if size > LARGEST_TEXT:
        findings.stop(NOWHERE, f"too large; at most {LARGEST_TEXT} bytes (1 MiB) are read")
    text = source if isinstance(source, str) else _from_bytes(source, findings)
    text = text.removeprefix("\ufeff")
    unfit = _UNFIT.search(text)
    if unfit is not None:
        told = f"the character U+{ord(unfit[0]):04X} may not be in it"
        findings.stop(place_of(text, unfit.start()), told)
    return text


def _from_bytes(source: bytes, findings: Findings) -> str:
    try:
        return source.decode("utf-8")
    except UnicodeDecodeError as error:
        before = source[: error.start].decode("utf-8", "replace")
        told = f"not UTF-8: the byte 0x{source[error.start]:02X} does not belong there"
        findings.stop(place_of(before, len(before)), told)


def place_of(text: str, offset: int) -> Place:
    """The place of the character at *offset*."""
    line = text.count("\n", 0, offset) + 1
    return Place(line, offset - text.rfind("\n", 0, offset))
