"""From a text or from data to a tree: what cannot be read at all is refused here."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.policy.loader.diagnostics import (
    LARGEST_TEXT,
    NOWHERE,
    Findings,
    Grower,
    Listing,
    Place,
    Scalar,
    Table,
)
from headgate.policy.loader.rule_cache import Known

if TYPE_CHECKING:
    from headgate.policy.loader.diagnostics import Node


# YAML, event by event: only its shape is taken, no tag and no implicit type ever comes to life.


try:
    import yaml
except ImportError:  # pragma: no cover - the tests take it away by other means
    yaml = None  # type: ignore[assignment]

MISSING: Final = "to read YAML: pip install 'headgate[rules]'"


def is_available() -> bool:
    """Whether the package that reads YAML is there."""
    return yaml is not None


def grow_yaml(text: str, findings: Findings) -> Node | None:
    """The tree of *text*; None if there is nothing in it. Raises `PolicyError`."""
    if yaml is None:
        findings.stop(NOWHERE, "this is not JSON, and PyYAML is not installed", hint=MISSING)
    grower = Grower(findings)
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            _follow(event, grower, findings)
    except yaml.YAMLError as error:
        _refuse(error, findings)
    root = grower.root
    return None if isinstance(root, Scalar) and root.is_null else root


def _follow(event: Any, grower: Grower, findings: Findings) -> None:
    """Take one *event* in."""
    kind = type(event)
    if kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
        grower.end()
        return
    mark = event.start_mark
    place = Place(mark.line + 1, mark.column + 1)
    if kind is yaml.AliasEvent:
        grower.alias(event.anchor, place)
    elif kind is yaml.DocumentStartEvent and grower.root is not None:
        findings.stop(place, "a second document begins here; one is read, without '---'")
    elif issubclass(kind, yaml.ScalarEvent | yaml.CollectionStartEvent):
        if event.tag is not None:
            told = f"the tag {event.tag[:60]!r} is not read"
            findings.wrong(place, told, hint="write the value without one, a text in quotes")
        _grow(event, place, grower)


def _grow(event: Any, place: Place, grower: Grower) -> None:
    if isinstance(event, yaml.ScalarEvent):
        grower.scalar(_scalar(event, place), event.anchor)
    else:
        node = Table(place) if isinstance(event, yaml.MappingStartEvent) else Listing(place)
        grower.begin(node, event.anchor)


def _scalar(event: Any, place: Place) -> Scalar:
    is_plain = not event.style
    start, end = event.start_mark, event.end_mark
    inset = 0 if is_plain else 1
    is_literal = (
        start.line == end.line and end.column - start.column == len(event.value) + 2 * inset
    )
    return Scalar(event.value, is_plain, place, inset if is_literal else None)


def _refuse(error: yaml.YAMLError, findings: Findings) -> None:
    mark = getattr(error, "problem_mark", None)
    place = NOWHERE if mark is None else Place(mark.line + 1, mark.column + 1)
    context = getattr(error, "context", None)
    told = ", ".join(part for part in (context, getattr(error, "problem", None)) if part)
    if "cannot start any token" in told:
        told = (
            "a character that nothing can begin with; a tab cannot indent, quote '@', '`' and '%'"
        )
    findings.stop(place, f"not YAML: {told or 'it cannot be read'}")


# JSON with places, and without recursion. The same tree as from YAML, and no package needed.


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


# Data that came as objects (from an API, not from a file) as a tree without lines.


_MOST_BITS: Final = 1_000

_END: Final = object()


def grow_data(data: object, grower: Grower, findings: Findings) -> None:
    """Put *data* into *grower*. Raises `PolicyError` beyond a bound, for a circle too."""
    waiting: list[Iterator[object]] = [iter((data,))]
    while waiting:
        item = next(waiting[-1], _END)
        if item is not _END:
            inside = _take(item, grower, findings)
            if inside is not None:
                waiting.append(inside)
            continue
        waiting.pop()
        if waiting:
            grower.end()


def _take(item: object, grower: Grower, findings: Findings) -> Iterator[object] | None:
    """Put *item* into *grower*; what is inside of it if it has been opened."""
    if isinstance(item, Mapping):
        grower.begin(Table())
        return _entries(item, findings)
    if isinstance(item, list | tuple):
        grower.begin(Listing())
        return iter(item)
    if isinstance(item, Known):
        grower.graft(item.node, item.size, item.height)
        return None
    grower.scalar(_data_scalar(item, findings))
    return None


def _entries(mapping: Mapping[object, object], findings: Findings) -> Iterator[object]:
    for key, value in mapping.items():
        if isinstance(key, str):
            yield key
            yield value
        else:
            findings.wrong(NOWHERE, f"a key of type {type(key).__name__}; expected text")


def _data_scalar(item: object, findings: Findings) -> Scalar:
    match item:
        case str():
            return Scalar(item, is_plain=False, inset=0)
        case None:
            return Scalar("null", is_plain=True)
        case bool():
            return Scalar(str(item).lower(), is_plain=True)
        case int() if item.bit_length() <= _MOST_BITS:
            return Scalar(str(item), is_plain=True)
        case float():
            return Scalar(repr(item), is_plain=True)
    what = "a number too large to be read" if isinstance(item, int) else type(item).__name__
    told = f"found {what}; expected text, a number, a boolean, a list or a mapping"
    findings.wrong(NOWHERE, told)
    return Scalar("", is_plain=False)


_UNFIT: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]"
)
"""What neither YAML nor JSON may contain."""


def grow_text(source: str | bytes, findings: Findings) -> Node:
    """The tree of a text in YAML or JSON. Raises `PolicyError` for what has none."""
    text = _decoded(source, findings)
    if not text.lstrip().startswith(("{", "[")):
        return _rooted(grow_yaml(text, findings), findings)
    grown = grow_json(text, findings)
    if isinstance(grown, Flaw):
        if not is_available():
            findings.stop(grown.place, f"not JSON: {grown.message}", hint=MISSING)
        return _rooted(grow_yaml(text, findings), findings)
    return grown


def grow_object(data: object, findings: Findings) -> Node:
    """The tree of *data* as a JSON parser makes it. Raises `PolicyError` for what has none."""
    grower = Grower(findings)
    grow_data(data, grower, findings)
    return _rooted(grower.root, findings)


def _rooted(root: Node | None, findings: Findings) -> Node:
    if root is None:
        findings.stop(NOWHERE, "there is nothing in it; expected a mapping with version and rules")
    return root


def _decoded(source: str | bytes, findings: Findings) -> str:
    size = len(source)
    if size <= LARGEST_TEXT and isinstance(source, str) and not source.isascii():
        size = len(source.encode("utf-8", "surrogatepass"))
    if size > LARGEST_TEXT:
        findings.stop(NOWHERE, f"too large; at most {LARGEST_TEXT} bytes (1 MiB) are read")
    text = source if isinstance(source, str) else _from_bytes(source, findings)
    text = text.removeprefix("\ufeff")
    unfit = _UNFIT.search(text)
    if unfit is not None:
        told = f"the character U+{ord(unfit[0]):04X} may not be in it"
        findings.stop(place_of(text, unfit.start()), told)
    return text


def _from_bytes(source: bytes, findings: Findings) -> str:
    try:
        return source.decode("utf-8")
    except UnicodeDecodeError as error:
        before = source[: error.start].decode("utf-8", "replace")
        told = f"not UTF-8: the byte 0x{source[error.start]:02X} does not belong there"
        findings.stop(place_of(before, len(before)), told)


def place_of(text: str, offset: int) -> Place:
    """The place of the character at *offset*."""
    line = text.count("\n", 0, offset) + 1
    return Place(line, offset - text.rfind("\n", 0, offset))
