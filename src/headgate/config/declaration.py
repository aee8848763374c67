"""Declarations of settings: each is a field of a dataclass, with its type, default and help.

A setting has one name in three spellings: `max_body` in a file, `HEADGATE_MAX_BODY` in the
environment, `--max-body` on the command line. A flag overrides a variable, a variable overrides the
file, the file overrides the default. All three, and the reference page, follow from
the declaration.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from headgate.config.values import ADMIN_CERTIFICATES, ADMIN_TOKENS, SECRET
from headgate.policy.tables import docs_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.policy.fields import FieldType

PREFIX: Final = "HEADGATE_"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting, declared as `Annotated[int, Setting("Bounds", whole(1, 9), "N")] = 5`.

    *group* is the heading in help and reference. *kind* parses, checks and writes a value.
    *metavar* is the form of a value in help, if the kind has none. `declared_in` adds what the
    declaration says: the *name* and the *default* of the field, and the dataclass *owner*.
    """

    group: str
    kind: FieldType
    metavar: str = ""
    name: str = ""
    default: object = None
    owner: type[Any] = object
    is_common: bool = False
    """True if `--help` lists it; `--help-all` lists every setting."""

    @property
    def expected(self) -> str:
        """The form of a value, for help and errors."""
        kind = self.kind.item or self.kind
        if kind.words:
            *words, last = kind.words
            return f"{', '.join(words)} or {last}"
        return self.metavar or kind.metavar

    @property
    def meaning(self) -> str:
        """Its help: the docstring of the field without the capital letter and the full stop."""
        text = docs_of(self.owner)[self.name]
        is_name = (text[:2].isalpha() and text[:2].isupper()) or text.startswith("Envoy")
        return (text if is_name else text[:1].lower() + text[1:]).removesuffix(".")

    @property
    def default_text(self) -> str:
        """The default as a user writes it; "" if there is none."""
        if self.default in (None, b"", ()):
            return ""
        if isinstance(self.default, bool):
            return str(self.default).lower()
        if isinstance(self.default, float):
            return f"{self.default:g}"
        written = self.kind.write(self.default)
        return ",".join(map(str, written if isinstance(written, list) else [written]))

    @property
    def is_secret(self) -> bool:
        """True for a secret. It has no flag: others can see the arguments of a process."""
        return self.kind is SECRET

    @property
    def is_listed(self) -> bool:
        """True for a list, whose values are separated by commas in a variable or flag."""
        return self.kind.item is not None

    @property
    def is_nested(self) -> bool:
        """True for a nested value, which only a file can express."""
        return self.kind in (ADMIN_TOKENS, ADMIN_CERTIFICATES)

    @property
    def flag(self) -> str | None:
        is_hidden = self.is_secret or self.is_nested
        return None if is_hidden else f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str | None:
        return None if self.is_nested else f"{PREFIX}{self.name.upper()}"


def declared_in(kind: type[Any], common: Sequence[str] = ()) -> tuple[Setting, ...]:
    """The settings of the dataclass *kind*, in order. `--help` lists only the *common* ones."""
    hints = get_type_hints(kind, include_extras=True)
    found = []
    for one in fields(kind):
        (declared,) = hints[one.name].__metadata__
        known = {"name": one.name, "default": one.default, "owner": kind}
        found.append(replace(declared, **known, is_common=one.name in common))
    return tuple(found)
