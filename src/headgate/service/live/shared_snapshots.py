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
from pathlib import Path
from typing import Final, NamedTuple

from headgate.errors import HeadgateError

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
