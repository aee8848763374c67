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
        at = self._start + number * BUCKET
        data = os.pread(self._fd, BUCKET, at)
        if len(data) < BUCKET:
            raise EOFError("the file is shorter than it was")
        return [
            Cell(at + place * CELL, data[place * CELL : (place + 1) * CELL])
            for place in range(BUCKET_CELLS)
        ]

    def find(self, name: bytes) -> Cell | None:
        """The cell of the counter *name*, if it has one."""
        for number in self._choices(name):
            at = self._start + number * BUCKET
            data = os.pread(self._fd, BUCKET, at)
            if len(data) < BUCKET:
                raise EOFError("the file is shorter than it was")
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
        buckets = [self.bucket(number) for number in self._choices(name)]
        buckets.sort(key=lambda cells: sum(not cell.is_empty for cell in cells))
        cells = [cell for bucket in buckets for cell in bucket]
        yield from (cell for cell in cells if cell.is_empty)
        yield from (cell for cell in cells if not cell.is_empty)

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

    def _choices(self, name: bytes) -> tuple[int, int]:
        first = int.from_bytes(name[:8], "little") % self._buckets
        second = int.from_bytes(name[8:], "little") % self._buckets
        return first, second
