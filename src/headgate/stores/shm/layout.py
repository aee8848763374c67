"""What is where in the file of a store.

    header    a page: who made it, how large its parts are, the anchor of its clock; never changed
    control   a page: the mark of the journal, the first free block, when a counter was last
              dropped, how often the lock was taken
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
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError
from headgate.units import SECOND

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator


VERSION: Final = 1
PAGE: Final = 4096
CONTROL_AT: Final = PAGE
FIRST_FREE_AT: Final = CONTROL_AT + 8
CLEARED_AT: Final = CONTROL_AT + 16
COUNT_WORD: Final = (CONTROL_AT + 24) // 8
"""How often the lock was taken."""
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


# Several places changed at once, or not at all, whoever is killed in between.
#
# What is to be written is put down first, then marked as complete, then carried out, and then the
# mark is taken away. Killed before the mark: nothing has happened. Killed after it: whoever has the
# next turn finds the mark and carries everything out again; writing the same twice does no harm.
#
# A single write inside a page needs none of this: the kernel copies it without looking at signals.
# Nor does a single word of memory.


Write = tuple[int, bytes]
"""Where in the file, and what; never across the border of a page."""

MARK: Final = struct.Struct("<II")
"""How long the journal is, 0 if nothing is under way, and its checksum."""
NOTHING: Final = MARK.pack(0, 0)
MARK_WORD: Final = CONTROL_AT // 8
_PLACE: Final = struct.Struct("<QI")


def write_all(fd: int, writes: list[Write]) -> None:
    """Carry out all *writes* or none. The caller has the turn."""
    if len(writes) > 1:
        text = _text(writes)
        os.pwrite(fd, text, JOURNAL_AT)
        os.pwrite(fd, MARK.pack(len(text), zlib.crc32(text)), CONTROL_AT)
    for at, data in writes:
        os.pwrite(fd, data, at)
    if len(writes) > 1:
        os.pwrite(fd, NOTHING, CONTROL_AT)


def remember_all(memory: mmap.mmap, words: memoryview, writes: list[Write]) -> None:
    """The same, written to memory itself: with nothing asked of the kernel it is quicker."""
    text = _text(writes)
    memory[JOURNAL_AT : JOURNAL_AT + len(text)] = text
    words[MARK_WORD] = len(text) | zlib.crc32(text) << 32
    for at, data in writes:
        memory[at : at + len(data)] = data
    words[MARK_WORD] = 0


def carry_out(fd: int, mark: bytes, size: int) -> None:
    """Finish what somebody was killed in the middle of. The caller has the turn."""
    length, checksum = MARK.unpack(mark)
    text = os.pread(fd, min(length, JOURNAL_SIZE), JOURNAL_AT)
    if len(text) == length and zlib.crc32(text) == checksum:
        for at, data in _entries(text):
            if at >= PAGE and at + len(data) <= size:
                os.pwrite(fd, data, at)
    os.pwrite(fd, NOTHING, CONTROL_AT)


def _text(writes: list[Write]) -> bytes:
    text = b"".join([_PLACE.pack(at, len(data)) + data for at, data in writes])
    if len(text) > JOURNAL_SIZE:
        raise StoreError("too many counters at once for shared memory", reason="refused")
    return text


def _entries(text: bytes) -> Iterator[Write]:
    at = 0
    while at < len(text):
        where, length = _PLACE.unpack_from(text, at)
        at += _PLACE.size
        yield where, text[at : at + length]
        at += length


# Where a counter is: one of two buckets of 16 cells, chosen by a keyed hash of its name.
#
# A cell is the hash of the name (which no file has to keep then), the length of the record, the
# first block of a record that is too long, and a record that is not:
#
#     16 bytes of hash | length | first block | up to 104 bytes
#
# A new counter goes into the emptier bucket. With two to choose from nearly all cells are in use
# before both of anybody's are full. A cell whose counter is as new is as good as empty.


HASH_SIZE: Final = 16
HEAD: Final = struct.Struct("<16sII")
INLINE: Final = CELL - HEAD.size
EMPTY: Final = bytes(HEAD.size)
_LENGTHS: Final = struct.Struct(f"<{f'{HASH_SIZE}xI{CELL - HASH_SIZE - 4}x' * BUCKET_CELLS}")
"""How long the records of a bucket are."""
SHARES: Final = 256
"""Counters that all keys of a group share for which there is no room."""


NEVER: Final = 2**63
_FULL_NS: Final = SECOND
"""How long it is believed at most that two buckets are full."""
_MOST_FULL: Final = 10_000


class Hashes:
    """Names of counters as hashes that nobody outside can compute."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def own(self, group: str, key: str, *, is_slots: bool) -> bytes:
        """The name of a counter that belongs to one key."""
        return self._of(b"s" if is_slots else b"c", group, key.encode("utf-8", "surrogatepass"))

    def shared(self, group: str, own: bytes, *, is_slots: bool) -> bytes:
        """The name of the counter that the key of *own* shares with others if need be."""
        number = int.from_bytes(own[:4], "little") % SHARES
        return self._of(b"t" if is_slots else b"d", group, number.to_bytes(4, "little"))

    def _of(self, kind: bytes, group: str, rest: bytes) -> bytes:
        named = group.encode("utf-8", "surrogatepass")
        text = b"".join((kind, len(named).to_bytes(8, "little"), named, rest))
        return blake2b(text, digest_size=HASH_SIZE, key=self._secret).digest()


class Cell:
    """A cell as it was read: whose, how long its record is, what is in it."""

    __slots__ = ("at", "data")

    def __init__(self, at: int, data: bytes) -> None:
        self.at = at
        self.data = data

    @property
    def head(self) -> tuple[bytes, int, int]:
        """The hash, the length of the record, its first block if it has any."""
        head: tuple[bytes, int, int] = HEAD.unpack_from(self.data)
        return head

    @property
    def is_empty(self) -> bool:
        return self.head[1] == 0


class Table:
    """A range of buckets."""

    __slots__ = ("_buckets", "_fd", "_full_until", "_start")

    def __init__(self, fd: int, start: int, buckets: int) -> None:
        self._fd = fd
        self._start = start
        self._buckets = buckets
        self._full_until: dict[tuple[int, int], int] = {}

    @classmethod
    def own(cls, fd: int, layout: Layout) -> Table:
        return cls(fd, CELLS_AT, layout.buckets)

    @classmethod
    def shared(cls, fd: int, layout: Layout) -> Table:
        return cls(fd, layout.shared_at, layout.shared_buckets)

    def __len__(self) -> int:
        """How many buckets there are."""
        return self._buckets

    def bucket(self, number: int) -> list[Cell]:
        """The cells of one bucket."""
        at, data = self._read(number)
        return [_cell(at, data, place) for place in range(BUCKET_CELLS)]

    def find(self, name: bytes) -> Cell | None:
        """The cell of the counter *name*, if it has one."""
        for number in self._choices(name):
            at, data = self._read(number)
            place = data.find(name)
            while place >= 0 and place % CELL:
                place = data.find(name, place + 1)
            if place >= 0:
                cell = Cell(at + place, data[place : place + CELL])
                if not cell.is_empty:
                    return cell
        return None

    def candidates(self, name: bytes) -> Iterator[Cell]:
        """The cells where a counter *name* could be: all empty ones first, the best before all."""
        buckets = []
        for number in self._choices(name):
            at, data = self._read(number)
            buckets.append((at, data, _LENGTHS.unpack(data)))
        buckets.sort(key=lambda bucket: -bucket[2].count(0))
        for is_used in (False, True):
            for at, data, lengths in buckets:
                for place, length in enumerate(lengths):
                    if bool(length) is is_used:
                        yield _cell(at, data, place)

    def is_full_for(self, name: bytes, now: int) -> bool:
        """Whether it is known that a counter *name* finds no cell: keys may be sprayed quickly."""
        if not self._full_until:
            return False
        until = self._full_until.get(self._choices(name), 0)
        return until - _FULL_NS <= now < until

    def remember_full(self, name: bytes, now: int, soonest: int) -> None:
        """There is no cell for *name*, and none will be idle before *soonest* nanoseconds."""
        if len(self._full_until) >= _MOST_FULL:
            self._full_until.clear()
        self._full_until[self._choices(name)] = now + min(soonest, _FULL_NS)

    def _read(self, number: int) -> tuple[int, bytes]:
        at = self._start + number * BUCKET
        data = os.pread(self._fd, BUCKET, at)
        if len(data) < BUCKET:
            raise EOFError("the file is shorter than it was")
        return at, data

    def _choices(self, name: bytes) -> tuple[int, int]:
        first = int.from_bytes(name[:8], "little") % self._buckets
        second = int.from_bytes(name[8:], "little") % self._buckets
        return first, second


def _cell(at: int, data: bytes, place: int) -> Cell:
    """The cell at *place* of a bucket that begins at *at* and holds *data*."""
    start = place * CELL
    return Cell(at + start, data[start : start + CELL])
