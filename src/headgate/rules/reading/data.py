"""Data that came as objects (from an API, not from a file) as a tree without lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from headgate.rules.reading.memory import Known
from headgate.rules.reading.tree import NOWHERE, Listing, Scalar, Table

if TYPE_CHECKING:
    from headgate.rules.reading.findings import Findings
    from headgate.rules.reading.tree import Grower

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
    grower.scalar(_scalar(item, findings))
    return None


def _entries(mapping: Mapping[object, object], findings: Findings) -> Iterator[object]:
    for key, value in mapping.items():
        if isinstance(key, str):
            yield key
            yield value
        else:
            findings.wrong(NOWHERE, f"a key of type {type(key).__name__}; expected text")


def _scalar(item: object, findings: Findings) -> Scalar:
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
