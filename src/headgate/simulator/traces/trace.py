"""A trace as traffic: read line by line, put in order, however large it is.

Logs are written when requests end, so they are not quite in the order in which requests came. They
are put in order within a window; what is further out of place is taken at the time of those before
it, counted, and told. Access logs with whole seconds do not tell when in its second a request came:
those of a second are spread evenly over it.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.simulator.traces.detection import EXPECTED, FORMATS, format_of
from headgate.simulator.traces.files import Lines
from headgate.simulator.traces.names import wanted_by
from headgate.simulator.traces.problems import TraceError
from headgate.simulator.traffic import Traffic
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headgate.rules.model import Policy
    from headgate.simulator.traces.formats import Format
    from headgate.simulator.traces.names import Wanted
    from headgate.simulator.traffic import Event

WINDOW: Final = 50_000
"""Within how many requests those are put in order that are not."""

_time_of: Final = itemgetter(0)


def open_trace(
    path: str,
    *,
    policies: Iterable[Policy] = (),
    kind: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Trace:
    """The trace at *path*, plain or compressed, `-` for stdin.

    It is in the format *kind*, one of `FORMATS`, or that is found out. With *policies*, only the
    headers are read that these look at; *headers* says in which columns or fields they are, where
    these are not named like them. Raises `TraceError` if it cannot be read.
    """
    if kind is not None and kind not in FORMATS:
        raise OptionError(f"no format of traces: {kind!r}; expected {', '.join(FORMATS)}")
    policies = tuple(policies)
    wanted = wanted_by(policies, headers) if policies or headers else None
    return Trace(Lines(path), wanted, kind)


class Trace(Traffic):
    """The requests in *lines*: see `open_trace`."""

    def __init__(self, lines: Lines, wanted: Wanted | None, kind: str | None) -> None:
        self._lines = lines
        self._wanted = wanted
        self._kind = kind
        self._format: Format | None = None
        self._latest_ns = 0

    @property
    def share(self) -> float | None:
        return self._lines.share

    @property
    def notes(self) -> tuple[str, ...]:
        told = []
        if self.skipped and self._format is not None:
            first = "; ".join(self._format.told)
            more = "; ..." if self.skipped > len(self._format.told) else ""
            told.append(f"{self.skipped:,} lines of the trace were not understood: {first}{more}")
        if self.late:
            told.append(
                f"{self.late:,} requests were out of order by more than {WINDOW:,} lines: they "
                "were taken at the time of those before them"
            )
        if self._has_whole_seconds:
            told.append("the log has whole seconds: the requests of each were spread over it")
        return tuple(told)

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
            raise TraceError(self._why_nothing())

    def _events(self, lines: list[bytes]) -> list[Event]:
        reader = self._format
        if reader is None:
            reader, used = format_of(lines, self._wanted, name=self._lines.name, said=self._kind)
            self._format, lines = reader, lines[used:]
        events = reader.events(lines)
        self.skipped = reader.skipped
        return events

    def _ordered(self, held: list[Event], kept: int) -> tuple[list[Event], list[Event]]:
        """What of *held* can go on its way, in order; and the rest, about *kept*."""
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

    def _why_nothing(self) -> str:
        name, reader = self._lines.name, self._format
        if reader is None:
            return f"{name} is empty; {EXPECTED}"
        told = f", e.g. {reader.told[0]}" if reader.told else ""
        return f"nothing in {name} is understood as {reader.name}{told}; {EXPECTED}"


def _spread(batch: list[Event]) -> list[Event]:
    """The same with those of each second evenly spread over it."""
    spread: list[Event] = []
    for at_ns, group in groupby(batch, key=_time_of):
        those = list(group)
        count = len(those)
        spread += [
            (at_ns + place * SECOND // count, asked, took_ns)
            for place, (_, asked, took_ns) in enumerate(those)
        ]
    return spread
