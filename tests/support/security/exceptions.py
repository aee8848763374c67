"""The escapes that are known: tests/security/exceptions.yaml.

Each belongs to a setting or to the reading of a server, has a reason, and names its entries. One
that no longer occurs has to be removed: a test fails until then.
"""

from __future__ import annotations

from typing import Any

import yaml

from tests.support.security.corpus import FOLDER


def known_escapes() -> dict[tuple[str, str], dict[str, str]]:
    """The reasons of known escapes by the name of the entry, by target and group."""
    known: dict[tuple[str, str], dict[str, str]] = {}
    for one in _listed():
        for target in one["targets"]:
            found = known.setdefault((target, one["group"]), {})
            for entry in one["entries"]:
                found[entry] = one["reason"]
    return known


def _listed() -> list[dict[str, Any]]:
    path = FOLDER.parent / "exceptions.yaml"
    found: list[dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found
