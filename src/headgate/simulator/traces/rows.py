"""Tables and JSON lines: rows of named values."""

from __future__ import annotations

import csv
import json
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, cast

from headgate.simulator.traces.formats import Format, InvalidLineError, header_of, role_of, unit_of
from headgate.simulator.traces.times import all_seconds, epoch, reader_of, seconds, took_ns
from headgate.simulator.traffic import SimulatedRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.simulator.traces.formats import Parsed, Role, Wanted
    from headgate.simulator.traces.times import TimeReader
    from headgate.simulator.traffic import Event


_MAX_DIGITS: Final = 15


class Layout:
    """The places of values in a row of *names*. Raises `InvalidLineError` if there is no time.

    `signature` returns the values of a row that distinguish requests; `request` makes the request
    from them.
    """

    __slots__ = (
        "_headers",
        "_nested",
        "_places",
        "_texts",
        "nested",
        "signature",
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
            raise InvalidLineError("no time: expected a column time, timestamp, ts, ...")
        self.time = roles.index("time")
        self.took = roles.index("took") if "took" in roles else None
        self.unit_ns = 0 if self.took is None else unit_of(names[self.took])
        self.nested = roles.index("headers") if "headers" in roles else None
        asked: tuple[Role, ...] = ("method", "path", "request", "ip", "cost", "headers")
        used = [place for place, role in enumerate(roles) if role in asked or headers[place]]
        used = [place for place in used if roles.index(roles[place]) == place or headers[place]]
        self.signature: Callable[[Sequence[Any]], tuple[Any, ...]] = _getter(used)
        self._places: dict[Role | None, int] = {
            role: at for at, place in enumerate(used) if (role := roles[place]) is not None
        }
        texts: tuple[Role, ...] = ("method", "path", "request", "ip", "cost")
        self._texts = [self._places.get(role) for role in texts]
        self._headers = [(at, name) for at, place in enumerate(used) if (name := headers[place])]
        self._nested = wanted

    def request(self, signature: tuple[Any, ...]) -> SimulatedRequest:
        """Return the request of the rows with *signature*."""
        method, target, request, ip, cost = [
            None if at is None else _text(signature[at]) for at in self._texts
        ]
        if request is not None and not (method and target):
            method, target = request_line(request)
        headers = [(name, text) for at, name in self._headers if (text := _text(signature[at]))]
        if "headers" in self._places:
            headers += signature[self._places["headers"]] or ()
        return SimulatedRequest(
            (method or "GET").upper(),
            path_of(target or "/"),
            tuple(headers),
            address_of(ip or ""),
            whole_number(cost) if cost else None,
        )

    def flat(self, headers: object) -> tuple[tuple[str, str], ...]:
        """Return those of the nested headers that the policies read."""
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
    """Return method and target of `GET /path HTTP/1.1`."""
    parts = text.split(" ")
    if len(parts) < 2 or not parts[0].isalpha() or not parts[1]:
        raise InvalidLineError(f"invalid request {text[:60]!a}")
    return parts[0], parts[1]


def path_of(target: str) -> str:
    """Return the path of a target, without query, scheme and host."""
    path = target.partition("?")[0].partition("#")[0]
    if not path.startswith("/"):
        _, is_url, rest = path.partition("://")
        path = f"/{rest.partition('/')[2]}" if is_url else path
    return path or "/"


def address_of(text: str) -> str:
    """Return the address in *text*, of several the last, without a port."""
    address = text.rpartition(",")[2].strip()
    if address in {"", "-"}:
        return ""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


def whole_number(text: str) -> int:
    """Return *text* as a cost."""
    if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS:
        return int(text)
    raise InvalidLineError(f"the cost {text[:40]!a} is not a whole number")


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


_MAX_LAYOUTS: Final = 256
_decode: Final = json.JSONDecoder().decode


class JsonLines(Format):
    """A JSON object for each request, with any set of names."""

    name = "jsonl"

    def __init__(self, wanted: Wanted | None) -> None:
        super().__init__()
        self._wanted = wanted
        self._layouts: dict[tuple[str, ...], Layout] = {}
        self._when: TimeReader | None = None

    def parse(self, line: bytes) -> Parsed:
        try:
            found = _decode(line.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise InvalidLineError("not JSON") from error
        if type(found) is not dict:
            raise InvalidLineError("not a JSON object")
        names = tuple(found)
        layout = self._layouts.get(names) or self._new_layout(names)
        row = list(found.values())
        if layout.nested is not None:
            row[layout.nested] = layout.flat(row[layout.nested])
        took = None
        if layout.took is not None:
            took = took_ns(_bytes(row[layout.took]), layout.unit_ns)
        try:
            signature = layout, layout.signature(row)
            hash(signature)
        except TypeError as error:
            raise InvalidLineError("a list or an object instead of text") from error
        return self._at(row[layout.time]), signature, took

    def request(self, signature: Any) -> SimulatedRequest:
        layout, values = signature
        found: SimulatedRequest = layout.request(values)
        return found

    def _new_layout(self, names: tuple[str, ...]) -> Layout:
        if len(self._layouts) >= _MAX_LAYOUTS:
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


_DELIMITERS: Final = (b",", b"\t", b";")
_QUOTE: Final = b'"'


class Table(Format):
    """CSV with the header row *header*, also with semicolons or tabs. Raises `InvalidLineError` if
    the row does not name the time."""

    name = "csv"

    def __init__(self, header: bytes, wanted: Wanted | None) -> None:
        super().__init__()
        self._delimiter = max(_DELIMITERS, key=header.count)
        self._names = [cell.decode("utf-8", "replace") for cell in self._cells(header)]
        self._layout = Layout(self._names, wanted)
        self._when: TimeReader | None = None
        self._lines = 1
        self._is_simple = self._has_time_first()

    def events(self, lines: list[bytes]) -> list[Event]:
        """Return the requests in *lines*. If the time comes first and all other columns distinguish
        requests, the rest of a line is the signature, and few lines are split."""
        if self._is_simple and self._when is not None:
            try:
                found = self._all_events(lines, self._when)
            except (ValueError, OverflowError):  # line by line, to find it
                found = None
            if found is not None:
                self._lines += len(lines)
                return found
        return super().events(lines)

    def _all_events(self, lines: list[bytes], when: TimeReader) -> list[Event]:
        """Return the requests in *lines*, in loops outside Python. Raises `ValueError` if one is
        invalid."""
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

    def parse(self, line: bytes) -> Parsed:
        if self._is_simple and line.startswith(_QUOTE):  # a quoted time
            self._is_simple = False
        if self._is_simple:
            text, _, rest = line.partition(self._delimiter)
            return (self._when or self._begin(text))(text), rest, None
        row = self._row(line)
        layout = self._layout
        text = row[layout.time].strip()
        when = self._when or self._begin(text)
        took = None if layout.took is None else took_ns(row[layout.took], layout.unit_ns)
        return when(text), layout.signature(row), took

    def request(self, signature: Any) -> SimulatedRequest:
        if self._is_simple:
            signature = self._layout.signature(self._row(self._delimiter + signature))
        return self._layout.request(signature)

    def _has_time_first(self) -> bool:
        """Return True if the time comes first, and all other columns distinguish requests."""
        layout, places = self._layout, range(len(self._names))
        others = tuple(places)[1:]
        return layout.time == 0 and bool(others) and layout.signature(places) == others

    def _begin(self, text: bytes) -> TimeReader:
        self._when = reader_of(text)
        return self._when

    def _row(self, line: bytes) -> Sequence[bytes]:
        cells = self._cells(line)
        if len(cells) != len(self._names):
            raise InvalidLineError(
                f"{len(cells)} columns instead of the {len(self._names)} of the header row"
            )
        return cells

    def _cells(self, line: bytes) -> list[bytes]:
        if _QUOTE not in line:
            return line.split(self._delimiter)
        text = line.decode("utf-8", "surrogateescape")
        try:
            (cells,) = csv.reader([text], delimiter=self._delimiter.decode(), strict=True)
        except csv.Error as error:
            raise InvalidLineError(f"a quoted cell has no end: {error}") from error
        return [cell.encode("utf-8", "surrogateescape") for cell in cells]


def is_header(line: bytes) -> bool:
    """Return True if *line* names columns, the time among them."""
    delimiter = max(_DELIMITERS, key=line.count)
    cells = [cell.strip(b'" ').decode("utf-8", "replace") for cell in line.split(delimiter)]
    return any(role_of(cell) == "time" for cell in cells)
