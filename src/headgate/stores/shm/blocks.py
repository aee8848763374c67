"""What is too long for a cell: a chain of blocks, always written anew.

A block is the number of the next one and 508 bytes. All free blocks are one chain too; in a block
that was never used the number is 0, which means the one that follows in the file. Blocks are
numbered from 1.

A new chain is the beginning of the free one, filled in: the numbers in it stay as they are, as a
chain's length is known from its cell. So it can be written before anything else is, and whoever is
killed then leaves the free chain as it was. Only then, together with the cell, the first free
block changes, and the chain that the cell had before joins the free one.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError
from headgate.stores.shm.layout import BLOCK, FIRST_FREE_AT, Layout

if TYPE_CHECKING:
    from headgate.stores.shm.journal import Write

_NUMBER: Final = struct.Struct("<I")
_DATA: Final = BLOCK - _NUMBER.size


class Blocks:
    """The blocks of one file, in the hands of one transaction. The caller has the turn."""

    __slots__ = ("_count", "_fd", "_first_free", "_start")

    def __init__(self, fd: int, layout: Layout) -> None:
        self._fd = fd
        self._count = layout.blocks
        self._start = layout.blocks_at - BLOCK
        self._first_free: int | None = None

    def read(self, first: int, length: int) -> tuple[bytes, list[int]]:
        """The *length* bytes of the chain that begins with *first*, and its blocks.

        Raises `ValueError` if there is no such chain.
        """
        if length > self._count * _DATA:
            raise ValueError(f"there are no {length} bytes in all blocks")
        blocks, parts = [], []
        block = first
        for _ in range(-(-length // _DATA)):
            self._check(block)
            data = os.pread(self._fd, BLOCK, self._start + block * BLOCK)
            blocks.append(block)
            parts.append(data[_NUMBER.size :])
            block = _NUMBER.unpack_from(data)[0] or block + 1
        return b"".join(parts)[:length], blocks

    def write(self, data: bytes) -> int:
        """Put *data* into free blocks; the first of them. They are free until `changes` is written.

        Raises `StoreError` if there are not enough.
        """
        if self._first_free is None:
            self._first_free = self._number_at(FIRST_FREE_AT) or 1
        first = block = self._first_free
        for at in range(0, len(data), _DATA):
            if block > self._count:
                raise StoreError("the shared memory is full", reason="out_of_memory")
            where = self._start + block * BLOCK
            following = self._number_at(where) or block + 1
            os.pwrite(self._fd, data[at : at + _DATA], where + _NUMBER.size)
            block = following
        self._first_free = block
        return first

    def changes(self, freed: list[list[int]]) -> list[Write]:
        """What makes the chains written so far used, and the *freed* ones free."""
        if self._first_free is None and not freed:
            return []
        first = self._first_free
        if first is None:
            first = self._number_at(FIRST_FREE_AT) or 1
        writes = []
        for chain in freed:
            writes.append((self._start + chain[-1] * BLOCK, _NUMBER.pack(first)))
            first = chain[0]
        writes.append((FIRST_FREE_AT, _NUMBER.pack(first)))
        return writes

    def _check(self, block: int) -> None:
        if not 1 <= block <= self._count:
            raise ValueError(f"there is no block {block}")

    def _number_at(self, where: int) -> int:
        number: int = _NUMBER.unpack(os.pread(self._fd, _NUMBER.size, where))[0]
        return number
