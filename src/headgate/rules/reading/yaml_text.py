"""YAML, event by event: only its shape is taken, no tag and no implicit type ever comes to life."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.rules.reading.tree import NOWHERE, Grower, Listing, Place, Scalar, Table

if TYPE_CHECKING:
    from headgate.rules.reading.findings import Findings
    from headgate.rules.reading.tree import Node

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
