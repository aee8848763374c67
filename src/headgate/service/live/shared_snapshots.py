"""Memory shared by the workers of a node: a slot for each, where it publishes its snapshot.

The supervisor makes one file that exists only in memory and passes it on. Each worker writes to the
slot of its number only and reads the others. A slot has two sides: the writer overwrites the older
one, its head last. So one side is always complete, even if a writer is stopped or killed; a reader
takes the newer side if its checksum is correct, and reads again if not, because then it was read
while it was being written.

        file    slot 0 | slot 1 | ...           each 2 * SIDE bytes, most of which are never touched
        side    number | length | checksum | snapshot ...
"""

from __future__ import annotations

import os
import struct
import tempfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.errors import HeadgateError
from headgate.observability.shadow_stats import folded_candidates
from headgate.service.live.recorder import packed_counts
from headgate.service.live.snapshot import SnapshotError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.service.live.snapshot import Series, Snapshot, State


SIDE: Final = 8 * 1024 * 1024
"""Bytes of a side. This reserves address space; only written pages use memory."""

_HEAD: Final = struct.Struct("<QQI")
LARGEST: Final = SIDE - _HEAD.size
"""Maximum size of a snapshot in bytes."""

_ATTEMPTS: Final = 4


class SharedSnapshotError(HeadgateError):
    """A failed write to a slot; its previous content is intact."""


class _Head(NamedTuple):
    number: int
    length: int
    checksum: int


class SharedSnapshots:
    """The slots in the file *fileno*, which its owner closes."""

    def __init__(self, fileno: int, *, count: int) -> None:
        self._fileno = fileno
        self.count = count

    def write(self, slot: int, data: bytes) -> None:
        """Write *data* to *slot*, which no other worker writes to. Raises `SharedSnapshotError`."""
        if len(data) > LARGEST:
            raise SharedSnapshotError(
                f"the snapshot has {len(data)} bytes; the maximum is {LARGEST}"
            )
        try:
            newest, side = max((self._head(slot, side).number, side) for side in (0, 1))
            start = _start(slot, 1 - side)
            head = _HEAD.pack(newest + 1, len(data), zlib.crc32(data))
            # The side is invalid from here on, until it gets a new head.
            self._write(_HEAD.pack(0, 0, 0), start)
            self._write(data, start + _HEAD.size)
            self._write(head, start)
        except OSError as error:
            raise SharedSnapshotError(
                f"the snapshot cannot be written: {error.strerror or error}"
            ) from error

    def read(self, slot: int) -> bytes | None:
        """The last snapshot in *slot*; None if there is none or it cannot be read."""
        try:
            for _ in range(_ATTEMPTS):
                newer, older = sorted(
                    ((self._head(slot, side), side) for side in (0, 1)), reverse=True
                )
                for head, side in (newer, older):
                    if head.number and (data := self._read(slot, side, head)) is not None:
                        return data
                if not newer[0].number:
                    return None
        except OSError:
            return None
        return None

    def _head(self, slot: int, side: int) -> _Head:
        data = os.pread(self._fileno, _HEAD.size, _start(slot, side))
        # Beyond what was written, the file may end or contain zeros.
        return _Head(*_HEAD.unpack(data)) if len(data) == _HEAD.size else _Head(0, 0, 0)

    def _read(self, slot: int, side: int, head: _Head) -> bytes | None:
        if head.length > LARGEST:
            return None
        data = os.pread(self._fileno, head.length, _start(slot, side) + _HEAD.size)
        is_whole = len(data) == head.length and zlib.crc32(data) == head.checksum
        return data if is_whole else None

    def _write(self, data: bytes, start: int) -> None:
        view = memoryview(data)
        while view:
            done = os.pwrite(self._fileno, view, start)
            view, start = view[done:], start + done


def new_file() -> int:
    """Create a file in memory, or one without a name, and return its number. Raises `OSError`."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("headgate-snapshots", os.MFD_CLOEXEC)
    fileno, path = tempfile.mkstemp(prefix="headgate-snapshots-")
    Path(path).unlink()
    return fileno


def _start(slot: int, side: int) -> int:
    return (2 * slot + side) * SIDE


# Counts of the previous worker in the same slot, so that a restart loses nothing.


@dataclass(frozen=True, slots=True)
class PreviousCounts:
    """The counts to start with; empty if there was no previous worker."""

    began: float | None = None
    requests: tuple[int, int] = (0, 0)
    cells: bytes = field(default_factory=lambda: packed_counts({}))
    """Packed, because they are published again every second."""
    calls: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    series: Series | None = None
    candidates: tuple[dict[str, Any], ...] = ()

    @classmethod
    def of(cls, snapshot: Snapshot) -> PreviousCounts:
        """The counts in *snapshot*. Raises `SnapshotError` for another version."""
        try:
            state = snapshot.state()
            refused, admitted = state["requests"]
            return cls(
                began=state["began"],
                requests=(refused, admitted),
                cells=packed_counts(
                    {(rule, said, by): count for rule, said, by, count in state["cells"]}
                ),
                calls=state["store"]["calls"],
                errors=state["store"]["errors"],
                series=snapshot.series(),
                candidates=(folded_candidates(snapshot.candidates()),),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise SnapshotError(f"unexpected content: {error!r}") from error

    def added_to(self, state: State) -> State:
        """Add the earlier counts to *state*, except `cells`."""
        if self.began is None:
            return state
        store = state["store"]
        return {
            **state,
            "began": min(self.began, state["began"]),
            "requests": [a + b for a, b in zip(self.requests, state["requests"], strict=True)],
            "store": {
                **store,
                "calls": self.calls + store["calls"],
                "errors": _sums((self.errors, store["errors"])),
            },
        }


def _sums(all_of: Iterable[dict[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in all_of:
        for name, count in one.items():
            found[name] = found.get(name, 0) + count
    return found
