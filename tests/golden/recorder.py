"""Compare a value with its recording, or record it when HEADGATE_RECORD_GOLDENS is set."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

_HERE = Path(__file__).parent
_LINE = 118
_RECORDING = "HEADGATE_RECORD_GOLDENS" in os.environ


def check_wire(name: str, value: object) -> None:
    """Compare *value* (JSON types only) with `wire/<name>.json`."""
    _check(_HERE / "wire" / f"{name}.json", _as_json(value) + "\n")


def check_text(name: str, text: str) -> None:
    """Compare *text* with `text/<name>.txt`."""
    _check(_HERE / "text" / f"{name}.txt", text if text.endswith("\n") else text + "\n")


def check_tables(page: Path, heading: str, rows: Iterable[str]) -> None:
    """Compare *rows* with the tables of a *page* of the docs: the section *heading*, from its first
    subheading on."""
    text = page.read_text(encoding="utf-8")
    before, title, after = text.partition(f"\n## {heading}\n")
    section, end, rest = after.partition("\n## ")
    introduction, _, tables = section.partition("### ")
    found = "\n".join(rows).strip().removeprefix("### ")
    if _RECORDING:
        parts = (before, title, introduction, "### ", found, "\n", end, rest)
        page.write_text("".join(parts), encoding="utf-8")
        return
    assert found.splitlines() == tables.strip().splitlines(), (
        f"the tables of {page.name} differ; if this is intended, run `make goldens`"
    )


def check_marked_tables(page: Path, tables: Mapping[str, list[str]]) -> None:
    """Compare the tables of a *page* of the docs, each after the line `<!-- fields: PLACE -->`."""
    text = page.read_text(encoding="utf-8")
    marked = re.compile(r"<!-- fields: (.*) -->\n\n((?:\|.*\n)*)")
    if _RECORDING:
        page.write_text(
            marked.sub(
                lambda one: f"<!-- fields: {one[1]} -->\n\n" + "\n".join(tables[one[1]]) + "\n",
                text,
            ),
            encoding="utf-8",
        )
        return
    found = {place: table.splitlines() for place, table in marked.findall(text)}
    assert found == tables, (
        f"the tables of {page.name} differ; if this is intended, run `make goldens`"
    )


def _as_json(value: object, depth: int = 0) -> str:
    """JSON with as much on a line as fits, so that a change of one value is one line of a diff."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + depth <= _LINE or not isinstance(value, dict | list):
        return line
    pad = "\n" + " " * (depth + 1)
    if isinstance(value, list):
        return "[" + ",".join(pad + _as_json(item, depth + 1) for item in value) + "]"
    items = value.items()
    return "{" + ",".join(f"{pad}{_as_json(k)}: {_as_json(v, depth + 1)}" for k, v in items) + "}"


def _check(path: Path, found: str) -> None:
    if _RECORDING:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(found, encoding="utf-8")
        return
    assert path.exists(), f"{path.name} is not recorded: run `make goldens` and review the new file"
    recorded = path.read_text(encoding="utf-8")
    assert found.splitlines() == recorded.splitlines(), (
        f"{path.relative_to(_HERE)} differs; if this is intended, run `make goldens`"
    )
