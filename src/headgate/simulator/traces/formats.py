"""The formats of traces: each splits a line into the values of a row, in one common loop.

    csv    with a header row; commas, semicolons or tabs
    jsonl  an object on each line, with any set of names
    nginx  1.2.3.4 - ann [16/Nov/2026:19:06:40 +0000] "GET /a HTTP/1.1" 200 612 "referer" "agent"
    envoy  [2026-11-16T19:06:40.310Z] "GET /a HTTP/1.1" 200 - 0 5 9 8 "1.2.3.4" "agent" "id" "host"

A number with three decimals after the fields of an nginx log is read as `$request_time`.
"""

from __future__ import annotations

import csv
import json
import re
from abc import ABC, abstractmethod
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from headgate.simulator.traces.columns import InvalidLineError, Layout, TraceError, is_time
from headgate.simulator.traces.times import duration_of, time_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.simulator.traces.columns import HeaderNames
    from headgate.simulator.traffic import Event, SimulatedRequest

FORMATS: Final = ("csv", "jsonl", "nginx", "envoy")
EXPECTED: Final = (
    "expected CSV with a header row that names a time, JSON lines with a time, or an access log of "
    "nginx or Envoy"
)
_DETECTION_LINES: Final = 50
_MAX_KNOWN: Final = 100_000
_MAX_LAYOUTS: Final = 256
_MAX_ERRORS: Final = 3
_LONGEST_ERROR: Final = 200
_TEXT: Final = rb'"([^"\\]*(?:\\.[^"\\]*)*)"'
"""Text between quotes, in a form that takes a third of the time."""
_NGINX: Final = re.compile(rb"(\S+) \S+ [^\[]*\[([^\]]{20,26})\] %b \d{3} (?:\d+|-)(.*)" % _TEXT)
_AFTER: Final = re.compile(rb'(?: %b %b)?(?:.*?[ "=](\d+\.\d{3})(?=[ "]|$))?' % (_TEXT, _TEXT))
_ENVOY: Final = re.compile(
    rb'\[([^\]]+)\] "([^"]*)" \d+ \S+ (?:\S+ \S+ "[^"]*" )?'  # the optional part is of Istio
    rb'\d+ \d+ (\d+|-) (?:\d+|-) "([^"]*)" "([^"]*)" "([^"]*)" "([^"]*)"'
)
_DELIMITERS: Final = (b",", b"\t", b";")
_QUOTE: Final = b'"'
_decode: Final = json.JSONDecoder().decode


class Format(ABC):
    """A reader of lines in their order; *headers* are those that matter.

    It counts invalid lines, and keeps the errors of the first few.
    """

    name: str
    has_whole_seconds = False
    """True if times are whole seconds, so that requests seem to come all at once."""

    def __init__(self, headers: HeaderNames | None) -> None:
        self.skipped = 0
        self.errors: list[str] = []
        self._headers = headers
        self._lines = 0
        self._known: dict[Any, SimulatedRequest] = {}

    @abstractmethod
    def split(self, line: bytes) -> tuple[Layout, Sequence[Any]]:
        """The values in *line* and their layout. Raises `ValueError` if it is invalid."""

    def events(self, lines: list[bytes]) -> list[Event]:
        """The requests in *lines*."""
        known, split = self._known, self.split
        if len(known) >= _MAX_KNOWN:
            known.clear()
        found: list[Event] = []
        for number, line in enumerate(lines, start=self._lines + 1):
            try:
                layout, row = split(line)
                at_ns, took_ns = time_of(row[layout.time]), None
                if layout.duration is not None:
                    took_ns = duration_of(row[layout.duration] or b"", layout.unit)
                signature = layout, layout.signature(row)
                request = known.get(signature)
                if request is None:
                    request = known[signature] = layout.request(signature[1])
            except (ValueError, OverflowError, TypeError) as error:
                self._skip(line, number, error)
                continue
            found.append((at_ns, request, took_ns))
        self._lines += len(lines)
        return found

    def _skip(self, line: bytes, number: int, error: Exception) -> None:
        if not line.strip():
            return
        self.skipped += 1
        if len(self.errors) < _MAX_ERRORS:
            why = str(error) if isinstance(error, InvalidLineError) else "invalid"
            self.errors.append(f"line {number}: {why}"[:_LONGEST_ERROR])


class NginxLog(Format):
    """The common or combined log format of nginx and Apache."""

    name = "nginx"
    has_whole_seconds = True

    def __init__(self, headers: HeaderNames | None) -> None:
        super().__init__(headers)
        names = ("ip", "time", "request", "referer", "user-agent", "request-time")
        self._layout = Layout(names, headers)

    def split(self, line: bytes) -> tuple[Layout, Sequence[Any]]:
        found = _NGINX.match(line)
        if found is None:
            raise InvalidLineError("not a line of an nginx access log")
        address, time, request, rest = found.groups()
        after = _AFTER.match(rest)
        others = (None, None, None) if after is None else after.groups()
        return self._layout, (address, time, request.partition(b"?")[0], *others)


class EnvoyLog(Format):
    """The default log of Envoy."""

    name = "envoy"

    def __init__(self, headers: HeaderNames | None) -> None:
        super().__init__(headers)
        names = ("time", "request", "duration", "x-forwarded-for", "ip")
        self._layout = Layout((*names, "user-agent", "x-request-id", "host"), headers)

    def split(self, line: bytes) -> tuple[Layout, Sequence[Any]]:
        found = _ENVOY.match(line)
        if found is None:
            raise InvalidLineError("not a line of an Envoy access log")
        time, request, took, forwarded, *others = found.groups()
        before = forwarded.rpartition(b",")[0]
        return self._layout, (time, request.partition(b"?")[0], took, before, forwarded, *others)


class JsonLines(Format):
    """A JSON object for each request, with any set of names."""

    name = "jsonl"

    def __init__(self, headers: HeaderNames | None) -> None:
        super().__init__(headers)
        self._layouts: dict[tuple[str, ...], Layout] = {}

    def split(self, line: bytes) -> tuple[Layout, Sequence[Any]]:
        try:
            found = _decode(line.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise InvalidLineError("not JSON") from error
        if type(found) is not dict:
            raise InvalidLineError("not a JSON object")
        names = tuple(found)
        layout = self._layouts.get(names)
        if layout is None:
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            layout = self._layouts[names] = Layout(names, self._headers)
        row = list(found.values())
        if layout.nested is not None:
            row[layout.nested] = layout.flat(row[layout.nested])
        if type(row[layout.time]) not in (int, float):
            row[layout.time] = _bytes(row[layout.time])
        if layout.duration is not None:
            row[layout.duration] = _bytes(row[layout.duration])
        return layout, row


def _bytes(value: object) -> bytes:
    return b"" if value is None else str(value).encode("utf-8", "replace")


class Table(Format):
    """CSV with the header row *header*. Raises `InvalidLineError` if that does not name the time.

    If the time comes first and all other columns distinguish requests, the rest of a line is the
    signature, and few lines are split: a table is read in half the time.
    """

    name = "csv"

    def __init__(self, headers: HeaderNames | None, header: bytes) -> None:
        super().__init__(headers)
        self._delimiter = max(_DELIMITERS, key=header.count)
        names = [cell.decode("utf-8", "replace") for cell in self._cells(header)]
        self._width = len(names)
        self._layout = Layout(names, headers)
        self._lines = 1
        others = tuple(range(1, self._width))
        is_plain = self._layout.signature(range(self._width)) == others
        self._has_plain_rows = self._layout.time == 0 and bool(others) and is_plain

    def events(self, lines: list[bytes]) -> list[Event]:
        if self._has_plain_rows:
            try:
                found = self._plain_events(lines)
            except (ValueError, OverflowError):  # line by line, to find it
                return super().events(lines)
            self._lines += len(lines)
            return found
        return super().events(lines)

    def _plain_events(self, lines: list[bytes]) -> list[Event]:
        """The requests in *lines*. Raises `ValueError` if one is invalid."""
        texts, _, rests = zip(*[line.partition(self._delimiter) for line in lines], strict=True)
        known = self._known
        if len(known) >= _MAX_KNOWN:
            known.clear()
        for rest in set(rests).difference(known):
            layout, row = self.split(b"0" + self._delimiter + rest)
            known[rest] = layout.request(layout.signature(row))
        requests = map(known.__getitem__, rests)
        return list(zip(map(time_of, texts), requests, repeat(None)))

    def split(self, line: bytes) -> tuple[Layout, Sequence[Any]]:
        cells = self._cells(line)
        if len(cells) != self._width:
            raise InvalidLineError(
                f"{len(cells)} columns instead of the {self._width} of the header row"
            )
        return self._layout, [cell.strip() for cell in cells]

    def _cells(self, line: bytes) -> list[bytes]:
        if _QUOTE not in line:
            return line.split(self._delimiter)
        text = line.decode("utf-8", "surrogateescape")
        try:
            (cells,) = csv.reader([text], delimiter=self._delimiter.decode(), strict=True)
        except csv.Error as error:
            raise InvalidLineError(f"a quoted cell has no end: {error}") from error
        return [cell.encode("utf-8", "surrogateescape") for cell in cells]


def format_of(
    lines: Sequence[bytes], headers: HeaderNames | None, *, name: str, kind: str | None
) -> tuple[Format, int]:
    """The format of a trace that begins with *lines*, and the number of lines to skip.

    *kind* is the name of the format, if known; *name* that of the trace, for errors. Raises
    `TraceError` if the format is unknown.
    """
    first = next((place for place, line in enumerate(lines) if line.strip()), None)
    if first is None:
        raise TraceError(f"{name} is empty; {EXPECTED}")
    match kind or _detect(lines[first:][:_DETECTION_LINES]):
        case "csv":
            try:
                return Table(headers, lines[first]), first + 1
            except InvalidLineError as error:
                raise TraceError(f"{name} has no valid header row: {error}") from error
        case "jsonl":
            return JsonLines(headers), first
        case "nginx":
            return NginxLog(headers), first
        case "envoy":
            return EnvoyLog(headers), first
    raise TraceError(f"the format of {name} is unknown; {EXPECTED}")


def _detect(lines: Sequence[bytes]) -> str | None:
    for line in lines:
        if line.lstrip().startswith(b"{"):
            return "jsonl"
        if _NGINX.match(line):
            return "nginx"
        if _ENVOY.match(line):
            return "envoy"
    delimiter = max(_DELIMITERS, key=lines[0].count)
    cells = [cell.strip(b'" ').decode("utf-8", "replace") for cell in lines[0].split(delimiter)]
    return "csv" if any(map(is_time, cells)) else None
