"""How the lines of a trace are written: what a format must be able to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from headgate.errors import HeadgateError
from headgate.policy.plan_cache import headers_of_interest
from headgate.units import MICROSECOND, MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.policy.model import Policy
    from headgate.simulator.traffic import Event, SimulatedRequest


# What is wrong with a trace: all of it, or single lines.


class TraceError(HeadgateError, ValueError):
    """A trace that cannot be read, or in which nothing is understood."""


class BrokenLineError(HeadgateError, ValueError):
    """A line that is not understood; the rest of the trace may well be."""


_MOST_KNOWN: Final = 100_000
_MOST_TOLD: Final = 3
_LONGEST_TOLD: Final = 200

Taken = tuple[int, Any, "int | None"]
"""When, what tells requests apart, and how long it took."""


class Format(ABC):
    """Reads the lines of a trace in their order. What is not understood is counted, and the first
    few of it are told."""

    name: str
    has_whole_seconds = False
    """Whether times are whole seconds, so that requests seem to come all at once."""

    def __init__(self) -> None:
        self.skipped = 0
        self.told: list[str] = []
        self._lines = 0
        self._known: dict[Any, SimulatedRequest] = {}

    @abstractmethod
    def take(self, line: bytes) -> Taken:
        """What is in *line*; `ValueError` or `OverflowError` if it is not understood."""

    @abstractmethod
    def asked(self, alike: Any) -> SimulatedRequest:
        """The request of the lines of which `take` gave *alike*."""

    def events(self, lines: list[bytes]) -> list[Event]:
        """The requests in *lines*."""
        known, take = self._known, self.take
        found: list[Event] = []
        for place, line in enumerate(lines, start=self._lines + 1):
            try:
                at_ns, alike, took_ns = take(line)
                asked = known.get(alike)
                if asked is None:
                    asked = self._new(alike)
            except (ValueError, OverflowError) as error:  # the latter for numbers without end
                self._skip(line, place, error)
                continue
            found.append((at_ns, asked, took_ns))
        self._lines += len(lines)
        return found

    def _new(self, alike: Any) -> SimulatedRequest:
        asked = self.asked(alike)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[alike] = asked
        return asked

    def _skip(self, line: bytes, number: int, error: Exception) -> None:
        if not line.strip():
            return
        self.skipped += 1
        if len(self.told) < _MOST_TOLD:
            why = str(error) if isinstance(error, BrokenLineError) else "it is not understood"
            self.told.append(f"line {number}: {why}"[:_LONGEST_TOLD])


# What the columns of a table or the fields of a log mean, by their names.
#
# Names are compared without case, `_` being `-`. Whatever is none of the things below is a header
# of the request; those that the policies do not look at are left out, so that requests look alike.


Role = Literal["time", "method", "path", "request", "ip", "cost", "took", "headers", "nothing"]
"""What a column is: `request` is a whole line, `GET /path HTTP/1.1`; `headers` has them nested."""

Wanted = Mapping[str, str]
"""Which headers matter: their names, by what a column with them may be called."""

_ROLES: Final[dict[Role, str]] = {
    "time": "time timestamp @timestamp ts at date datetime start-time time-local time-iso8601 msec",
    "method": "method request-method http-method verb :method",
    "path": "path uri url request-uri request-path request-url target :path "
    "x-envoy-original-path original-path",
    "request": "request request-line",
    "ip": "ip client-ip remote-addr remote-ip source-ip remote-address client address peer "
    "clientip downstream-remote-address downstream-remote-address-without-port",
    "cost": "cost",
    "headers": "headers request-headers",
    "nothing": "status response-code code",
}
_BY_NAME: Final = {name: role for role, names in _ROLES.items() for name in names.split()}
_UNITS: Final = {
    "took": SECOND,
    "request-time": SECOND,
    "response-time": SECOND,
    "latency": SECOND,
    "duration": MILLISECOND,  # as Envoy says it
    "took-ms": MILLISECOND,
    "latency-ms": MILLISECOND,
    "duration-ms": MILLISECOND,
    "response-time-ms": MILLISECOND,
    "request-time-ms": MILLISECOND,
    "duration-us": MICROSECOND,
}
_HOSTS: Final = ("host", "authority", ":authority", "http-host", "server-name")
_VARIABLE: Final = "http-"  # what nginx puts before the names of headers


def plain(name: str) -> str:
    """*name* as names are compared."""
    return name.strip().lower().replace("_", "-")


def role_of(name: str) -> Role | None:
    """What the column *name* is; None for a header."""
    known = plain(name)
    return "took" if known in _UNITS else _BY_NAME.get(known)


def unit_of(name: str) -> int:
    """The nanoseconds in one of what the column *name*, a duration, counts."""
    return _UNITS[plain(name)]


def header_of(name: str, wanted: Wanted | None) -> str | None:
    """Which header is in the column *name*; None if nobody looks at it. All are wanted if none are
    named."""
    known = plain(name)
    if wanted is None:
        return "host" if known in _HOSTS else known.removeprefix(_VARIABLE)
    return wanted.get(known) or wanted.get(known.removeprefix(_VARIABLE))


def wanted_by(policies: Iterable[Policy], columns: Mapping[str, str] | None = None) -> Wanted:
    """The headers that *policies* look at, and where they are: in columns named like them, or like
    what the identity calls them; *columns* are those that are called otherwise, by header."""
    wanted = dict.fromkeys(_HOSTS, "host")
    for policy in policies:
        wanted |= {plain(name): name for name in headers_of_interest(policy)}
        for name, source in policy.identity.sources.items():
            if source.header is not None:
                wanted.setdefault(plain(name), source.header)
    for header, column in (columns or {}).items():
        if not header or not column:
            raise TraceError(f"{header!r}={column!r} is no header and the column that it is in")
        wanted[plain(column)] = header.lower()
    return wanted
