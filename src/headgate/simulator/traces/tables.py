"""Tables: CSV with a header row, also with semicolons or tabs."""

from __future__ import annotations

import csv
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, cast

from headgate.simulator.traces.formats import Format
from headgate.simulator.traces.names import role_of
from headgate.simulator.traces.problems import BrokenLineError
from headgate.simulator.traces.rows import Layout
from headgate.simulator.traces.times import all_seconds, reader_of, seconds, took_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.simulator.traces.formats import Taken
    from headgate.simulator.traces.names import Wanted
    from headgate.simulator.traces.times import When
    from headgate.simulator.traffic import Asked, Event

_DELIMITERS: Final = (b",", b"\t", b";")
_QUOTE: Final = b'"'


class Table(Format):
    """A table whose header row is *header*; `BrokenLineError` if that does not name the time."""

    name = "csv"

    def __init__(self, header: bytes, wanted: Wanted | None) -> None:
        super().__init__()
        self._delimiter = max(_DELIMITERS, key=header.count)
        self._names = [cell.decode("utf-8", "replace") for cell in self._cells(header)]
        self._layout = Layout(self._names, wanted)
        self._when: When | None = None
        self._lines = 1
        self._is_lean = self._has_time_first()

    def events(self, lines: list[bytes]) -> list[Event]:
        """As ever; but if the time comes first, and all that follows tells requests apart, the rest
        of a line is what they are known by, and few lines are taken apart."""
        if self._is_lean and self._when is not None:
            try:
                found = self._all_events(lines, self._when)
            except (ValueError, OverflowError):  # then line by line, to say which
                found = None
            if found is not None:
                self._lines += len(lines)
                return found
        return super().events(lines)

    def _all_events(self, lines: list[bytes], when: When) -> list[Event]:
        """All of *lines* at once, in loops that are not written in Python; `ValueError` if one is
        not understood."""
        delimiter, new = self._delimiter, self._new
        texts, _, rests = zip(*[line.partition(delimiter) for line in lines], strict=True)
        times = map(when, texts) if when is not seconds else all_seconds(texts)
        known = list(map(self._known.get, rests))
        if None in known:
            for place, one in enumerate(known):
                if one is None:
                    rest = rests[place]
                    known[place] = self._known.get(rest) or new(rest)
        return list(zip(times, cast("list[Asked]", known), repeat(None)))

    def take(self, line: bytes) -> Taken:
        if self._is_lean and line.startswith(_QUOTE):  # such a time is no time as it stands
            self._is_lean = False
        if self._is_lean:
            text, _, rest = line.partition(self._delimiter)
            return (self._when or self._begin(text))(text), rest, None
        row = self._row(line)
        layout = self._layout
        text = row[layout.time].strip()
        when = self._when or self._begin(text)
        took = None if layout.took is None else took_ns(row[layout.took], layout.unit_ns)
        return when(text), layout.alike(row), took

    def asked(self, alike: Any) -> Asked:
        if self._is_lean:
            alike = self._layout.alike(self._row(self._delimiter + alike))
        return self._layout.asked(alike)

    def _has_time_first(self) -> bool:
        """Whether the time comes first, and all that follows tells requests apart."""
        layout, places = self._layout, range(len(self._names))
        others = tuple(places)[1:]
        return layout.time == 0 and bool(others) and layout.alike(places) == others

    def _begin(self, text: bytes) -> When:
        self._when = reader_of(text)
        return self._when

    def _row(self, line: bytes) -> Sequence[bytes]:
        cells = self._cells(line)
        if len(cells) != len(self._names):
            raise BrokenLineError(
                f"it has {len(cells)} columns, the header row names {len(self._names)}"
            )
        return cells

    def _cells(self, line: bytes) -> list[bytes]:
        if _QUOTE not in line:
            return line.split(self._delimiter)
        text = line.decode("utf-8", "surrogateescape")
        try:
            (cells,) = csv.reader([text], delimiter=self._delimiter.decode(), strict=True)
        except csv.Error as error:
            raise BrokenLineError(f"a quoted cell does not end in its line: {error}") from error
        return [cell.encode("utf-8", "surrogateescape") for cell in cells]


def is_header(line: bytes) -> bool:
    """Whether *line* names columns, the time among them."""
    delimiter = max(_DELIMITERS, key=line.count)
    cells = [cell.strip(b'" ').decode("utf-8", "replace") for cell in line.split(delimiter)]
    return any(role_of(cell) == "time" for cell in cells)
