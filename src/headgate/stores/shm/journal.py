"""Several places changed at once, or not at all, whoever is killed in between.

What is to be written is put down first, then marked as complete, then carried out, and then the
mark is taken away. Killed before the mark: nothing has happened. Killed after it: whoever has the
next turn finds the mark and carries everything out again; writing the same twice does no harm.

A single write inside a page needs none of this: the kernel copies it without looking at signals.
Nor does a single word of memory.
"""

from __future__ import annotations

import os
import struct
import zlib
from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError
from headgate.stores.shm.layout import CONTROL_AT, JOURNAL_AT, JOURNAL_SIZE, PAGE

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator

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
