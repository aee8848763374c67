"""A policy as it is kept: its text as data, a number that grows, and who changed what when.

    revision 12                      the number: one more with every change, of whatever
    ├── document                     what was written: version, identity, rules, overrides
    ├── versions: {login: 7, ...}    for each rule the number of the revision that last changed it
    └── change                       who, when, what

The document is what people wrote, not what was read from it: what is put is what is got. A rule's
version is the revision that changed it last, so a rule that is deleted and made again never has an
old version again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import Mapping

EMPTY: Final[Mapping[str, Any]] = MappingProxyType({"version": 1, "rules": []})
"""The document of a policy without rules."""


class ControlError(HeadgateError):
    """A change of the policy, or a look at it, that could not be made."""


class ConflictError(ControlError):
    """Somebody else has changed the policy meanwhile; nothing was changed."""


class UnknownRevisionError(ControlError):
    """A revision that is not there: not yet, or no longer."""


class ReadOnlyError(ControlError):
    """Rules that cannot be changed where they are kept."""


class StorageError(ControlError):
    """The place where the rules are kept could not be asked. Nobody knows whether a change that was
    under way has been made; the next look will tell."""


@dataclass(frozen=True, slots=True)
class Change:
    """Who did *what* (a few words: `put rule login`), and when (nanoseconds since the epoch)."""

    author: str
    time_ns: int
    what: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Revision:
    """The policy at one time. Number 0 is that nothing has been written yet."""

    number: int
    document: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    versions: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    change: Change = Change("", 0, "nothing yet")

    def to_json(self) -> bytes:
        """This as bytes, for keeping; `revision_from_json` reads them."""
        return json.dumps(
            {
                "number": self.number,
                "document": dict(self.document),
                "versions": dict(self.versions),
                "change": {
                    "author": self.change.author,
                    "time_ns": self.change.time_ns,
                    "what": self.change.what,
                    "note": self.change.note,
                },
            },
            separators=(",", ":"),
        ).encode("ascii")


def revision_from_json(text: bytes) -> Revision:
    """The revision that was written as *text*. Raises `StorageError` if it is none.

    What a newer Headgate may have added beside the document is passed over: while a fleet is being
    upgraded both follow the same revisions.
    """
    try:
        data = json.loads(text)
        told = data["change"]
        change = Change(told["author"], told["time_ns"], told["what"], told.get("note", ""))
        number, document, versions = data["number"], data["document"], data["versions"]
        shapes = isinstance(document, dict) and isinstance(versions, dict)
        if not shapes or not isinstance(number, int) or not isinstance(change.time_ns, int):
            raise StorageError("what is kept as a revision is not of its shape")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StorageError(f"what is kept is not a revision: {error}") from error
    return Revision(number, document, versions, change)
