"""Lines of points as bytes: there are many numbers, and they are told every second."""

from __future__ import annotations

import json
import sys
from array import array
from typing import TYPE_CHECKING, Final

from headgate.service.live.ring import Points

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.service.live.ring import Line, Ring

_BYTES: Final = 8
_LENGTH: Final = 4
"""Bytes that say how long the list of names is."""


class RingPacker:
    """The points of *ring* as bytes; written anew only when there are others."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._changes = -1
        self._data = b""
        self._names: list[Line] = []
        self._written = b"[]"

    def packed(self) -> bytes:
        """For `unpacked`: the names of the lines as JSON, then all numbers as the ring has them."""
        ring = self._ring
        if self._changes != ring.changes:
            lines = ring.lines()
            names = list(lines)
            if names != self._names:
                self._names, self._written = names, _json(names)
            numbers = [points.tobytes() for points in lines.values()]
            self._data = _joined(ring.end, ring.length, self._written, numbers)
            self._changes = ring.changes
        return self._data


def unpacked(data: bytes) -> Points:
    """The points that a `RingPacker` has packed. Raises `ValueError` for anything else."""
    start = _LENGTH + int.from_bytes(data[:_LENGTH], sys.byteorder)
    end, length, names = json.loads(data[_LENGTH:start])
    numbers = array("q")
    numbers.frombytes(data[start:])
    if len(numbers) != length * len(names):
        raise ValueError(f"there are {len(numbers)} numbers for {len(names)} lines of {length}")
    first = 0 if end is None else (end + 1) % length if length else 0
    lines: dict[Line, array[int]] = {}
    for place, (rule, outcome) in enumerate(names):
        begins = place * length
        turns = begins + first
        lines[rule, outcome] = numbers[turns : begins + length] + numbers[begins:turns]
    return Points(end, lines)


def _json(names: list[Line]) -> bytes:
    return json.dumps(names, separators=(",", ":")).encode("ascii")


def _joined(end: int | None, length: int, names: bytes, numbers: Iterable[bytes]) -> bytes:
    head = b"[%b,%d,%b]" % (json.dumps(end).encode("ascii"), length, names)
    return b"".join([len(head).to_bytes(_LENGTH, sys.byteorder), head, *numbers])


NO_POINTS: Final = _joined(None, 0, b"[]", ())
"""Those of a ring that has none."""


def joined(sections: Iterable[bytes]) -> bytes:
    """Several sections as one, with the length of each before it."""
    parts = []
    for section in sections:
        parts += [len(section).to_bytes(_BYTES, sys.byteorder), section]
    return b"".join(parts)


def parted(data: bytes) -> list[bytes]:
    """What `joined` has made. Raises `ValueError` for anything else."""
    sections, start = [], 0
    while start < len(data):
        begins = start + _BYTES
        ends = begins + int.from_bytes(data[start:begins], sys.byteorder)
        if ends > len(data):
            raise ValueError(f"a section ends at {ends}, but there are {len(data)} bytes")
        sections.append(data[begins:ends])
        start = ends
    return sections
