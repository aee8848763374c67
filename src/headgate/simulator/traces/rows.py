"""Rows of named values, as tables and JSON have them, and the requests that they mean."""

from __future__ import annotations

import csv
import json
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, cast

from headgate.simulator.traces.formats import BrokenLineError, Format, header_of, role_of, unit_of
from headgate.simulator.traces.times import all_seconds, epoch, reader_of, seconds, took_ns
from headgate.simulator.traffic import SimulatedRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.simulator.traces.formats import Role, Taken, Wanted
    from headgate.simulator.traces.times import When
    from headgate.simulator.traffic import Event


_MOST_DIGITS: Final = 15


class Layout:
    """Where in a row of *names* is what. `BrokenLineError` if there is no time among them.

    `alike` gives what of a row tells requests apart, to be remembered by; `asked` makes the request
    of that.
    """

    __slots__ = (
        "_headers",
        "_nested",
        "_places",
        "_texts",
        "alike",
        "nested",
        "time",
        "took",
        "unit_ns",
    )

    def __init__(self, names: Sequence[str], wanted: Wanted | None) -> None:
        roles = [role_of(name) for name in names]
        headers = [
            header_of(name, wanted) if role is None else None
            for name, role in zip(names, roles, strict=True)
        ]
        if "time" not in roles:
            raise BrokenLineError("there is no time: expected one of time, timestamp, ts, ...")
        self.time = roles.index("time")
        self.took = roles.index("took") if "took" in roles else None
        self.unit_ns = 0 if self.took is None else unit_of(names[self.took])
        self.nested = roles.index("headers") if "headers" in roles else None
        asked: tuple[Role, ...] = ("method", "path", "request", "ip", "cost", "headers")
        used = [place for place, role in enumerate(roles) if role in asked or headers[place]]
        used = [place for place in used if roles.index(roles[place]) == place or headers[place]]
        self.alike: Callable[[Sequence[Any]], tuple[Any, ...]] = _getter(used)
        self._places: dict[Role | None, int] = {
            role: at for at, place in enumerate(used) if (role := roles[place]) is not None
        }
        texts: tuple[Role, ...] = ("method", "path", "request", "ip", "cost")
        self._texts = [self._places.get(role) for role in texts]
        self._headers = [(at, name) for at, place in enumerate(used) if (name := headers[place])]
        self._nested = wanted

    def asked(self, alike: tuple[Any, ...]) -> SimulatedRequest:
        """The request of a row that *alike* is of."""
        method, target, request, ip, cost = [
            None if at is None else _text(alike[at]) for at in self._texts
        ]
        if request is not None and not (method and target):
            method, target = request_line(request)
        headers = [(name, text) for at, name in self._headers if (text := _text(alike[at]))]
        if "headers" in self._places:
            headers += alike[self._places["headers"]] or ()
        return SimulatedRequest(
            (method or "GET").upper(),
            path_of(target or "/"),
            tuple(headers),
            address_of(ip or ""),
            whole_number(cost) if cost else None,
        )

    def flat(self, headers: object) -> tuple[tuple[str, str], ...]:
        """Nested headers as lines: those that are looked at."""
        if not isinstance(headers, dict):
            return ()
        found = [(header_of(name, self._nested), value) for name, value in headers.items()]
        return tuple(
            [
                (name, _text(one))
                for name, value in found
                if name is not None
                for one in (value if isinstance(value, list) else (value,))
            ]
        )


def request_line(text: str) -> tuple[str, str]:
    """Method and target of `GET /path HTTP/1.1`."""
    parts = text.split(" ")
    if len(parts) < 2 or not parts[0].isalpha() or not parts[1]:
        raise BrokenLineError(f"the request {text[:60]!a} is none")
    return parts[0], parts[1]


def path_of(target: str) -> str:
    """The path of a target: without query, scheme and host."""
    path = target.partition("?")[0].partition("#")[0]
    if not path.startswith("/"):
        _, is_url, rest = path.partition("://")
        path = f"/{rest.partition('/')[2]}" if is_url else path
    return path or "/"


def address_of(text: str) -> str:
    """The address in *text*, of several the last, without a port."""
    address = text.rpartition(",")[2].strip()
    if address in {"", "-"}:
        return ""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


def whole_number(text: str) -> int:
    """*text* as a cost."""
    if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS:
        return int(text)
    raise BrokenLineError(f"the cost {text[:40]!a} is no whole number")


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape").strip()
    return "" if value is None else str(value)


def _getter(places: list[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    if not places:
        return lambda _: ()
    if len(places) == 1:
        place = places[0]
        return lambda row: (row[place],)
    return itemgetter(*places)


# JSON lines: an object for each request, as programs and gateways write them.


_MOST_SHAPES: Final = 256
_decode: Final = json.JSONDecoder().decode


class JsonLines(Format):
    """Objects; not all need have the same names."""

    name = "jsonl"

    def __init__(self, wanted: Wanted | None) -> None:
        super().__init__()
        self._wanted = wanted
        self._layouts: dict[tuple[str, ...], Layout] = {}
        self._when: When | None = None

    def take(self, line: bytes) -> Taken:
        try:
            found = _decode(line.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise BrokenLineError("it is no JSON") from error
        if type(found) is not dict:
            raise BrokenLineError("it is no JSON object")
        names = tuple(found)
        layout = self._layouts.get(names) or self._new_layout(names)
        row = list(found.values())
        if layout.nested is not None:
            row[layout.nested] = layout.flat(row[layout.nested])
        took = None
        if layout.took is not None:
            took = took_ns(_bytes(row[layout.took]), layout.unit_ns)
        try:
            alike = layout, layout.alike(row)
            hash(alike)
        except TypeError as error:
            raise BrokenLineError("it has lists or objects where texts were expected") from error
        return self._at(row[layout.time]), alike, took

    def asked(self, alike: Any) -> SimulatedRequest:
        layout, values = alike
        found: SimulatedRequest = layout.asked(values)
        return found

    def _new_layout(self, names: tuple[str, ...]) -> Layout:
        if len(self._layouts) >= _MOST_SHAPES:
            self._layouts.clear()
        layout = self._layouts[names] = Layout(names, self._wanted)
        return layout

    def _at(self, value: object) -> int:
        if type(value) is float or type(value) is int:
            return epoch(value)
        text = _bytes(value)
        if self._when is None:
            self._when = reader_of(text)
        return self._when(text)


def _bytes(value: object) -> bytes:
    return b"" if value is None else str(value).encode("utf-8", "replace")


# Tables: CSV with a header row, also with semicolons or tabs.


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
        return list(zip(times, cast("list[SimulatedRequest]", known), repeat(None)))

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

    def asked(self, alike: Any) -> SimulatedRequest:
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
