"""The tables of fields and settings in docs, from the JSON Schema and the declarations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.config import Setting

Schema = dict[str, Any]


def field_tables(schema: Schema, left_out: dict[str, set[str]]) -> dict[str, list[str]]:
    """By its place, such as `rules.match`, the table of fields of *schema* and of every definition
    that it refers to; without the fields that *left_out* names for a place."""
    places = {"": "policy"}
    pending = [("", schema)]
    tables = {}
    for name, one in pending:
        place = places[name]
        if place in tables:
            place += f", {one['title']}"
        tables[place] = ["| field | default | |", "|---|---|---|"]
        for field, described in one["properties"].items():
            default = "required" if field in one.get("required", ()) else _default(described)
            row = f"| `{field}` | {default} | {described.get('description', '')} |"
            if field not in left_out.get(place, ()):
                tables[place].append(row)
            for other in _references(described):
                if other not in places:
                    places[other] = f"{place}.{field}".removeprefix("policy.")
                    pending.append((other, schema["$defs"][other]))
    return tables


def _default(described: Schema) -> str:
    value = described.get("default", "")
    written = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{written}`" if written else ""


def _references(schema: Any) -> Iterator[str]:
    """The names of the definitions that *schema* refers to, in their order."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from _references(part)


def setting_rows(settings: Sequence[Setting]) -> Iterator[str]:
    """A heading and a table for each group of *settings*."""
    group = None
    for one in settings:
        if one.group != group:
            group = one.group
            yield from ("", f"### {group}", "", "| in a file | value | default | what |")
            yield "|---|---|---|---|"
        shown = f"`{one.default_text}`" if one.default_text else ""
        yield f"| `{one.name}` | {one.expected} | {shown} | {one.meaning}{_only_in(one)} |"


def _only_in(one: Setting) -> str:
    if one.is_nested:
        return "; only in a file"
    return "; no flag: others can see a process's arguments" if one.is_secret else ""
