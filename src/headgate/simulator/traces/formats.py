"""The base of all formats of traces, and the names of columns."""

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


class TraceError(HeadgateError, ValueError):
    """A trace that cannot be read, or has no valid line."""


class InvalidLineError(HeadgateError, ValueError):
    """An invalid line of a trace; others may be valid."""


_MAX_KNOWN: Final = 100_000
_MAX_ERRORS: Final = 3
_LONGEST_ERROR: Final = 200

Parsed = tuple[int, Any, "int | None"]
"""The time, the signature that distinguishes requests, and the duration."""


class Format(ABC):
    """A reader of the lines of a trace in their order. It counts invalid lines, and keeps the
    errors of the first few."""

    name: str
    has_whole_seconds = False
    """True if times are whole seconds, so that requests seem to come all at once."""

    def __init__(self) -> None:
        self.skipped = 0
        self.errors: list[str] = []
        self._lines = 0
        self._known: dict[Any, SimulatedRequest] = {}

    @abstractmethod
    def parse(self, line: bytes) -> Parsed:
        """Parse *line*. Raises `ValueError` or `OverflowError` if it is invalid."""

    @abstractmethod
    def request(self, signature: Any) -> SimulatedRequest:
        """Return the request of all lines with *signature*."""

    def events(self, lines: list[bytes]) -> list[Event]:
        """Return the requests in *lines*."""
        known, parse = self._known, self.parse
        found: list[Event] = []
        for place, line in enumerate(lines, start=self._lines + 1):
            try:
                at_ns, signature, took_ns = parse(line)
                asked = known.get(signature)
                if asked is None:
                    asked = self._new(signature)
            except (ValueError, OverflowError) as error:  # the latter for infinite numbers
                self._skip(line, place, error)
                continue
            found.append((at_ns, asked, took_ns))
        self._lines += len(lines)
        return found

    def _new(self, signature: Any) -> SimulatedRequest:
        asked = self.request(signature)
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[signature] = asked
        return asked

    def _skip(self, line: bytes, number: int, error: Exception) -> None:
        if not line.strip():
            return
        self.skipped += 1
        if len(self.errors) < _MAX_ERRORS:
            why = str(error) if isinstance(error, InvalidLineError) else "invalid"
            self.errors.append(f"line {number}: {why}"[:_LONGEST_ERROR])


# The meaning of columns and fields by their names.
#
# Names are compared in lower case, with `-` for `_`. Any other name is a header of the request;
# headers that the policies do not read are left out, so that more requests have one signature.


Role = Literal["time", "method", "path", "request", "ip", "cost", "took", "headers", "nothing"]
"""The meaning of a column: `request` is a whole line, `GET /path HTTP/1.1`; `headers` an object."""

Wanted = Mapping[str, str]
"""The headers that matter: their names by the possible names of their columns."""

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
    "duration": MILLISECOND,  # in Envoy
    "took-ms": MILLISECOND,
    "latency-ms": MILLISECOND,
    "duration-ms": MILLISECOND,
    "response-time-ms": MILLISECOND,
    "request-time-ms": MILLISECOND,
    "duration-us": MICROSECOND,
}
_HOSTS: Final = ("host", "authority", ":authority", "http-host", "server-name")
_VARIABLE: Final = "http-"  # the prefix of headers in nginx


def plain(name: str) -> str:
    """Return *name* in the form in which names are compared."""
    return name.strip().lower().replace("_", "-")


def role_of(name: str) -> Role | None:
    """Return the meaning of the column *name*; None for a header."""
    known = plain(name)
    return "took" if known in _UNITS else _BY_NAME.get(known)


def unit_of(name: str) -> int:
    """Return the nanoseconds in one unit of the column *name*, a duration."""
    return _UNITS[plain(name)]


def header_of(name: str, wanted: Wanted | None) -> str | None:
    """Return the header in the column *name*; None if no policy reads it. Without *wanted* all are
    returned."""
    known = plain(name)
    if wanted is None:
        return "host" if known in _HOSTS else known.removeprefix(_VARIABLE)
    return wanted.get(known) or wanted.get(known.removeprefix(_VARIABLE))


def wanted_by(policies: Iterable[Policy], columns: Mapping[str, str] | None = None) -> Wanted:
    """Return the headers that *policies* read by the names of their columns: the header's name, or
    that of the identity; *columns* are those with other names, by header."""
    wanted = dict.fromkeys(_HOSTS, "host")
    for policy in policies:
        wanted |= {plain(name): name for name in headers_of_interest(policy)}
        for name, source in policy.identity.sources.items():
            if source.header is not None:
                wanted.setdefault(plain(name), source.header)
    for header, column in (columns or {}).items():
        if not header or not column:
            raise TraceError(f"{header!r}={column!r} is not a header and its column")
        wanted[plain(column)] = header.lower()
    return wanted
