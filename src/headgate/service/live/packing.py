"""Lines of points as bytes: there are many numbers, and they are told every second."""

from __future__ import annotations

import json
import sys
from array import array
from typing import TYPE_CHECKING, Final

from headgate.service.live.ring import Points

if TYPE_CHECKING:
    from collections.abc import Iterable

_BYTES: Final = 8
_LENGTH: Final = 4
"""Bytes that say how long the list of names is."""


def packed(points: Points, length: int) -> bytes:
    """*points*, of *length* each: the names of the lines as JSON, then all numbers."""
    names = json.dumps([points.end, length, list(points.lines)], separators=(",", ":"))
    head = names.encode("ascii")
    numbers = b"".join([line.tobytes() for line in points.lines.values()])
    return len(head).to_bytes(_LENGTH, sys.byteorder) + head + numbers


def unpacked(data: bytes) -> Points:
    """What `packed` has made. Raises `ValueError` for anything else."""
    start = _LENGTH + int.from_bytes(data[:_LENGTH], sys.byteorder)
    end, length, names = json.loads(data[_LENGTH:start])
    numbers = array("q")
    numbers.frombytes(data[start:])
    if len(numbers) != length * len(names):
        raise ValueError(f"there are {len(numbers)} numbers for {len(names)} lines of {length}")
    lines = {
        (rule, outcome): numbers[place * length : (place + 1) * length]
        for place, (rule, outcome) in enumerate(names)
    }
    return Points(end, lines)


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
