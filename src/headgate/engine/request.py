"""A request as rules see it: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Reads:
    """The parts that rules read of requests besides method, path, host and peer.

    *headers* are names in lower case, *attributes* names. `names` are the headers as ASGI spells
    them, `fields` with the host; `environ` as CGI does.
    """

    __slots__ = ("attributes", "environ", "fields", "headers", "names")

    def __init__(self, headers: frozenset[str], attributes: tuple[str, ...]) -> None:
        self.headers = headers
        self.attributes = attributes
        self.names = frozenset(name.encode("ascii") for name in headers)
        self.fields = self.names | {b"host"}
        names = {name.upper().replace("-", "_") for name in headers | {"host"}}
        self.environ = names | {f"HTTP_{name}" for name in names}


@dataclass(frozen=True, slots=True)
class Request:
    """A request and its sender.

    *path* is the raw path of the request target, without the query, as it was received. *headers*
    are lines in their order, names in any case, a name as often as it came. *peer* is the address
    of the other end of the connection, "" if there is none that says anything. *attributes* is for
    all else that a rule may look at: what a framework knows of the user, the entries of a
    descriptor.
    """

    method: str = "GET"
    path: str = "/"
    host: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    peer: str = ""
    attributes: Mapping[str, str] = field(default_factory=lambda: NOTHING)

    @property
    def knows_headers(self) -> bool:
        """True if `header` returns what the app reads, also of several lines. A request that is
        described to a service is read in every way in which an app may read it."""
        return False

    def cookies(self) -> Mapping[str, str] | None:
        """The cookies as the app reads them; None if that is not known."""
        return None

    def header_lines(self, name: str) -> list[str]:
        """The values of all lines of the header *name* (in lower case), in their order."""
        return [value for other, value in self.headers if other.lower() == name]

    def header(self, name: str) -> str | None:
        """The value of the header *name* (in lower case); of several lines the first."""
        for other, value in self.headers:
            if other.lower() == name:
                return value
        return None

    def parts(self, reads: Reads) -> tuple[Hashable, ...]:
        """The values of all that *reads* names, and the kind of the request.

        Rules that read nothing else cannot tell two requests with equal parts apart.
        """
        names = reads.headers
        lines = tuple([line for line in self.headers if line[0].lower() in names])
        found: tuple[Any, ...] = type(self), self.method, self.path, self.host, self.peer, lines
        return (*found, *self._attributes_read(reads)) if reads.attributes else found

    def _attributes_read(self, reads: Reads) -> list[Hashable]:
        attributes = self.attributes
        return [attributes.get(name) for name in reads.attributes]
