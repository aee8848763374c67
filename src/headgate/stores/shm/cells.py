"""Where a counter is: one of two buckets of 16 cells, chosen by a keyed hash of its name.

A cell is the hash of the name (which no file has to keep then), the length of the record, the first
block of a record that is too long, and a record that is not:

    16 bytes of hash | length | first block | up to 104 bytes

A new counter goes into the emptier bucket. With two to choose from nearly all cells are in use
before both of anybody's are full. A cell whose counter is as new is as good as empty.
"""

from __future__ import annotations

import os
import struct
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from headgate.stores.shm.layout import BUCKET, BUCKET_CELLS, CELL, CELLS_AT, Layout
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

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
