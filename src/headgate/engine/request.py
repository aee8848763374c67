"""A request as rules see it: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


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

    def header_lines(self, name: str) -> list[str]:
        """The values of all lines of the header *name* (in lower case), in their order."""
        return [value for other, value in self.headers if other.lower() == name]

    def header(self, name: str) -> str | None:
        """The value of the header *name* (in lower case); of several lines the first."""
        for other, value in self.headers:
            if other.lower() == name:
                return value
        return None
