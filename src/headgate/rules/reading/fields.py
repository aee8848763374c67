"""Mappings with a fixed set of fields, and values that may be one or several."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from headgate.rules.reading.tree import Listing, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headgate.rules.reading.findings import Spot

T = TypeVar("T")


class Fields:
    """The fields of a mapping. All that have other names than *known* have been noted."""

    def __init__(self, spot: Spot, table: Table, known: Sequence[str]) -> None:
        self.spot = spot
        self._table = table
        unknown = [spot.child(name).of_key() for name in table.entries if name not in known]
        self.meant = {key.not_among(key.name, known, "unknown field") for key in unknown}
        """The fields that the unknown ones were meant to be: not to be called missing too."""

    @classmethod
    def of(cls, spot: Spot, known: Sequence[str], what: str) -> Fields | None:
        """The fields at *spot*, or None, noted, if it is no mapping."""
        if isinstance(spot.node, Table):
            return cls(spot, spot.node, known)
        spot.expected(f"{what}: a mapping with {', '.join(known)}")
        return None

    def __contains__(self, name: str) -> bool:
        return name in self._table.entries

    def __getitem__(self, name: str) -> Spot:
        return self.spot.child(name)

    def present(self, names: Sequence[str]) -> list[str]:
        """Which of *names* are given, in the order of *names*."""
        return [name for name in names if name in self]

    def read(self, name: str, reader: Callable[[Spot], T | None], default: T) -> T:
        """What *reader* makes of a field; *default* if there is none, or if it is wrong."""
        if name not in self:
            return default
        found = reader(self.spot.child(name))
        return default if found is None else found

    def need(self, name: str, reader: Callable[[Spot], T | None], expected: str) -> T | None:
        """What *reader* makes of a field that must be there."""
        if name in self:
            return reader(self.spot.child(name))
        if name not in self.meant:
            self.spot.missing(name, f"missing; expected {expected}")
        return None

    def spot_of(self, name: str) -> Spot:
        """The field *name*, or the whole mapping if it is not given."""
        return self.spot.child(name) if name in self else self.spot


def entries(spot: Spot, what: str) -> Iterator[tuple[str, Spot]]:
    """The names and values of a mapping with names of its author's choice; at least one."""
    if isinstance(spot.node, Table) and spot.node.entries:
        for name in spot.node.entries:
            yield name, spot.child(name)
    else:
        spot.expected(f"{what}: a mapping with at least one entry")


def several(spot: Spot, reader: Callable[[Spot], T | None], what: str) -> tuple[T, ...] | None:
    """One value, or a list of at least one, none of them twice."""
    if not isinstance(spot.node, Listing):
        one = reader(spot)
        return None if one is None else (one,)
    if not spot.node.items:
        spot.expected(f"{what}, or a list of at least one")
        return None
    found: dict[T, None] = {}
    for child in spot.children():
        value = reader(child)
        if value is not None and value in found:
            child.wrong("the same is in the list before")
        elif value is not None:
            found[value] = None
    return tuple(found) or None
