"""All that a worker has to say at one moment, as data, and as bytes for its board.

As bytes it has sections, so that who needs only one of them need not read the others: how the
worker stands, its measures, its points by second and by minute, and its rules in shadow.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, cast

from headgate import __version__
from headgate.errors import HeadgateError
from headgate.observability.exposition import text_of
from headgate.service.live.packing import joined, packed, parted, unpacked
from headgate.service.live.ring import Points

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.observability.exposition import Told
    from headgate.service.live.recorder import Recorder

_VERSION: Final = __version__.encode("ascii")
"""Whoever is replaced may be by a worker of a newer version, where others are still of the old."""

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


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a worker says, section by section."""

    standing: bytes
    measures: bytes
    seconds: bytes
    minutes: bytes
    trials: bytes

    @classmethod
    def of(
        cls, state: State, told: Iterable[Told], recorder: Recorder, *, trials: bytes
    ) -> Snapshot:
        """From data; *trials* is what rules in shadow would have done, as JSON already."""
        return cls(
            json_of(state),
            json_of([_written(one) for one in told]),
            packed(recorder.seconds.points(), recorder.seconds.length),
            packed(recorder.minutes.points(), recorder.minutes.length),
            trials,
        )

    @classmethod
    def decoded(cls, data: bytes) -> Snapshot:
        """What `encoded` has made. Raises `SnapshotError`."""
        try:
            version, *sections = parted(data)
            found = cls(*sections)
        except (ValueError, TypeError) as error:
            raise SnapshotError(f"it does not have the sections of a snapshot: {error}") from error
        if version != _VERSION:
            raise SnapshotError(f"it is of version {version!r}; expected {_VERSION!r}")
        return found

    def encoded(self) -> bytes:
        return joined(
            (_VERSION, self.standing, self.measures, self.seconds, self.minutes, self.trials)
        )

    def without_series(self) -> Snapshot:
        """The same with no points, and no rules in shadow."""
        nothing = packed(Points(None, {}), 0)
        return Snapshot(self.standing, self.measures, nothing, nothing, b"[]")

    def state(self) -> State:
        """How the worker stands."""
        return cast("State", json.loads(self.standing))

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


_HEAD_LINES: Final = 2


def _written(told: Told) -> Family:
    *head, body = text_of([told]).split("\n", _HEAD_LINES)
    return Family(told.name, told.kind, "\n".join(head), body)


def text_of_all(families: Iterable[Family]) -> str:
    """Those of several workers, each name once, as Prometheus reads it."""
    by_name: dict[str, list[Family]] = {}
    for family in families:
        by_name.setdefault(family.name, []).append(family)
    parts: list[str] = []
    for _, together in sorted(by_name.items()):
        parts += [together[0].head, "\n", *(one.body for one in together)]
    return "".join(parts)


def json_of(value: object) -> bytes:
    """*value* as JSON."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")
