"""All figures of a worker at one moment, as data and as bytes.

The bytes have sections that can be read one by one: the state of the worker, its metrics, the
decisions of its rules (and those of previous workers), its points by second and by minute, and its
shadow rules. They are written every second while requests wait, so large parts are numbers, and
unchanged parts are not encoded again.
"""

from __future__ import annotations

import json
import sys
from array import array
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, cast

from headgate.errors import HeadgateError
from headgate.observability.metrics import text_of
from headgate.service.live.recorder import RECENT_S, Points, added_up, unpacked_cells

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.observability.metrics import MetricSnapshot
    from headgate.service.live.recorder import Counted, Line, Ring


# Points as bytes: there are many numbers, and they are published every second.


_BYTES: Final = 8
_LENGTH: Final = 4
"""Bytes of the length of the list of names."""


class RingPacker:
    """Encodes the points of *ring*; cached until they change."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._changes = -1
        self._data = b""
        self._names: list[Line] = []
        self._written = b"[]"

    def packed(self) -> bytes:
        """Encode for `unpacked`: the names of the lines as JSON, then all numbers in ring order."""
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
    """Decode points from a `RingPacker`. Raises `ValueError` for anything else."""
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
"""The encoding of an empty ring."""


def joined(sections: Iterable[bytes]) -> bytes:
    """Join sections, each with its length before it."""
    parts = []
    for section in sections:
        parts += [len(section).to_bytes(_BYTES, sys.byteorder), section]
    return b"".join(parts)


def parted(data: bytes) -> list[bytes]:
    """Split what `joined` made. Raises `ValueError` for anything else."""
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
"""Change the number with the format: a dead worker may be replaced by one of newer code while the
others still run the old one."""

KeyRow = tuple[str | None, str, float, float]
"""Rule, displayed key, lower and upper bound of requests per second."""


class SnapshotError(HeadgateError):
    """Data that is not a snapshot."""


class State(TypedDict):
    """The state of a worker. Rows come back from JSON as lists."""

    worker: int
    at: float
    """Seconds since the epoch."""
    seen_ns: int
    """The same on the machine's monotonic clock, which all its processes share."""
    began: float
    policy: dict[str, Any]
    store: dict[str, Any]
    factor: float
    requests: list[int]
    """Denied and allowed since the start."""
    latency: list[int]
    """Decisions of the last minute by latency bucket."""
    cells: list[tuple[str, str, str, int]]
    """Rule, outcome, source, count."""
    rates: list[tuple[str, str, str, float]]
    """Rule, outcome, source, recent decisions per second."""
    busiest_keys: list[KeyRow]
    refused_keys: list[KeyRow]
    hot_keys: list[KeyRow]
    bounds: list[tuple[str | None, int, int]]
    """Rule, holders, units."""
    queues: list[tuple[str, float, float, float, float]]
    """Gate, waiting, in flight, slots, seconds to wait."""


class Series(NamedTuple):
    """Recent decisions of a worker's rules."""

    seconds: Points
    minutes: Points


class Family(NamedTuple):
    """Metrics of one name as Prometheus text: the head lines and the samples."""

    name: str
    kind: str
    head: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The figures of a worker by section.

    *cells* and the points in *seconds* and *minutes* are packed; *previous* has the counts of
    previous workers, packed like *cells*; *shadow* has the figures of shadow rules.
    """

    worker_state: bytes
    measures: bytes
    cells: bytes
    previous: bytes
    seconds: bytes
    minutes: bytes
    shadow: bytes

    @classmethod
    def decoded(cls, data: bytes) -> Snapshot:
        """Decode the result of `encoded`. Raises `SnapshotError`."""
        try:
            written_as, *sections = parted(data)
            if written_as != FORMAT:
                raise SnapshotError(f"the format is {written_as[:40]!r}; expected {FORMAT!r}")
            return cls(**dict(zip(_SECTIONS, sections, strict=True)))
        except ValueError as error:
            raise SnapshotError(f"the sections are malformed: {error}") from error

    def encoded(self) -> bytes:
        return joined((FORMAT, *(getattr(self, section) for section in _SECTIONS)))

    def without_series(self) -> Snapshot:
        """The same without points and shadow rules."""
        return replace(self, seconds=NO_POINTS, minutes=NO_POINTS, shadow=b"[]")

    def state(self) -> State:
        """The state of the worker."""
        own = self.counted()
        counts = added_up((own, unpacked_cells(self.previous)))
        found = json.loads(self.worker_state)
        found["cells"] = [(*name, count) for name, count in counts.items()]
        found["rates"] = _rates(own)
        return cast("State", found)

    def seen_ns(self) -> int:
        """The time of the snapshot on the machine's monotonic clock."""
        return cast("int", json.loads(self.worker_state)["seen_ns"])

    def counted(self) -> Counted:
        """The counts of its rules, without those of previous workers."""
        return unpacked_cells(self.cells)

    def families(self) -> list[Family]:
        """The metrics."""
        return [Family(*one) for one in json.loads(self.measures)]

    def series(self) -> Series:
        """The points. Raises `ValueError` if they are malformed."""
        return Series(unpacked(self.seconds), unpacked(self.minutes))

    def candidates(self) -> list[dict[str, Any]]:
        """The figures of shadow rules for `merged_candidates`, of this worker and of previous
        ones."""
        return cast("list[dict[str, Any]]", json.loads(self.shadow))


_SECTIONS: Final = tuple(one.name for one in fields(Snapshot))


def _rates(counted: Counted) -> list[tuple[str, str, str, float]]:
    """Recent decisions of each rule per second; a new worker had none before."""
    seconds = max(RECENT_S, counted.span)
    pairs = zip(counted.names, counted.recent, strict=True)
    return [(*name, count / seconds) for name, count in pairs if count]


def written(metrics: Iterable[MetricSnapshot]) -> bytes:
    """Encode metrics as the section `measures`."""
    return json_of([_written(one) for one in metrics])


_HEAD_LINES: Final = 2


def _written(metric: MetricSnapshot) -> Family:
    *head, body = text_of([metric]).split("\n", _HEAD_LINES)
    return Family(metric.name, metric.kind, "\n".join(head), body)


def json_of(value: object) -> bytes:
    """Encode *value* as compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")
