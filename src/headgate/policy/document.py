"""Compose YAML, JSON or data to a tree of nodes with their places.

A `Scalar` keeps its text as written: the field decides if `off` is a word or a boolean and `010` a
number or a name, not YAML. Tags are errors, and implicit types are not resolved. `TreeBuilder`
bounds depth and size, aliases counted in full.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate.policy.problems import (
    MAX_QUOTED,
    NOWHERE,
    Diagnostics,
    Place,
    PolicyError,
    Problem,
    field_path,
    quoted,
    quoted_key,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.policy.fields import FieldError

try:
    import yaml
except ImportError:  # pragma: no cover - the tests take it away by other means
    yaml = None  # type: ignore[assignment]

MAX_BYTES: Final = 1024 * 1024
"""Bytes of a document at most."""

MAX_DEPTH: Final = 32
"""Lists and mappings inside each other at most."""

MAX_NODES: Final = 100_000
"""Values of a document at most, aliases counted in full."""

INSTALL: Final = "pip install 'headgate[rules]'"
_TRUE: Final = frozenset(("true", "True", "TRUE"))
_FALSE: Final = frozenset(("false", "False", "FALSE"))
_NULL: Final = frozenset(("", "~", "null", "Null", "NULL"))
_MAX_BITS: Final = 1_000
_FORBIDDEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]"
)
"""Characters that neither YAML nor JSON may contain."""


@dataclass(slots=True)
class Scalar:
    """A text. *is_plain*: without quotes, so that it may mean a number, a boolean or nothing.

    *inset* is the number of columns after *place* where the text begins; None if it does not stand
    in the document letter by letter. *number* is its value if a field has read it as a number.
    """

    text: str
    is_plain: bool
    place: Place = NOWHERE
    inset: int | None = None
    number: int | float | None = None

    @property
    def is_null(self) -> bool:
        return self.is_plain and self.text in _NULL

    @property
    def boolean(self) -> bool | None:
        """Its value if it is a boolean, else None."""
        if not self.is_plain:
            return None
        return True if self.text in _TRUE else False if self.text in _FALSE else None


@dataclass(slots=True)
class Listing:
    """A list."""

    place: Place = NOWHERE
    items: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Table:
    """A mapping; `keys` are its keys where they were written."""

    place: Place = NOWHERE
    entries: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Scalar] = field(default_factory=dict)


Node: TypeAlias = Scalar | Listing | Table


def described(node: Node) -> str:
    """*node* for a message: "found ..."."""
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
            return text if len(text) <= MAX_QUOTED else "a very long number"
    return quoted(node.text)


@dataclass(frozen=True, slots=True)
class Composed:
    """Stands in data for a *node* that was composed before, with its *size* and *height*."""

    node: Node
    size: int
    height: int


@dataclass(slots=True)
class _Open:
    """A list or mapping that is not complete: its size and height so far, and the key at hand."""

    node: Listing | Table
    anchor: str | None
    key: Scalar | None = None
    is_after_key: bool = False
    size: int = 1
    height: int = 1


class TreeBuilder:
    """Builds one document. A broken bound stops the reading; other errors are recorded."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Node, int, int]] = {}
        self._count = 0
        self.root: Node | None = None

    def scalar(self, scalar: Scalar, anchor: str | None = None) -> None:
        self._put(scalar, scalar.place, 1, 0)
        if anchor is not None:
            self._anchors[anchor] = (scalar, 1, 0)

    def begin(self, node: Listing | Table, anchor: str | None = None) -> None:
        if len(self._open) >= MAX_DEPTH:
            self._stop_deep(node.place)
        self._open.append(_Open(node, anchor))

    def end(self) -> None:
        done = self._open.pop()
        self._put(done.node, done.node.place, done.size, done.height)
        if done.anchor is not None:
            self._anchors[done.anchor] = (done.node, done.size, done.height)

    def alias(self, anchor: str, place: Place) -> None:
        found = self._anchors.get(anchor)
        if found is None:
            message = f"the alias {quoted(anchor)} stands for nothing before it"
            self._diagnostics.error(place, message)
            found = (Scalar("", is_plain=False, place=place), 1, 0)
        node = found[0]
        if isinstance(node, Scalar):  # it may be a number here, and a name there
            node = replace(node)
        self._put(node, place, found[1], found[2], new=found[1])

    def graft(self, known: Composed) -> None:
        """Put a node that was composed before; it counts as if it were composed now."""
        self._put(known.node, known.node.place, known.size, known.height, new=known.size)

    def _put(self, node: Node, place: Place, size: int, height: int, new: int = 1) -> None:
        """Attach *node*; *new* of its *size* was not counted yet."""
        self._count += new
        if self._count > MAX_NODES:
            message = f"too large; at most {MAX_NODES} values are read, aliases counted in full"
            self._diagnostics.stop(place, message)
        if len(self._open) + height > MAX_DEPTH:
            self._stop_deep(place)
        if not self._open:
            self.root = node
            return
        parent = self._open[-1]
        parent.size += size
        if height >= parent.height:
            parent.height = height + 1
        if isinstance(parent.node, Listing):
            parent.node.items.append(node)
        elif parent.is_after_key:
            self._enter(parent, parent.node, node)
        else:
            parent.key, parent.is_after_key = self._checked_key(node, place), True

    def _stop_deep(self, place: Place) -> None:
        self._diagnostics.stop(place, f"nested too deeply; at most {MAX_DEPTH} levels are read")

    def _checked_key(self, node: Node, place: Place) -> Scalar | None:
        if not isinstance(node, Scalar) or node.is_null or node.boolean is not None:
            hint = "put it in quotes" if isinstance(node, Scalar) else ""
            message = f"{described(node)} cannot be a key; expected text"
            self._diagnostics.error(place, message, hint=hint)
            return None
        if node.is_plain and node.text == "<<":
            hint = "write the fields out, or give a whole value with an alias"
            self._diagnostics.error(place, "merge keys ('<<') are not read", hint=hint)
            return None
        return node

    def _enter(self, parent: _Open, table: Table, node: Node) -> None:
        key, parent.key, parent.is_after_key = parent.key, None, False
        if key is None:
            return
        first = table.keys.get(key.text)
        if first is not None:
            at = "" if first.place.line is None else f"; the first is in line {first.place.line}"
            self._diagnostics.error(key.place, f"{quoted_key(key.text)} is given twice{at}")
            return
        table.keys[key.text] = key
        table.entries[key.text] = node


def parse_text(source: str | bytes, diagnostics: Diagnostics) -> Node:
    """The tree of a text in YAML or JSON. Raises `PolicyError` for a text without one."""
    text = _decoded(source, diagnostics)
    is_json_file = diagnostics.where.endswith(".json")
    if not is_json_file and not text.lstrip().startswith(("{", "[")):
        return _rooted(_parse_yaml(text, diagnostics), diagnostics)
    error = _json_error(text)
    if error is None:
        return _parse_json(text, diagnostics)
    place, message = error
    if yaml is None:
        diagnostics.stop(place, message, hint=f"to read YAML: {INSTALL}")
    if is_json_file:  # YAML includes more than JSON, but its errors would confuse here
        try:
            return _rooted(_parse_yaml(text, Diagnostics(diagnostics.where)), diagnostics)
        except PolicyError:
            diagnostics.stop(place, message)
    return _rooted(_parse_yaml(text, diagnostics), diagnostics)


def parse_data(data: object, diagnostics: Diagnostics) -> Node:
    """The tree of *data* as a JSON parser makes it. Raises `PolicyError` for data without one."""
    builder = TreeBuilder(diagnostics)
    _put_data(data, builder, diagnostics)
    return _rooted(builder.root, diagnostics)


def _put_data(item: object, builder: TreeBuilder, diagnostics: Diagnostics) -> None:
    """Put *item* into *builder*, which bounds the recursion."""
    if isinstance(item, str):
        builder.scalar(Scalar(item, is_plain=False, inset=0))
    elif isinstance(item, Mapping):
        builder.begin(Table())
        for key, value in item.items():
            if isinstance(key, str):
                builder.scalar(Scalar(key, is_plain=False, inset=0))
                _put_data(value, builder, diagnostics)
            else:
                diagnostics.error(NOWHERE, f"a key of type {type(key).__name__}; expected text")
        builder.end()
    elif isinstance(item, list | tuple):
        builder.begin(Listing())
        for value in item:
            _put_data(value, builder, diagnostics)
        builder.end()
    elif isinstance(item, Composed):
        builder.graft(item)
    else:
        builder.scalar(_data_scalar(item, diagnostics))


def _rooted(root: Node | None, diagnostics: Diagnostics) -> Node:
    if root is None:
        message = "there is nothing in it; expected a mapping with version and rules"
        diagnostics.stop(NOWHERE, message)
    return root


def _decoded(source: str | bytes, diagnostics: Diagnostics) -> str:
    size = len(source)
    if size <= MAX_BYTES and isinstance(source, str) and not source.isascii():
        size = len(source.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        diagnostics.stop(NOWHERE, f"too large; at most {MAX_BYTES} bytes (1 MiB) are read")
    text = source if isinstance(source, str) else _from_bytes(source, diagnostics)
    text = text.removeprefix("\ufeff")
    forbidden = _FORBIDDEN.search(text)
    if forbidden is not None:
        message = f"the character U+{ord(forbidden[0]):04X} may not be in it"
        diagnostics.stop(_place_of(text, forbidden.start()), message)
    return text


def _from_bytes(source: bytes, diagnostics: Diagnostics) -> str:
    try:
        return source.decode("utf-8")
    except UnicodeDecodeError as error:
        before = source[: error.start].decode("utf-8", "replace")
        message = f"not UTF-8: the byte 0x{source[error.start]:02X} does not belong there"
        diagnostics.stop(_place_of(before, len(before)), message)


def _place_of(text: str, offset: int) -> Place:
    line = text.count("\n", 0, offset) + 1
    return Place(line, offset - text.rfind("\n", 0, offset))


def free_in_steps(root: Node) -> None:
    """Free the tree below *root*: that of 9,000 rules at once keeps other threads waiting 20 ms."""
    for child in root.entries.values() if isinstance(root, Table) else ():
        while isinstance(child, Listing) and child.items:
            child.items.pop()


def _parse_yaml(text: str, diagnostics: Diagnostics) -> Node | None:
    """The tree of *text*; None if it is empty. Raises `PolicyError`."""
    if yaml is None:
        message = "this is not JSON, and PyYAML is not installed"
        diagnostics.stop(NOWHERE, message, hint=f"to read YAML: {INSTALL}")
    builder = TreeBuilder(diagnostics)
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            _take_event(event, builder, diagnostics)
    except yaml.YAMLError as error:
        _stop_yaml(error, diagnostics)
    root = builder.root
    return None if isinstance(root, Scalar) and root.is_null else root


def _take_event(event: Any, builder: TreeBuilder, diagnostics: Diagnostics) -> None:
    kind = type(event)
    if kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
        builder.end()
        return
    mark = event.start_mark
    place = Place(mark.line + 1, mark.column + 1)
    if kind is yaml.ScalarEvent:
        _check_tag(event, place, diagnostics)
        builder.scalar(_yaml_scalar(event, place), event.anchor)
    elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
        _check_tag(event, place, diagnostics)
        node = Table(place) if kind is yaml.MappingStartEvent else Listing(place)
        builder.begin(node, event.anchor)
    elif kind is yaml.AliasEvent:
        builder.alias(event.anchor, place)
    elif kind is yaml.DocumentStartEvent and builder.root is not None:
        diagnostics.stop(place, "a second document begins here; one is read, without '---'")


def _check_tag(event: Any, place: Place, diagnostics: Diagnostics) -> None:
    if event.tag is not None:
        message = f"the tag {event.tag[:60]!r} is not read"
        diagnostics.error(place, message, hint="write the value without one, a text in quotes")


def _yaml_scalar(event: Any, place: Place) -> Scalar:
    is_plain = not event.style
    start, end = event.start_mark, event.end_mark
    inset = 0 if is_plain else 1
    is_literal = (
        start.line == end.line and end.column - start.column == len(event.value) + 2 * inset
    )
    return Scalar(event.value, is_plain, place, inset if is_literal else None)


def _stop_yaml(error: yaml.YAMLError, diagnostics: Diagnostics) -> None:
    mark = getattr(error, "problem_mark", None)
    place = NOWHERE if mark is None else Place(mark.line + 1, mark.column + 1)
    parts = (getattr(error, "context", None), getattr(error, "problem", None))
    message = ", ".join(part for part in parts if part) or "it cannot be read"
    if "cannot start any token" in message:
        message = (
            "a character that nothing can begin with; a tab cannot indent, quote '@', '`' and '%'"
        )
    diagnostics.stop(place, f"not YAML: {message}")


_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]|[^\s\[\]{},:"]+')


def _json_error(text: str) -> tuple[Place, str] | None:
    """Where and why *text* is not JSON."""
    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        message = error.msg[:1].lower() + error.msg[1:]
        return Place(error.lineno, error.colno), f"not JSON: {message}"
    except ValueError as error:
        return NOWHERE, f"not JSON: {error}"
    except RecursionError:  # far beyond `MAX_DEPTH`, where the builder stops
        return None
    return None


def _reject_constant(name: str) -> None:
    raise ValueError(f"it has no {name}")


def _parse_json(text: str, diagnostics: Diagnostics) -> Node:
    """The tree of *text*, which is JSON, or nested too deeply."""
    builder = TreeBuilder(diagnostics)
    lines = [0, *(found.end() for found in re.finditer("\n", text))]
    for found in _JSON_TOKEN.finditer(text):
        word, start = found[0], found.start()
        line = bisect_right(lines, start)
        place = Place(line, start - lines[line - 1] + 1)
        if word[0] == '"':
            meant = word[1:-1] if "\\" not in word else json.loads(word)
            inset = 1 if len(meant) == len(word) - 2 else None
            builder.scalar(Scalar(meant, is_plain=False, place=place, inset=inset))
        elif word in "[{":
            builder.begin(Table(place) if word == "{" else Listing(place))
        elif word in "]}":
            builder.end()
        else:
            builder.scalar(Scalar(word, is_plain=True, place=place, inset=0))
    return _rooted(builder.root, diagnostics)


def _data_scalar(item: object, diagnostics: Diagnostics) -> Scalar:
    match item:
        case None:
            return Scalar("null", is_plain=True)
        case bool():
            return Scalar(str(item).lower(), is_plain=True)
        case int() if item.bit_length() <= _MAX_BITS:
            return Scalar(str(item), is_plain=True)
        case float():
            return Scalar(repr(item), is_plain=True)
    kind = "a number too large to be read" if isinstance(item, int) else type(item).__name__
    message = f"found {kind}; expected text, a number, a boolean, a list or a mapping"
    diagnostics.error(NOWHERE, message)
    return Scalar("", is_plain=False)


Step: TypeAlias = str | int | tuple[str, int]
"""A key or an index. A pair is a key that may be a secret: messages show its number instead."""

Path: TypeAlias = "Sequence[Step]"
"""Steps from a node downwards."""


def locate(root: Node, path: Path) -> tuple[list[Node], list[Scalar | None], list[str | int]]:
    """The nodes on *path* below *root*, their keys, and the steps to show.

    A step that does not exist in a mapping is a missing field: the path ends in the mapping. Steps
    into a scalar are those of its long form, which the document does not have.
    """
    nodes: list[Node] = [root]
    keys: list[Scalar | None] = [None]
    steps: list[str | int] = []
    for step in path:
        node = nodes[-1]
        name, label = step if isinstance(step, tuple) else (step, step)
        if isinstance(node, Table) and isinstance(name, str):
            steps.append(label)
            if name not in node.entries:
                break
            keys.append(node.keys[name])
            nodes.append(node.entries[name])
        elif isinstance(node, Listing) and isinstance(name, int):
            steps.append(name)
            keys.append(None)
            nodes.append(node.items[name])
    return nodes, keys, steps


def record(
    diagnostics: Diagnostics,
    root: Node,
    error: FieldError,
    path: Path,
    *,
    rule: str | None = None,
    skip: int = 0,
) -> None:
    """Record *error* of the value at *path* below *root*.

    The field of the problem leaves out the first *skip* steps if the document has lines.
    """
    nodes, keys, steps = locate(root, path)
    is_missing = len(nodes) <= len(steps)
    node: Node = nodes[-2] if error.at_parent and not is_missing else nodes[-1]
    if error.at_key and keys[-1] is not None and not is_missing:
        node = keys[-1]
    place = node.place
    inset = node.inset if isinstance(node, Scalar) else None
    if error.offset is not None and inset is not None and place.column is not None:
        place = Place(place.line, place.column + inset + error.offset)
    field = field_path(steps[skip:] if place.line is not None else steps)
    where, message = diagnostics.where, error.message
    diagnostics.add(
        Problem(error.severity, where, message, *place, rule=rule, field=field, hint=error.hint)
    )
