"""The layout of the file, and counters by name in it: cells, blocks, and a journal.

    header    a page: version, sizes, the anchor of the clock; never changed
    control   a page: the mark of the journal, the first free block, when an idle counter was last
              dropped, how often the lock was taken
    journal   the writes of one operation
    cells     counters, in buckets
    overflow  more cells, for the keys that found none
    blocks    records that are too long for a cell

Numbers have the byte order of the host. The version is part of the file's name: stores of different
versions never share a file.

A counter is named by a keyed hash and lies in one of two buckets of 16 cells, chosen by the hash:

    16 bytes of hash | length of the record | first block | a record of up to 104 bytes

A new counter goes into the emptier bucket. With two buckets to choose from, nearly all cells are in
use before both buckets of any name are full. A cell whose counter is idle counts as empty.

A longer record is a chain of blocks, rewritten as a whole. A block is the number of the next one
and 508 bytes; blocks are numbered from 1. All free blocks are one chain too. In a block that was
never used the number is 0, which stands for the next block in the file. A new chain takes the first
blocks of the free chain and keeps their numbers: the length of a chain is known from its cell. So a
chain can be written before anything else: a process killed then leaves the free chain as it was.

Several places change together through the journal: it holds the writes, then the mark makes them
valid, then they are carried out and the mark is cleared. After a kill before the mark nothing has
happened; after it, the next process that takes the lock repeats the writes, which does no harm. A
single write inside a page needs no journal: the kernel copies it without looking at signals. Nor
does a single word of memory.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from dataclasses import astuple, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator
    from mmap import mmap

    from headgate.stores.shm.file import File

VERSION: Final = 4
WORD: Final = 8
"""Bytes that a processor writes at once: a kill comes before or after."""
MAX_WORD: Final = (1 << 8 * WORD) - 1
PAGE: Final = 4096
_CONTROL_AT: Final = PAGE
MARK_WORD: Final = _CONTROL_AT // WORD
"""The length of the journal, 0 if it is not in use, and its checksum."""
FIRST_FREE_AT: Final = _CONTROL_AT + 8
COUNT_WORD: Final = _CONTROL_AT // WORD + 2
"""The number of times that the lock was taken."""
JOURNAL_AT: Final = 2 * PAGE
JOURNAL_SIZE: Final = 64 * PAGE
CELLS_AT: Final = JOURNAL_AT + JOURNAL_SIZE
CELL: Final = 128
BUCKET: Final = 16 * CELL
BLOCK: Final = 512

HASH_SIZE: Final = 16
HEAD: Final = struct.Struct("=16sII")
"""The hash, the length of the record, its first block or 0."""
INLINE: Final = CELL - HEAD.size
EMPTY: Final = bytes(HEAD.size)
OVERFLOW_COUNTERS: Final = 256
"""Counters that all keys of a group share for which there is no cell."""
NEVER: Final = 2**63

_MAGIC: Final = b"headgate"
_HEADER: Final = struct.Struct("=8sIQQQQ16s16sqqI")
_CHECKED: Final = _HEADER.size - 4
_LENGTH: Final = struct.Struct("=16xI")
_NUMBER: Final = struct.Struct("=I")
_DATA: Final = BLOCK - _NUMBER.size
_PLACE: Final = struct.Struct("=QI")
_FULL_NS: Final = SECOND
"""For how long at most two buckets are taken to be full."""
_MAX_FULL: Final = 10_000


@dataclass(frozen=True, slots=True)
class Layout:
    """The sizes of the parts, and what all processes have to agree on."""

    size: int
    buckets: int
    overflow_buckets: int
    blocks: int
    secret: bytes
    """The key of the hashes: no outsider knows which counters share a bucket."""
    boot: bytes
    """The boot of the machine whose monotonic clock the file uses."""
    anchor_ns: int
    """Nanoseconds from the start of the monotonic clock to the epoch."""
    made_ns: int
    """When the file was made, on the monotonic clock."""

    @classmethod
    def for_size(cls, size: int) -> Layout:
        """Lay out a new file of *size* bytes."""
        room = size - CELLS_AT
        blocks = room // 4 // BLOCK
        buckets = (room - blocks * BLOCK) // BUCKET
        overflow = max(32, buckets // 16)
        now_ns = time.monotonic_ns()
        return cls(
            size,
            buckets - overflow,
            overflow,
            blocks,
            os.urandom(16),
            this_boot(),
            time.time_ns() - now_ns,
            now_ns,
        )

    @classmethod
    def read(cls, page: bytes) -> Layout | None:
        """Read the first page of a file; None if it is damaged or from another boot."""
        if len(page) < _HEADER.size:
            return None
        magic, version, *parts, checksum = _HEADER.unpack_from(page)
        if (magic, version) != (_MAGIC, VERSION) or zlib.crc32(page[:_CHECKED]) != checksum:
            return None
        layout = cls(*parts)
        is_current = layout.boot == this_boot() and layout.made_ns <= time.monotonic_ns()
        return layout if is_current else None

    def page(self) -> bytes:
        """Return the first page of a file with this layout."""
        unchecked = _HEADER.pack(_MAGIC, VERSION, *astuple(self), 0)[:_CHECKED]
        return (unchecked + struct.pack("=I", zlib.crc32(unchecked))).ljust(PAGE, b"\0")

    @property
    def overflow_at(self) -> int:
        return CELLS_AT + self.buckets * BUCKET

    @property
    def blocks_at(self) -> int:
        return self.overflow_at + self.overflow_buckets * BUCKET


def this_boot() -> bytes:
    """Return the id of this boot of the machine; zeros where there is none."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        return bytes.fromhex(text.strip().replace("-", "")).ljust(16, b"\0")[:16]
    except (OSError, ValueError):
        return bytes(16)


Write = tuple[int, bytes]
"""An offset in the file and what to write there; never across the border of a page."""


def write_all(file: File, writes: list[Write]) -> None:
    """Carry out all *writes* or none. The caller holds the lock."""
    if len(writes) == 1:
        at, data = writes[0]
        os.pwrite(file.fd, data, at)
        return
    text = b"".join([_PLACE.pack(at, len(data)) + data for at, data in writes])
    if len(text) > JOURNAL_SIZE:
        raise StoreError("too many counters at once for shared memory", reason="refused")
    memory, words = file.memory, file.words
    memory[JOURNAL_AT : JOURNAL_AT + len(text)] = text
    words[MARK_WORD] = len(text) | zlib.crc32(text) << 32
    for at, data in writes:
        memory[at : at + len(data)] = data
    words[MARK_WORD] = 0


def recover(file: File) -> None:
    """Finish the writes of a process that was killed. The caller holds the lock."""
    mark = file.words[MARK_WORD]
    length, checksum = mark & 0xFFFF_FFFF, mark >> 32
    text = file.memory[JOURNAL_AT : JOURNAL_AT + min(length, JOURNAL_SIZE)]
    if len(text) == length and zlib.crc32(text) == checksum:
        start = 0
        while start < length:
            at, size = _PLACE.unpack_from(text, start)
            start += _PLACE.size + size
            if at >= PAGE and at + size <= file.layout.size:
                file.memory[at : at + size] = text[start - size : start]
    file.words[MARK_WORD] = 0


class Names:
    """Names of counters, as hashes that only the holder of *secret* can compute."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def own(self, group: str, key: str, *, has_slots: bool) -> bytes:
        """Return the name of the counter of one key."""
        return self._hash(b"s" if has_slots else b"c", group, key.encode("utf-8", "surrogatepass"))

    def overflow(self, group: str, own: bytes, *, has_slots: bool) -> bytes:
        """Return the name of the counter that the key of *own* shares if it has no cell."""
        number = int.from_bytes(own[:4], "little") % OVERFLOW_COUNTERS
        return self._hash(b"t" if has_slots else b"d", group, number.to_bytes(4, "little"))

    def _hash(self, kind: bytes, group: str, rest: bytes) -> bytes:
        name = group.encode("utf-8", "surrogatepass")
        text = b"".join((kind, len(name).to_bytes(8, "little"), name, rest))
        return blake2b(text, digest_size=HASH_SIZE, key=self._secret).digest()


class Table:
    """A range of buckets. Cells are named by their offset in the file."""

    __slots__ = ("_buckets", "_full_until", "_memory", "_start")

    def __init__(self, memory: mmap, start: int, buckets: int) -> None:
        self._memory = memory
        self._start = start
        self._buckets = buckets
        self._full_until: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        """Return the number of buckets."""
        return self._buckets

    def used_cells(self, bucket: int) -> list[int]:
        """Return the cells of a bucket that hold a counter."""
        return [cell for cell, length in self._lengths(bucket) if length]

    def find(self, name: bytes) -> int | None:
        """Return the cell of the counter *name*, if it has one."""
        memory = self._memory
        for bucket in self._choices(name):
            start = self._start + bucket * BUCKET
            cell = memory.find(name, start, start + BUCKET)
            while cell >= 0 and (cell - start) % CELL:
                cell = memory.find(name, cell + 1, start + BUCKET)
            if cell >= 0 and HEAD.unpack_from(memory, cell)[1]:
                return cell
        return None

    def candidates(self, name: bytes) -> tuple[list[int], list[int]]:
        """Return the cells for a counter *name*: the empty ones, best first, and those in use."""
        buckets = [self._lengths(bucket) for bucket in self._choices(name)]
        first, second = [[cell for cell, length in cells if not length] for cells in buckets]
        empty = first + second if len(first) >= len(second) else second + first
        used = [cell for cells in buckets for cell, length in cells if length]
        return empty, used

    def is_full_for(self, name: bytes, now: int) -> bool:
        """True if there is known to be no cell for *name*: callers may spray keys."""
        if not self._full_until:
            return False
        until = self._full_until.get(self._choices(name), 0)
        return until - _FULL_NS <= now < until

    def remember_full(self, name: bytes, now: int, idle_in: int) -> None:
        """Remember that there is no cell for *name*, for up to *idle_in* nanoseconds."""
        if len(self._full_until) >= _MAX_FULL:
            self._full_until.clear()
        self._full_until[self._choices(name)] = now + min(idle_in, _FULL_NS)

    def _lengths(self, bucket: int) -> list[tuple[int, int]]:
        """Return each cell of a bucket and the length of its record."""
        memory, start = self._memory, self._start + bucket * BUCKET
        cells = range(start, start + BUCKET, CELL)
        return [(cell, _LENGTH.unpack_from(memory, cell)[0]) for cell in cells]

    def _choices(self, name: bytes) -> tuple[int, int]:
        first = int.from_bytes(name[:8], "little") % self._buckets
        second = int.from_bytes(name[8:], "little") % self._buckets
        return first, second


class Blocks:
    """The blocks of a file, as one transaction reads and writes them."""

    __slots__ = ("_count", "_file", "_first_free", "_start")

    def __init__(self, file: File) -> None:
        self._file = file
        self._count = file.layout.blocks
        self._start = file.layout.blocks_at - BLOCK
        self._first_free: int | None = None

    @property
    def first_free(self) -> int:
        """The first block of the free chain, behind what this transaction has written."""
        if self._first_free is None:
            self._first_free = self._number_at(FIRST_FREE_AT) or 1
        return self._first_free

    def next(self, block: int) -> int:
        """Return the block that follows *block* in its chain."""
        return self._number_at(self._start + block * BLOCK) or block + 1

    def read(self, first: int, length: int) -> tuple[bytes, list[int]]:
        """Return the *length* bytes of the chain that begins with *first*, and its blocks.

        Raises `ValueError` if there is no such chain.
        """
        if length > self._count * _DATA:
            raise ValueError(f"a record of {length} bytes, more than all blocks have")
        blocks, parts = [], []
        block = first
        for _ in range(-(-length // _DATA)):
            if not 1 <= block <= self._count:
                raise ValueError(f"there is no block {block}")
            at = self._start + block * BLOCK
            blocks.append(block)
            parts.append(self._file.memory[at + _NUMBER.size : at + BLOCK])
            block = self.next(block)
        return b"".join(parts)[:length], blocks

    def write(self, data: bytes) -> int:
        """Put *data* into free blocks and return the first; they stay free until `changes` is
        written.

        Raises `StoreError` if there are not enough.
        """
        first = block = self.first_free
        for start in range(0, len(data), _DATA):
            if block > self._count:
                raise StoreError("the shared memory is full", reason="out_of_memory")
            at = self._start + block * BLOCK + _NUMBER.size
            part = data[start : start + _DATA]
            self._file.memory[at : at + len(part)] = part
            block = self.next(block)
        self._first_free = block
        return first

    def changes(self, freed: list[list[int]]) -> Iterator[Write]:
        """Yield the writes that take the chains written so far out of the free chain and put the
        *freed* ones into it."""
        if self._first_free is None and not freed:
            return
        first = self.first_free
        for chain in freed:
            yield self._start + chain[-1] * BLOCK, _NUMBER.pack(first)
            first = chain[0]
        yield FIRST_FREE_AT, _NUMBER.pack(first)

    def _number_at(self, at: int) -> int:
        number: int = _NUMBER.unpack_from(self._file.memory, at)[0]
        return number
