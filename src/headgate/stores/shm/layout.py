"""What is where in the file of a store.

    header    a page: who made it, how large its parts are, the anchor of its clock; never changed
    control   a page: the mark of the journal, the first free block, when a counter was last
              dropped, how many turns there were
    journal   what is being written, when several places change at once (see `journal`)
    cells     the counters: cells of 128 bytes in buckets of 16 (see `cells`)
    shared    more such cells, for the keys that found no room
    blocks    what is too long for a cell, in chains of 512 bytes (see `blocks`)

All numbers are little-endian. The number of the layout is in the file's name: stores of different
layouts never meet.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

VERSION: Final = 1
PAGE: Final = 4096
CONTROL_AT: Final = PAGE
FIRST_FREE_AT: Final = CONTROL_AT + 8
CLEARED_AT: Final = CONTROL_AT + 16
TURNS_AT: Final = CONTROL_AT + 24
JOURNAL_AT: Final = 2 * PAGE
JOURNAL_SIZE: Final = 64 * PAGE
CELLS_AT: Final = JOURNAL_AT + JOURNAL_SIZE
CELL: Final = 128
BUCKET_CELLS: Final = 16
BUCKET: Final = CELL * BUCKET_CELLS
BLOCK: Final = 512

_MAGIC: Final = b"headgate"
_HEADER: Final = struct.Struct("<8sIQQQQ16s16sqqI")
_CHECKED: Final = _HEADER.size - 4


@dataclass(frozen=True, slots=True)
class Layout:
    """How large the parts are, and what all processes have to agree on."""

    size: int
    buckets: int
    shared_buckets: int
    blocks: int
    secret: bytes
    """Nobody outside can tell which counters lie together."""
    boot: bytes
    """Which start of the machine the clock counts from."""
    anchor_ns: int
    """What to add to the monotonic clock to have the time since the epoch."""
    made_ns: int
    """When it was made, on the monotonic clock."""

    @classmethod
    def for_size(cls, size: int) -> Layout:
        """A new one that fits into *size* bytes."""
        room = size - CELLS_AT
        blocks = room // 4 // BLOCK
        buckets = (room - blocks * BLOCK) // BUCKET
        shared = max(32, buckets // 16)
        now_ns = time.monotonic_ns()
        return cls(
            size,
            buckets - shared,
            shared,
            blocks,
            os.urandom(16),
            this_boot(),
            time.time_ns() - now_ns,
            now_ns,
        )

    @classmethod
    def read(cls, page: bytes) -> Layout | None:
        """What the first page of a file says; None if it is damaged, or of another boot."""
        if len(page) < _HEADER.size:
            return None
        magic, version, *parts, checksum = _HEADER.unpack_from(page)
        if (magic, version) != (_MAGIC, VERSION) or zlib.crc32(page[:_CHECKED]) != checksum:
            return None
        layout = cls(*parts)
        is_of_now = layout.boot == this_boot() and layout.made_ns <= time.monotonic_ns()
        return layout if is_of_now else None

    def page(self) -> bytes:
        """The first page of a file with this layout."""
        unchecked = _HEADER.pack(_MAGIC, VERSION, *astuple(self), 0)[:_CHECKED]
        checked = unchecked + zlib.crc32(unchecked).to_bytes(4, "little")
        return checked.ljust(PAGE, b"\0")

    @property
    def shared_at(self) -> int:
        return CELLS_AT + self.buckets * BUCKET

    @property
    def blocks_at(self) -> int:
        return self.shared_at + self.shared_buckets * BUCKET


def this_boot() -> bytes:
    """Something that differs from one start of the machine to the next, where one can know."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        return bytes.fromhex(text.strip().replace("-", "")).ljust(16, b"\0")[:16]
    except (OSError, ValueError):
        return bytes(16)
