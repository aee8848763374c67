"""Memory that the workers of a node share: a board for each, where it leaves its snapshot.

The supervisor makes one file that is nowhere but in memory, and passes it on. Each worker writes on
the board of its number only, and reads the others'. A board has two sides: the writer fills the one
that is older, its head last. So there is always one side that is whole, whenever a writer is
stopped or killed; a reader takes the newer side if its checksum is right, and looks again if not,
as then it was read while it was being written.

    file    board 0 | board 1 | ...         each 2 * SIDE bytes, most of which are never touched
    side    number  | length  | checksum | snapshot ...
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
"""Bytes of a side. It is an address, not memory: only what was written is that."""

_HEAD: Final = struct.Struct("<QQI")
LARGEST: Final = SIDE - _HEAD.size
"""Bytes of a snapshot."""

_ATTEMPTS: Final = 4


class BoardError(HeadgateError):
    """Something cannot be written on a board; what was on it before still is."""


class _Head(NamedTuple):
    number: int
    length: int
    checksum: int


class Boards:
    """The boards in the file *fileno*, which is its owner's to close."""

    def __init__(self, fileno: int, *, count: int) -> None:
        self._fileno = fileno
        self.count = count

    def write(self, board: int, data: bytes) -> None:
        """Leave *data* on *board*, which nobody else writes on. Raises `BoardError`."""
        if len(data) > LARGEST:
            raise BoardError(f"{len(data)} bytes are too much for a board; it holds {LARGEST}")
        try:
            newest, side = max((self._head(board, side).number, side) for side in (0, 1))
            start = _start(board, 1 - side)
            head = _HEAD.pack(newest + 1, len(data), zlib.crc32(data))
            # What the head says of the side is void from here on, and again true with a new head.
            self._write(_HEAD.pack(0, 0, 0), start)
            self._write(data, start + _HEAD.size)
            self._write(head, start)
        except OSError as error:
            raise BoardError(f"the board cannot be written: {error.strerror or error}") from error

    def read(self, board: int) -> bytes | None:
        """What was last left on *board*; None if nothing was, or if it cannot be read."""
        try:
            for _ in range(_ATTEMPTS):
                newer, older = sorted(
                    ((self._head(board, side), side) for side in (0, 1)), reverse=True
                )
                for head, side in (newer, older):
                    if head.number and (data := self._read(board, side, head)) is not None:
                        return data
                if not newer[0].number:
                    return None
        except OSError:
            return None
        return None

    def _head(self, board: int, side: int) -> _Head:
        data = os.pread(self._fileno, _HEAD.size, _start(board, side))
        # Beyond what was ever written the file may have an end, or zeros.
        return _Head(*_HEAD.unpack(data)) if len(data) == _HEAD.size else _Head(0, 0, 0)

    def _read(self, board: int, side: int, head: _Head) -> bytes | None:
        if head.length > LARGEST:
            return None
        data = os.pread(self._fileno, head.length, _start(board, side) + _HEAD.size)
        is_whole = len(data) == head.length and zlib.crc32(data) == head.checksum
        return data if is_whole else None

    def _write(self, data: bytes, start: int) -> None:
        view = memoryview(data)
        while view:
            done = os.pwrite(self._fileno, view, start)
            view, start = view[done:], start + done


def new_file() -> int:
    """The number of a file in memory, or of one without a name. Raises `OSError`."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("headgate-boards", os.MFD_CLOEXEC)
    fileno, path = tempfile.mkstemp(prefix="headgate-boards-")
    Path(path).unlink()
    return fileno


def _start(board: int, side: int) -> int:
    return (2 * board + side) * SIDE


# What the worker before this one has counted: a worker that dies takes nothing along.


@dataclass(frozen=True, slots=True)
class Former:
    """What to begin with. Nothing, if there was nobody."""

    began: float | None = None
    requests: tuple[int, int] = (0, 0)
    cells: bytes = field(default_factory=lambda: packed_counts({}))
    """Packed, as they are told again and again."""
    calls: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    series: Series | None = None
    candidates: tuple[dict[str, Any], ...] = ()

    @classmethod
    def of(cls, snapshot: Snapshot) -> Former:
        """What *snapshot* says. Raises `SnapshotError` for one of another version."""
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
            raise SnapshotError(f"it is not as expected: {error!r}") from error

    def added_to(self, state: State) -> State:
        """*state* with what was counted before it began, but for `cells`."""
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
