"""All that a worker has to say at one moment, as data, and as bytes for its board.

As bytes it has sections, so that who needs only one of them need not read the others: how the
worker stands, its measures, what its rules said (and those of the workers before it), its points by
second and by minute, and its rules in shadow. They are written every second while requests wait, so
what may be large is numbers, and what has not changed is not written anew.
"""

from __future__ import annotations

import json
import sys
from array import array
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, cast

from headgate.errors import HeadgateError
from headgate.observability.metrics import text_of
from headgate.service.live.recorder import LATELY, Points, added_up, unpacked_cells

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.observability.metrics import MetricSnapshot
    from headgate.service.live.recorder import Counted, Line, Ring


# Lines of points as bytes: there are many numbers, and they are told every second.


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


FORMAT: Final = b"headgate live 1"
"""Another number for whatever is written otherwise: a worker that has died may be replaced by one
of newer code, where the others are still of the old."""

KeyRow = tuple[str | None, str, float, float]
"""Rule, key as it is told, at least and at most so many a second."""


class SnapshotError(HeadgateError):
    """What was read is no snapshot."""


class State(TypedDict):
    """How a worker stands. Rows come back from JSON as lists."""

    worker: int
    at: float
    """When, in seconds since the epoch."""
    seen_ns: int
    """The same on the machine's monotonic clock, which all its processes share."""
    began: float
    policy: dict[str, Any]
    store: dict[str, Any]
    factor: float
    requests: list[int]
    """Refused, admitted: since it began."""
    latency: list[int]
    """How many decisions of the last minute took how long."""
    cells: list[tuple[str, str, str, int]]
    """Rule, outcome, source, how often."""
    rates: list[tuple[str, str, str, float]]
    """Rule, outcome, source, how often per second lately."""
    busiest_keys: list[KeyRow]
    refused_keys: list[KeyRow]
    hot_keys: list[KeyRow]
    bounds: list[tuple[str | None, int, int]]
    """Rule, holders, units."""
    queues: list[tuple[str, float, float, float, float]]
    """Gate, waiting, in flight, slots, seconds to wait."""


class Series(NamedTuple):
    """What a worker's rules said lately."""

    seconds: Points
    minutes: Points


class Family(NamedTuple):
    """Measures of one name, written as Prometheus reads it: what they are, and their lines."""

    name: str
    kind: str
    head: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a worker says, section by section.

    *cells* and *points* by `seconds` and `minutes` are packed; *former* is what the workers before
    it have counted, packed like *cells*; *trials* is what rules in shadow would have done.
    """

    standing: bytes
    measures: bytes
    cells: bytes
    former: bytes
    seconds: bytes
    minutes: bytes
    trials: bytes

    @classmethod
    def decoded(cls, data: bytes) -> Snapshot:
        """What `encoded` has made. Raises `SnapshotError`."""
        try:
            written_as, *sections = parted(data)
            if written_as != FORMAT:
                raise SnapshotError(f"it is written as {written_as[:40]!r}; expected {FORMAT!r}")
            return cls(**dict(zip(_SECTIONS, sections, strict=True)))
        except ValueError as error:
            raise SnapshotError(f"it does not have the sections of a snapshot: {error}") from error

    def encoded(self) -> bytes:
        return joined((FORMAT, *(getattr(self, section) for section in _SECTIONS)))

    def without_series(self) -> Snapshot:
        """The same with no points, and no rules in shadow."""
        return replace(self, seconds=NO_POINTS, minutes=NO_POINTS, trials=b"[]")

    def state(self) -> State:
        """How the worker stands."""
        own = self.counted()
        counts = added_up((own, unpacked_cells(self.former)))
        found = json.loads(self.standing)
        found["cells"] = [(*name, count) for name, count in counts.items()]
        found["rates"] = _rates(own)
        return cast("State", found)

    def seen_ns(self) -> int:
        """When it was made, on the machine's monotonic clock."""
        return cast("int", json.loads(self.standing)["seen_ns"])

    def counted(self) -> Counted:
        """What its rules said, without those of the workers before it."""
        return unpacked_cells(self.cells)

    def families(self) -> list[Family]:
        """Its measures."""
        return [Family(*one) for one in json.loads(self.measures)]

    def series(self) -> Series:
        """Its points. Raises `ValueError` if they are none."""
        return Series(unpacked(self.seconds), unpacked(self.minutes))

    def candidates(self) -> list[dict[str, Any]]:
        """What its rules in shadow would have done, for `merged_candidates`: of the worker, and of
        those before it."""
        return cast("list[dict[str, Any]]", json.loads(self.trials))


_SECTIONS: Final = tuple(one.name for one in fields(Snapshot))


def _rates(counted: Counted) -> list[tuple[str, str, str, float]]:
    """What each rule said per second lately. Who began a moment ago said nothing before."""
    seconds = max(LATELY, counted.span)
    pairs = zip(counted.names, counted.lately, strict=True)
    return [(*name, count / seconds) for name, count in pairs if count]


def written(told: Iterable[MetricSnapshot]) -> bytes:
    """Measures as the section `measures`."""
    return json_of([_written(one) for one in told])


_HEAD_LINES: Final = 2


def _written(told: MetricSnapshot) -> Family:
    *head, body = text_of([told]).split("\n", _HEAD_LINES)
    return Family(told.name, told.kind, "\n".join(head), body)


def json_of(value: object) -> bytes:
    """*value* as JSON."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")
