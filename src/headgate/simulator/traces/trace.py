"""A trace as traffic: read line by line and sorted by time, of any size.

Servers log requests when they end, so lines are not quite in the order of their times. They are
sorted within a window; a line further out of place counts at the time of those before it, and a
note says so. The requests of logs with whole seconds are spread evenly over their second.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import sys
import zlib
from bisect import bisect_left
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

from headgate.errors import OptionError
from headgate.simulator.traces.columns import TraceError, header_names
from headgate.simulator.traces.formats import EXPECTED, FORMATS, format_of
from headgate.simulator.traffic import Traffic
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from io import BufferedReader

    from headgate.policy.model import Policy
    from headgate.simulator.traces.columns import HeaderNames
    from headgate.simulator.traces.formats import Format
    from headgate.simulator.traffic import Event

    Opener = Callable[[IO[bytes]], IO[bytes]]

STDIN: Final = "-"
LONGEST_LINE: Final = 1 << 20
"""The bytes of a line, at most."""

_CHUNK: Final = 1 << 18
_MAGIC: Final[tuple[tuple[bytes, Opener], ...]] = (
    (b"\x1f\x8b", lambda file: cast("IO[bytes]", gzip.GzipFile(fileobj=file))),
    (b"\xfd7zXZ\x00", lambda file: cast("IO[bytes]", lzma.LZMAFile(file))),  # noqa: SIM115
    (b"BZh", lambda file: cast("IO[bytes]", bz2.BZ2File(file))),
)
_UNREADABLE: Final = (OSError, EOFError, lzma.LZMAError, zlib.error)
_MARK: Final = b"\xef\xbb\xbf"  # the byte order mark of UTF-8


class Lines:
    """The lines at *path*, `-` for stdin, plain or compressed, without their ends.

    Raises `TraceError` if they cannot be read.
    """

    def __init__(self, path: str) -> None:
        self.name = "<stdin>" if path == STDIN else path
        try:
            raw = sys.stdin.buffer if path == STDIN else Path(path).open("rb")  # noqa: SIM115
            self._raw = cast("BufferedReader", raw)
            self._size = _size(self._raw)
            start = self._raw.peek(8)
        except (OSError, AttributeError) as error:  # there may be no stdin at all
            why = getattr(error, "strerror", None) or "closed"
            raise TraceError(f"cannot read {self.name}: {why}") from error
        opener = next((one for magic, one in _MAGIC if start.startswith(magic)), None)
        self._file: IO[bytes] = self._raw if opener is None else opener(self._raw)

    @property
    def share(self) -> float | None:
        """The share that was read, from 0 to 1; None if unknown, as for a pipe."""
        if self._size is None:
            return None
        return 1.0 if self._raw.closed else min(1.0, self._raw.tell() / self._size)

    def chunks(self) -> Iterator[list[bytes]]:
        """Yield all lines in chunks. One that is too long is cut into several."""
        rest, is_first = b"", True
        try:
            while data := self._file.read(_CHUNK):
                if is_first:
                    data, is_first = data.removeprefix(_MARK), False
                data = rest + data
                if b"\r" in data:
                    data = data.replace(b"\r\n", b"\n")
                lines = data.split(b"\n")
                rest = lines.pop()
                if len(rest) > LONGEST_LINE:
                    lines.append(rest)
                    rest = b""
                if lines:
                    yield lines
        except _UNREADABLE as error:
            why = getattr(error, "strerror", None) or error
            raise TraceError(f"cannot read {self.name}: {why}") from error
        finally:
            if self._raw is not sys.stdin.buffer:
                self._raw.close()
        if rest:
            yield [rest]


def _size(file: BufferedReader) -> int | None:
    """Return the size of *file* in bytes, if known."""
    try:
        status = os.fstat(file.fileno())
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) and status.st_size else None


WINDOW: Final = 50_000
"""The number of requests among which lines are sorted."""

_time_of: Final = itemgetter(0)


def open_trace(
    path: str,
    *,
    policies: Iterable[Policy] = (),
    kind: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Trace:
    """Open the trace at *path*, plain or compressed, `-` for stdin.

    *kind* is its format, one of `FORMATS`; it is detected if None. With *policies*, only the
    headers are read that these use; *headers* names the columns of headers with other names. Raises
    `TraceError` if it cannot be read.
    """
    if kind is not None and kind not in FORMATS:
        raise OptionError(f"unknown format {kind!r}; expected one of {', '.join(FORMATS)}")
    policies = tuple(policies)
    names = header_names(policies, headers or {}) if policies or headers else None
    return Trace(Lines(path), names, kind)


class Trace(Traffic):
    """The requests in *lines*: see `open_trace`."""

    def __init__(self, lines: Lines, headers: HeaderNames | None, kind: str | None) -> None:
        self._lines = lines
        self._headers = headers
        self._kind = kind
        self._format: Format | None = None
        self._latest_ns = 0

    @property
    def share(self) -> float | None:
        return self._lines.share

    @property
    def notes(self) -> tuple[str, ...]:
        notes = []
        if self.skipped and self._format is not None:
            first = "; ".join(self._format.errors)
            more = "; ..." if self.skipped > len(self._format.errors) else ""
            notes.append(f"{self.skipped:,} lines of the trace are invalid: {first}{more}")
        if self.late:
            notes.append(
                f"{self.late:,} requests were out of order by more than {WINDOW:,} lines: they "
                "count at the time of those before them"
            )
        if self._has_whole_seconds:
            notes.append("the log has whole seconds: the requests of each were spread over it")
        return tuple(notes)

    def batches(self) -> Iterator[list[Event]]:
        held: list[Event] = []
        is_empty = True
        for chunk in self._lines.chunks():
            held += self._events(chunk)
            if len(held) >= 2 * WINDOW:
                batch, held = self._ordered(held, WINDOW)
                is_empty = False
                yield batch
        batch, _ = self._ordered(held, 0)
        if batch:
            yield batch
        elif is_empty:
            raise TraceError(self._no_requests())

    def _events(self, lines: list[bytes]) -> list[Event]:
        reader = self._format
        if reader is None:
            name = self._lines.name
            reader, used = format_of(lines, self._headers, name=name, kind=self._kind)
            self._format, lines = reader, lines[used:]
        events = reader.events(lines)
        self.skipped = reader.skipped
        return events

    def _ordered(self, held: list[Event], kept: int) -> tuple[list[Event], list[Event]]:
        """Sort *held*, and split it: the requests to yield, and about *kept* to hold back."""
        held.sort(key=_time_of)
        cut = len(held) - kept
        if kept and self._has_whole_seconds:  # a second is spread as a whole
            cut = bisect_left(held, held[cut][0], key=_time_of) or cut
        batch = held[:cut]
        if batch:
            self.late += bisect_left(batch, self._latest_ns, key=_time_of)
            self._latest_ns = max(self._latest_ns, batch[-1][0])
        return _spread(batch) if self._has_whole_seconds else batch, held[cut:]

    @property
    def _has_whole_seconds(self) -> bool:
        return self._format is not None and self._format.has_whole_seconds

    def _no_requests(self) -> str:
        name, reader = self._lines.name, self._format
        if reader is None:
            return f"{name} is empty; {EXPECTED}"
        example = f", e.g. {reader.errors[0]}" if reader.errors else ""
        return f"no line of {name} is valid {reader.name}{example}; {EXPECTED}"


def _spread(batch: list[Event]) -> list[Event]:
    """Spread the requests of each second evenly over it."""
    spread: list[Event] = []
    for at_ns, group in groupby(batch, key=_time_of):
        those = list(group)
        count = len(those)
        spread += [
            (at_ns + place * SECOND // count, request, took_ns)
            for place, (_, request, took_ns) in enumerate(those)
        ]
    return spread
