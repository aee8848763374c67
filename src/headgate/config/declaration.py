"""What a setting is: where it may be said, how it is read, what it means.

A setting has one name in three spellings: `max_body` in a file, `HEADGATE_MAX_BODY` among the
variables, `--max-body` on the command line. A flag wins over a variable, a variable over the file,
the file over the default.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headgate.policy.loader.diagnostics import Spot


T = TypeVar("T")

PREFIX: Final = "HEADGATE_"
_KEY: Final = "setting"


@dataclass(frozen=True, slots=True)
class Setting:
    """One of them. *reader* makes a value of what is written, and notes what is wrong with it.

    *group* is the heading that it stands under. *expected* is what its value looks like.
    *is_secret*: never on the command line, where others see it, and never in a message.
    *is_listed*: several values, in a text with commas between. *is_nested*: only in a file.
    """

    name: str
    group: str
    reader: Callable[[Spot], Any]
    expected: str
    meaning: str
    default: object
    is_secret: bool
    is_listed: bool
    is_nested: bool

    @property
    def flag(self) -> str | None:
        if self.is_secret or self.is_nested:
            return None
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str | None:
        return None if self.is_nested else f"{PREFIX}{self.name.upper()}"


@dataclass(frozen=True, slots=True)
class _Declared:
    group: str
    reader: Callable[[Spot], Any]
    expected: str
    meaning: str
    is_secret: bool
    is_listed: bool
    is_nested: bool


def setting(
    reader: Callable[[Spot], T | None],
    group: str,
    expected: str,
    meaning: str,
    *,
    default: T,
    is_secret: bool = False,
    is_listed: bool = False,
    is_nested: bool = False,
) -> T:
    """A field of a dataclass that is a setting."""
    declared = _Declared(group, reader, expected, meaning, is_secret, is_listed, is_nested)
    is_shown = not (is_secret or is_nested)
    return field(default=default, repr=is_shown, metadata={_KEY: declared})


def declared_in(kind: type[Any]) -> tuple[Setting, ...]:
    """The settings that the dataclass *kind* has, in their order."""
    return tuple(
        Setting(
            one.name,
            said.group,
            said.reader,
            said.expected,
            said.meaning,
            one.default,
            said.is_secret,
            said.is_listed,
            said.is_nested,
        )
        for one in fields(kind)
        for said in [one.metadata[_KEY]]
    )


# Settings as people write them: for the help, and for the table in the documentation.


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
