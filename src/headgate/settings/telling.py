"""Settings as people write them: for the help, and for the table in the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.settings.declaring import Setting


def default_of(one: Setting) -> str:
    """The default of a setting as it would be written; "" if there is none."""
    value = one.default
    if value is None or value in (b"", ()):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if one.name == "socket_mode":
        return f"{value:o}"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)


def table_rows(settings: tuple[Setting, ...]) -> Iterator[str]:
    """The table of all settings in Markdown, with a heading for each group."""
    group = None
    for one in settings:
        if one.group != group:
            group = one.group
            yield from ("", f"### {group}", "", "| in a file | value | default | what |")
            yield "|---|---|---|---|"
        default = default_of(one)
        shown = f"`{default}`" if default else ""
        yield f"| `{one.name}` | {one.expected} | {shown} | {one.meaning}{_where(one)} |"


def _where(one: Setting) -> str:
    if one.is_nested:
        return "; only in a file"
    return "; no flag: others can see a process's arguments" if one.is_secret else ""
