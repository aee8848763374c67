"""Declare settings: one field of a dataclass each, with its type, default and help.

A setting has one name in three spellings: `max_body` in a file, `HEADGATE_MAX_BODY` among the
variables, `--max-body` on the command line. A flag wins over a variable, a variable over the file,
the file over the default. All three, and the reference page, follow from the declaration.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from headgate.policy.tables import docs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.policy.fields import FieldType

PREFIX: Final = "HEADGATE_"


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of a setting: `Annotated[int, Option("Bounds", Whole(1, 9), "N")] = 5`.

    *group* is its heading, *kind* reads a value, *expected* is the form of a value. *is_secret*:
    never on the command line, where others see it, and never in a message. *is_listed*: several
    values, separated by commas in a text. *is_nested*: only in a file. *is_common*: on the first
    page of help.
    """

    group: str
    kind: FieldType
    expected: str
    is_secret: bool = False
    is_listed: bool = False
    is_nested: bool = False
    is_common: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting by its *name*; *meaning* is its help."""

    name: str
    option: Option
    default: object
    meaning: str

    @property
    def group(self) -> str:
        return self.option.group

    @property
    def flag(self) -> str | None:
        if self.option.is_secret or self.option.is_nested:
            return None
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str | None:
        return None if self.option.is_nested else f"{PREFIX}{self.name.upper()}"


def declared_in(kind: type[Any]) -> tuple[Setting, ...]:
    """The settings of the dataclass *kind*, in their order."""
    hints, docs = get_type_hints(kind, include_extras=True), docs_of(kind)
    return tuple(
        Setting(one.name, hints[one.name].__metadata__[0], one.default, _help(docs[one.name]))
        for one in fields(kind)
    )


def _help(text: str) -> str:
    """A docstring as help: without the capital letter and the full stop."""
    is_name = (text[:2].isalpha() and text[:2].isupper()) or text.startswith("Envoy")
    return (text if is_name else text[:1].lower() + text[1:]).removesuffix(".")


def default_of(one: Setting) -> str:
    """The default of a setting as written; "" if there is none."""
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
    """The table of *settings* in Markdown, with a heading for each group."""
    group = None
    for one in settings:
        if one.group != group:
            group = one.group
            yield from ("", f"### {group}", "", "| in a file | value | default | what |")
            yield "|---|---|---|---|"
        default = default_of(one)
        shown = f"`{default}`" if default else ""
        yield f"| `{one.name}` | {one.option.expected} | {shown} | {one.meaning}{_where(one)} |"


def _where(one: Setting) -> str:
    if one.option.is_nested:
        return "; only in a file"
    return "; no flag: others can see a process's arguments" if one.option.is_secret else ""
