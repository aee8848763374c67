"""Rows of named values, as tables and JSON have them, and the requests that they mean."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from headgate.simulator.traces.names import header_of, role_of, unit_of
from headgate.simulator.traces.problems import BrokenLineError
from headgate.simulator.traffic import Asked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.simulator.traces.names import Role, Wanted

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

    def asked(self, alike: tuple[Any, ...]) -> Asked:
        """The request of a row that *alike* is of."""
        method, target, request, ip, cost = [
            None if at is None else _text(alike[at]) for at in self._texts
        ]
        if request is not None and not (method and target):
            method, target = request_line(request)
        headers = [(name, text) for at, name in self._headers if (text := _text(alike[at]))]
        if "headers" in self._places:
            headers += alike[self._places["headers"]] or ()
        return Asked(
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
