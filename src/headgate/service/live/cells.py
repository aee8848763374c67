"""What rules said, by rule, outcome and source: since a worker began, and lately; as bytes.

There may be thousands of cells, and they are told every second. Their names hardly ever change, so
they are written once; the rest is numbers.

    length of the head | head: [seconds that "lately" was, [names]] | counts | counts lately
"""

from __future__ import annotations

import json
import sys
from array import array
from collections import deque
from operator import sub
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.observability import Journal

LATELY: Final = 10
"""Seconds that are meant by "per second"."""

_LENGTH: Final = 4
"""Bytes that say how long the head is."""

Name = tuple[str, str, str]
"""Rule, outcome, source."""


class Counted(NamedTuple):
    """Cells by their *names*: *counts* since it began, and *lately*, which was *span* seconds."""

    span: int
    names: list[Name]
    counts: array[int]
    lately: array[int]


class Cells:
    """The cells of *journal*, which are never taken away there."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._seen: deque[tuple[int, array[int]]] = deque()
        self._names: Sequence[Name] = []
        self._written = b"[]"

    def look(self, second: int) -> None:
        """*second* has begun."""
        seen = self._seen
        if seen and second < seen[-1][0]:
            seen.clear()  # the clock was set back
        seen.append((second, self._counts()))
        while len(seen) > 2 and seen[1][0] <= second - LATELY:
            seen.popleft()

    def packed(self) -> bytes:
        """All of them as bytes; what was said lately as it was at the last look."""
        counts = self._counts()
        names = list(self._journal.cells)[: len(counts)]
        if names != self._names:
            self._names, self._written = names, _json(names)
        span, lately = self._lately(len(counts))
        return _joined(span, self._written, counts, lately)

    def _lately(self, length: int) -> tuple[int, array[int]]:
        if not self._seen:
            return 0, array("q", bytes(8 * length))
        (began, before), (ended, after) = self._seen[0], self._seen[-1]
        before = before + array("q", bytes(8 * (len(after) - len(before))))
        lately = array("q", map(sub, after, before))
        return ended - began, lately + array("q", bytes(8 * (length - len(lately))))

    def _counts(self) -> array[int]:
        return array("q", [cell[0] for cell in list(self._journal.cells.values())])


def packed_counts(counts: dict[Name, int]) -> bytes:
    """*counts* as bytes, none of it lately."""
    numbers = array("q", counts.values())
    return _joined(0, _json(list(counts)), numbers, array("q", bytes(8 * len(numbers))))


def unpacked_cells(data: bytes) -> Counted:
    """What `Cells.packed` or `packed_counts` has made. Raises `ValueError` for anything else."""
    start = _LENGTH + int.from_bytes(data[:_LENGTH], sys.byteorder)
    span, names = json.loads(data[_LENGTH:start])
    numbers = array("q")
    numbers.frombytes(data[start:])
    if len(numbers) != 2 * len(names):
        raise ValueError(f"there are {len(numbers)} numbers for {len(names)} cells")
    named = [(rule, outcome, source) for rule, outcome, source in names]
    return Counted(span, named, numbers[: len(names)], numbers[len(names) :])


def added_up(all_of: Iterable[Counted]) -> dict[Name, int]:
    """How often which rule said what, of all of them."""
    found: dict[Name, int] = {}
    for one in all_of:
        for name, count in zip(one.names, one.counts, strict=True):
            found[name] = found.get(name, 0) + count
    return found


def _json(names: Sequence[Name]) -> bytes:
    return json.dumps(names, separators=(",", ":")).encode("ascii")


def _joined(span: int, names: bytes, counts: array[int], lately: array[int]) -> bytes:
    head = b"[%d,%b]" % (span, names)
    length = len(head).to_bytes(_LENGTH, sys.byteorder)
    return b"".join([length, head, counts.tobytes(), lately.tobytes()])
