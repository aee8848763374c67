"""The columns of a trace: what each means by its name, and the request that a row describes.

Names are compared in lower case, with `-` for `_`. Any name that is not known is a header of the
request; headers that the policies do not read are left out, so that more rows are the same request.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import HeadgateError
from headgate.policy.plan_cache import headers_of_interest
from headgate.simulator.traffic import ModelUse, SimulatedRequest
from headgate.units import MICROSECOND, MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headgate.policy.model import Policy

    HeaderNames = Mapping[str, str]
    """The headers that matter, by the possible names of their columns."""


class TraceError(HeadgateError, ValueError):
    """A trace that cannot be read, or has no valid line."""


class InvalidLineError(HeadgateError, ValueError):
    """An invalid line of a trace; others may be valid."""


_ROLES: Final = {
    "time": "time timestamp @timestamp ts at date datetime start-time time-local time-iso8601 msec",
    "method": "method request-method http-method verb :method",
    "path": "path uri url request-uri request-path request-url target :path "
    "x-envoy-original-path original-path",
    "request": "request request-line",  # GET /path HTTP/1.1
    "ip": "ip client-ip remote-addr remote-ip source-ip remote-address client address peer "
    "clientip downstream-remote-address downstream-remote-address-without-port",
    "cost": "cost",
    "model": "model",
    "prompt": "prompt-tokens input-tokens",
    "output": "output-tokens completion-tokens",
    "most": "max-tokens max-completion-tokens max-output-tokens",
    "headers": "headers request-headers",  # an object
    "duration": "took request-time response-time latency duration took-ms latency-ms duration-ms "
    "response-time-ms request-time-ms duration-us",
    "unused": "status response-code code",
}
_ROLE_OF: Final = {name: role for role, names in _ROLES.items() for name in names.split()}
_HOSTS: Final = ("host", "authority", ":authority", "http-host", "server-name")
_VARIABLE: Final = "http-"  # the prefix of headers in nginx
_REQUEST_ROLES: Final = (
    "method",
    "path",
    "request",
    "ip",
    "cost",
    "model",
    "prompt",
    "output",
    "most",
)
_MAX_DIGITS: Final = 15


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-")


def is_time(name: str) -> bool:
    """True if the column *name* has times."""
    return _ROLE_OF.get(_plain(name)) == "time"


def header_names(policies: Iterable[Policy], columns: Mapping[str, str]) -> HeaderNames:
    """The headers that *policies* read by the names of their columns: the header's name, or that of
    the identity; *columns* are those with other names, by header."""
    names = dict.fromkeys(_HOSTS, "host")
    for policy in policies:
        names |= {_plain(name): name for name in headers_of_interest(policy)}
        for name, source in policy.identity.sources.items():
            if source.header is not None:
                names.setdefault(_plain(name), source.header)
    for header, column in columns.items():
        if not header or not column:
            raise TraceError(f"{header!r}={column!r} is not a header and its column")
        names[_plain(column)] = header.lower()
    return names


def _header_of(name: str, headers: HeaderNames | None) -> str | None:
    """The header in the column *name*; None if no policy reads it."""
    known = _plain(name)
    if headers is None:
        return "host" if known in _HOSTS else known.removeprefix(_VARIABLE)
    return headers.get(known) or headers.get(known.removeprefix(_VARIABLE))


class Layout:
    """The places of values in a row of *names*; *headers* are those that matter, None for all.

    `signature` returns the values of a row that distinguish requests; `request` makes the request
    from them. Raises `InvalidLineError` if there is no time.
    """

    __slots__ = ("_headers", "_names", "_places", "duration", "nested", "signature", "time", "unit")

    def __init__(self, names: Sequence[str], headers: HeaderNames | None) -> None:
        first: dict[str, int] = {}
        own: list[tuple[int, str]] = []
        for place, name in enumerate(names):
            role = _ROLE_OF.get(_plain(name))
            if role is not None:
                first.setdefault(role, place)
            elif header := _header_of(name, headers):
                own.append((place, header))
        if "time" not in first:
            raise InvalidLineError("no time: expected a column time, timestamp, ts, ...")
        self.time = first["time"]
        self.nested = first.get("headers")
        self.duration = first.get("duration")
        self.unit = 0 if self.duration is None else _unit(_plain(names[self.duration]))
        kept = [*_REQUEST_ROLES, "headers"]
        used = sorted([*(first[one] for one in kept if one in first), *(at for at, _ in own)])
        self.signature: Callable[[Sequence[Any]], tuple[Any, ...]] = _getter(used)
        at = {place: number for number, place in enumerate(used)}
        self._places = {role: at[place] for role, place in first.items() if role in kept}
        self._headers = [(at[place], header) for place, header in own]
        self._names = headers

    def request(self, signature: tuple[Any, ...]) -> SimulatedRequest:
        """The request of the rows with *signature*."""
        places = [self._places.get(role) for role in _REQUEST_ROLES]
        texts = ["" if at is None else _text(signature[at]) for at in places]
        method, target, line, ip, cost, *call = texts
        if line and not (method and target):
            method, target = _request_line(line)
        headers = [(name, text) for at, name in self._headers if (text := _text(signature[at]))]
        if self.nested is not None:
            headers += signature[self._places["headers"]] or ()
        model, prompt, output, most = call
        use = None
        if prompt:
            tokens = [_whole(text, "tokens") if text else None for text in (output, most)]
            use = ModelUse(model.lower() or None, _whole(prompt, "tokens"), *tokens)
        return SimulatedRequest(
            (method or ("GET" if use is None else "POST")).upper(),
            _path(target or "/"),
            tuple(headers),
            _address(ip),
            _whole(cost, "cost") if cost else None,
            use,
        )

    def flat(self, headers: object) -> tuple[tuple[str, str], ...]:
        """Those of the nested *headers* that matter."""
        if not isinstance(headers, dict):
            return ()
        return tuple(
            (name, _text(value))
            for column, values in headers.items()
            if (name := _header_of(column, self._names)) is not None
            for value in (values if isinstance(values, list) else (values,))
        )


def _unit(name: str) -> int:
    """The nanoseconds in one unit of the column *name*, a duration."""
    if name.endswith("-us"):
        return MICROSECOND
    return MILLISECOND if name.endswith("-ms") or name == "duration" else SECOND  # as in Envoy


def _getter(places: list[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    if not places:
        return lambda _: ()
    if len(places) == 1:
        place = places[0]
        return lambda row: (row[place],)
    return itemgetter(*places)


def _text(value: object) -> str:
    """*value* as text; `-` stands for nothing in logs."""
    if isinstance(value, bytes):
        text = value.decode("utf-8", "surrogateescape").strip()
        return "" if text == "-" else text
    return "" if value is None else str(value)


def _request_line(text: str) -> tuple[str, str]:
    """Method and target of `GET /path HTTP/1.1`."""
    parts = text.split(" ")
    if len(parts) < 2 or not parts[0].isalpha() or not parts[1]:
        raise InvalidLineError(f"invalid request {text[:60]!a}")
    return parts[0], parts[1]


def _path(target: str) -> str:
    """The path of a target, without query, scheme and host."""
    path = target.partition("?")[0].partition("#")[0]
    if not path.startswith("/"):
        _, is_url, rest = path.partition("://")
        path = f"/{rest.partition('/')[2]}" if is_url else path
    return path or "/"


def _address(text: str) -> str:
    """The address in *text*, of several the last, without a port."""
    address = text.rpartition(",")[2].strip()
    if address == "-":
        return ""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


def _whole(text: str, what: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS:
        return int(text)
    raise InvalidLineError(f"the {what} {text[:40]!a} is not a whole number")
