"""JSON with places, and without recursion. The same tree as from YAML, and no package needed."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.rules.reading.findings import Findings
from headgate.rules.reading.tree import Grower, Listing, Place, Scalar, Table

if TYPE_CHECKING:
    from headgate.rules.reading.tree import Node

_TOKEN: Final = re.compile(
    r"[ \t\r\n]*(?:(?P<mark>[\[\]{},:])"
    r'|(?P<string>"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*")'
    r"|(?P<plain>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null)"
    r"|(?P<end>\Z))"
)
_VALUE: Final = ("[", "{", "string", "plain")
_NEXT_ITEM: Final = (",", "]")
_NEXT_ENTRY: Final = (",", "}")


@dataclass(frozen=True, slots=True)
class Flaw:
    """Where a text stops being JSON, and why."""

    place: Place
    message: str


def grow_json(text: str, findings: Findings) -> Node | Flaw:
    """The tree of *text*, or why it is not JSON (then nothing has been noted).

    Raises `PolicyError` for what is JSON so far, and beyond a bound.
    """
    noted = Findings(findings.where)  # of use only if it is JSON to the end
    parser = _Parser(text, Grower(noted))
    while not parser.is_done:
        flaw = parser.step()
        if flaw is not None:
            return flaw
    for problem in noted.problems():
        findings.add(problem)
    assert parser.grower.root is not None  # noqa: S101 - it is done
    return parser.grower.root


class _Parser:
    """What may come next, and what is open."""

    def __init__(self, text: str, grower: Grower) -> None:
        self.grower = grower
        self.is_done = False
        self._text = text
        self._lines = [0, *(found.end() for found in re.finditer("\n", text))]
        self._at = 0
        self._wanted: tuple[str, ...] = _VALUE
        self._open: list[str] = []
        self._is_key = False

    def step(self) -> Flaw | None:
        """Take one token in."""
        found = _TOKEN.match(self._text, self._at)
        if found is None or found.lastgroup is None:
            return self._flaw(self._at, "something that is not JSON")
        kind = found.lastgroup
        word, start = found[kind], found.start(kind)
        name = word if kind == "mark" else kind
        if name not in self._wanted:
            return self._flaw(start, f"found {word[:40]!r}" if word else "it ends too early")
        self._at = found.end()
        if kind == "mark":
            self._mark(word, start)
        elif kind == "end":
            self.is_done = True
        else:
            return self._scalar(kind, word, start)
        return None

    def _mark(self, word: str, start: int) -> None:
        if word in "[{":
            self._open.append(word)
            place = self._place(start)
            self.grower.begin(Table(place) if word == "{" else Listing(place))
            self._wanted = ("string", "}") if word == "{" else (*_VALUE, "]")
            self._is_key = word == "{"
        elif word in "]}":
            self._open.pop()
            self.grower.end()
            self._after_value()
        elif word == ":":
            self._wanted, self._is_key = _VALUE, False
        else:
            self._is_key = self._open[-1] == "{"
            self._wanted = ("string",) if self._is_key else _VALUE

    def _scalar(self, kind: str, word: str, start: int) -> Flaw | None:
        place = self._place(start)
        if kind == "plain":
            self.grower.scalar(Scalar(word, is_plain=True, place=place, inset=0))
        else:
            try:
                text = json.loads(word)
            except ValueError:
                return self._flaw(start, "a text with an escape that JSON does not know")
            inset = 1 if len(text) == len(word) - 2 else None
            self.grower.scalar(Scalar(text, is_plain=False, place=place, inset=inset))
        if self._is_key:
            self._wanted = (":",)
        else:
            self._after_value()
        return None

    def _after_value(self) -> None:
        self._is_key = False
        if not self._open:
            self._wanted = ("end",)
        else:
            self._wanted = _NEXT_ENTRY if self._open[-1] == "{" else _NEXT_ITEM

    def _place(self, offset: int) -> Place:
        line = bisect_right(self._lines, offset)
        return Place(line, offset - self._lines[line - 1] + 1)

    def _flaw(self, offset: int, message: str) -> Flaw:
        return Flaw(self._place(offset), f"{message}, expected {' or '.join(self._wanted)}")
