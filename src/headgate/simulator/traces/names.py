"""What the columns of a table or the fields of a log mean, by their names.

Names are compared without case, `_` being `-`. Whatever is none of the things below is a header of
the request; those that the policies do not look at are left out, so that requests look alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

from headgate.engine.interest import headers_of_interest
from headgate.simulator.traces.problems import TraceError
from headgate.units import MICROSECOND, MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.rules.model import Policy

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
