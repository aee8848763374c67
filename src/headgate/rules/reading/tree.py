"""The shape of a document, before anybody asks what it means.

A `Scalar` keeps its text as it was written: whether `off` is a word or a boolean, and `010` a
number or a name, is for the field to say that it stands in, not for YAML. `Grower` builds the tree
from what a parser meets, one thing after the other and without recursion, and keeps the bounds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from headgate.rules.reading.findings import Findings

LARGEST_TEXT: Final = 1024 * 1024
"""The most bytes in a document."""

DEEPEST: Final = 32
"""How many lists and mappings may stand in each other."""

MOST_NODES: Final = 100_000
"""How many things may be in a document, what aliases stand for counted each time."""

TRUE: Final = frozenset(("true", "True", "TRUE"))
FALSE: Final = frozenset(("false", "False", "FALSE"))
NULL: Final = frozenset(("", "~", "null", "Null", "NULL"))


class Place(NamedTuple):
    """A line and a column, counted from 1; None in data that has no text."""

    line: int | None = None
    column: int | None = None


NOWHERE: Final = Place()


@dataclass(slots=True)
class Scalar:
    """A text. *is_plain*: without quotes, so that it may mean a number, a boolean or nothing.

    *inset* is how many columns after *place* the text begins; None if it is not in the document
    letter by letter.
    """

    text: str
    is_plain: bool
    place: Place = NOWHERE
    inset: int | None = None

    @property
    def is_null(self) -> bool:
        return self.is_plain and self.text in NULL

    @property
    def boolean(self) -> bool | None:
        """What it says if it is a boolean, else None."""
        if not self.is_plain:
            return None
        return True if self.text in TRUE else False if self.text in FALSE else None


@dataclass(slots=True)
class Listing:
    """Things in their order."""

    place: Place = NOWHERE
    items: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Table:
    """Things under names; `keys` are the names where they were written."""

    place: Place = NOWHERE
    entries: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Scalar] = field(default_factory=dict)


Node: TypeAlias = Scalar | Listing | Table


@dataclass(slots=True)
class _Open:
    """A list or mapping that is not complete: its size and height so far, and the key at hand."""

    node: Listing | Table
    anchor: str | None
    key: Scalar | None = None
    is_after_key: bool = False
    size: int = 1
    height: int = 1


class Grower:
    """Builds one document. What breaks a bound stops the reading; the rest is noted."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Node, int, int]] = {}
        self._count = 0
        self.root: Node | None = None

    def scalar(self, scalar: Scalar, anchor: str | None = None) -> None:
        self._put(scalar, scalar.place, 1, 0)
        if anchor is not None:
            self._anchors[anchor] = (scalar, 1, 0)

    def begin(self, node: Listing | Table, anchor: str | None = None) -> None:
        if len(self._open) >= DEEPEST:
            self._findings.stop(node.place, f"nested too deeply; at most {DEEPEST} levels are read")
        self._open.append(_Open(node, anchor))

    def end(self) -> None:
        done = self._open.pop()
        self._put(done.node, done.node.place, done.size, done.height, new=1)
        if done.anchor is not None:
            self._anchors[done.anchor] = (done.node, done.size, done.height)

    def alias(self, anchor: str, place: Place) -> None:
        found = self._anchors.get(anchor)
        if found is None:
            self._findings.wrong(place, f"the alias {shown(anchor)} stands for nothing before it")
            found = (Scalar("", is_plain=False, place=place), 1, 0)
        self._put(found[0], place, found[1], found[2], new=found[1])

    def graft(self, node: Node, size: int, height: int) -> None:
        """Put a *node* that has been grown before, and counts as if it were grown now."""
        self._put(node, node.place, size, height, new=size)

    def _put(self, node: Node, place: Place, size: int, height: int, new: int = 1) -> None:
        """Hang *node* where the next one belongs; *new* of its *size* was not counted yet."""
        self._count += new
        if self._count > MOST_NODES:
            told = f"too large; at most {MOST_NODES} values are read, aliases counted in full"
            self._findings.stop(place, told)
        if len(self._open) + height > DEEPEST:
            self._findings.stop(place, f"nested too deeply; at most {DEEPEST} levels are read")
        if not self._open:
            self.root = node
            return
        parent = self._open[-1]
        parent.size += size
        parent.height = max(parent.height, height + 1)
        if isinstance(parent.node, Listing):
            parent.node.items.append(node)
        elif parent.is_after_key:
            self._enter(parent, parent.node, node)
        else:
            parent.key, parent.is_after_key = self._checked_key(node, place), True

    def _checked_key(self, node: Node, place: Place) -> Scalar | None:
        if not isinstance(node, Scalar) or node.is_null or node.boolean is not None:
            told = f"{described(node)} cannot be a key; expected text"
            hint = "put it in quotes" if isinstance(node, Scalar) else ""
            self._findings.wrong(place, told, hint=hint)
            return None
        if node.is_plain and node.text == "<<":
            hint = "write the fields out, or give a whole value with an alias"
            self._findings.wrong(place, "merge keys ('<<') are not read", hint=hint)
            return None
        return node

    def _enter(self, parent: _Open, table: Table, node: Node) -> None:
        key, parent.key, parent.is_after_key = parent.key, None, False
        if key is None:
            return
        first = table.keys.get(key.text)
        if first is not None:
            at = "" if first.place.line is None else f"; the first is in line {first.place.line}"
            self._findings.wrong(key.place, f"{_told(key.text)} is given twice{at}")
            return
        table.keys[key.text] = key
        table.entries[key.text] = node


LONGEST_SHOWN: Final = 60


def shown(text: str) -> str:
    """*text* in quotes, short enough for a message and without anything that cannot be printed."""
    return repr(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "...")


def described(node: Node) -> str:
    """What *node* is, for "found ..."."""
    match node:
        case Table():
            return "a mapping"
        case Listing():
            return "a list"
        case Scalar() if node.is_null:
            return "nothing"
        case Scalar() if node.boolean is not None:
            return node.text.lower()
        case Scalar(text=text, is_plain=True) if text[:1].isdigit() and text.isprintable():
            return text if len(text) <= LONGEST_SHOWN else "a very long number"
    return shown(node.text)


def _told(key: str) -> str:
    """A key in a message, if it is a word: another may be somebody's secret."""
    return shown(key) if _WORD.fullmatch(key) else "this key"


_WORD = re.compile("[a-z_]{1,30}")
