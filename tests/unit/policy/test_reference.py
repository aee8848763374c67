"""docs/rules-reference.md names every field and every word that the schema knows, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from headgate.policy.limit_forms import LONG_FIELDS
from headgate.policy.policy_document import PolicyDocument, policy_schema
from headgate.policy.tables import json_schema
from tests.golden.recorder import check_marked_tables
from tests.golden.reference_pages import field_tables

PAGE = Path(__file__).parents[3] / "docs" / "rules-reference.md"


def _fields(schema: Any) -> set[str]:
    """The names of all properties, anywhere in *schema*."""
    found: set[str] = set()
    if isinstance(schema, dict):
        found |= set(schema.get("properties", {}))
        for part in schema.values():
            found |= _fields(part)
    elif isinstance(schema, list):
        for part in schema:
            found |= _fields(part)
    return found


def _words(schema: Any) -> set[str]:
    """All texts that some field may have and no other, anywhere in *schema*."""
    found: set[str] = set()
    if isinstance(schema, dict):
        found |= {word for word in schema.get("enum", []) if isinstance(word, str)}
        if isinstance(schema.get("const"), str):
            found.add(schema["const"])
        for part in schema.values():
            found |= _words(part)
    elif isinstance(schema, list):
        for part in schema:
            found |= _words(part)
    return found


def test_every_field_of_the_schema_is_in_the_reference() -> None:
    text = PAGE.read_text("utf-8")
    missing = {field for field in _fields(policy_schema()) if not re.search(rf"\b{field}\b", text)}
    assert missing == set()


def test_every_word_of_the_schema_is_in_the_reference() -> None:
    text = PAGE.read_text("utf-8")
    missing = {word for word in _words(policy_schema()) if not re.search(rf"\b{word}\b", text)}
    assert missing == set()


def test_every_field_in_the_tables_of_the_reference_is_one() -> None:
    known = _fields(policy_schema()) | _words(policy_schema())
    first_cells = re.findall(r"^\| (`[^|]*`) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    named = {name for cell in first_cells for name in re.findall(r"`([a-z_]+)`", cell)}
    assert len(named) > 30
    assert named - known == set()


def test_the_tables_of_the_reference_are_those_of_the_models() -> None:
    numbers = set(LONG_FIELDS) - {"limit", "algorithm"}  # of a rule: in the table of a limit
    check_marked_tables(PAGE, field_tables(json_schema(PolicyDocument), {"rules": numbers}))
