"""Reading `priority`: which requests matter more than others, and which less."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.rules.model import Match
from headgate.rules.reading import scalars
from headgate.rules.reading.fields import Fields
from headgate.rules.reading.matches import read_match
from headgate.rules.reading.tree import Listing
from headgate.rules.soft import PRIORITIES, Priority, PriorityClass

if TYPE_CHECKING:
    from headgate.rules.reading.findings import Spot

PRIORITY_FIELDS: Final = ("class", "match")
MOST_CLASSES: Final = 1_000
"""How many entries there may be."""


def read_priorities(spot: Spot) -> tuple[PriorityClass, ...]:
    """The classes of requests, in their order; what is wrong is noted."""
    if not isinstance(spot.node, Listing):
        spot.expected("a list such as [{class: critical, match: {endpoint: /pay/**}}]")
        return ()
    if len(spot.node.items) > MOST_CLASSES:
        spot.wrong(f"{len(spot.node.items)} entries; expected at most {MOST_CLASSES}")
        return ()
    return _read(spot)


def _read(spot: Spot) -> tuple[PriorityClass, ...]:
    found: list[PriorityClass] = []
    everything: int | None = None
    for number, child in enumerate(spot.children(), start=1):
        one = _class(child)
        if one is None:
            continue
        if everything is not None:
            child.warn(f"it is never looked at: the entry {everything} is for every request")
        elif one.match == Match():
            everything = number
        found.append(one)
    return tuple(found)


def _class(spot: Spot) -> PriorityClass | None:
    fields = Fields.of(spot, PRIORITY_FIELDS, "a class of requests")
    if fields is None:
        return None
    before = spot.findings.errors
    kind: Priority | None = fields.need("class", _priority, f"one of {', '.join(PRIORITIES)}")
    match = fields.read("match", read_match, Match())
    return None if kind is None or spot.findings.errors > before else PriorityClass(kind, match)


def _priority(spot: Spot) -> Priority | None:
    word = scalars.choice(spot, *PRIORITIES)
    return next((known for known in PRIORITIES if known == word), None)
