"""A request that is read as far as it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from headgate.engine.request import NOTHING, Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.engine.request import Reads

LOCAL: str = "127.0.0.1"
"""The peer on a Unix socket: it is on this machine. A proxy there is trusted by this address."""

_AS_THEY_ARE = "/!$&'()*+,=:@~"


write: Final = object.__setattr__
"""Sets a slot of a request, which is frozen otherwise."""


class LazyRequest(Request):
    """A `Request` whose parts are found by its subclass when they are first asked for."""

    __slots__ = ("_attributes", "_headers", "_path")

    _attributes: Mapping[str, str]
    _headers: tuple[tuple[str, str], ...] | None
    _path: str | None

    def __init__(self) -> None:
        write(self, "_attributes", NOTHING)
        write(self, "_headers", None)
        write(self, "_path", None)

    def _set(self, name: str, value: object) -> None:
        write(self, name, value)  # what is read on demand is not a change

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """The lines of the header."""
        found = self._headers
        if found is None:
            found = self._read_headers()
            self._set("_headers", found)
        return found

    @property
    def path(self) -> str:
        """The path as the app sees it, percent-encoded."""
        found = self._path
        if found is None:
            found = encoded(self._read_path())
            self._set("_path", found)
        return found

    @property
    def attributes(self) -> Mapping[str, str]:
        """What else is known: `route`, if a framework knows it, and what an app adds."""
        return self._attributes

    def add_attributes(self, attributes: Mapping[str, str]) -> None:
        """Say more of the request, before it is asked about."""
        self._set("_attributes", {**self._attributes, **attributes})

    def _read_headers(self) -> tuple[tuple[str, str], ...]:
        raise NotImplementedError

    def _read_path(self) -> str | bytes:
        raise NotImplementedError


def encoded(path: str | bytes) -> str:
    """*path*, which was decoded, as it may stand in a request again."""
    if isinstance(path, bytes):
        return quote(path, safe=_AS_THEY_ARE)
    return quote(path, safe=_AS_THEY_ARE, errors="surrogatepass")


def environ_lines(environ: Mapping[str, object], reads: Reads) -> list[tuple[str, object]]:
    """Those entries of a CGI environment that are headers which *reads* names."""
    names = reads.environ
    return [one for one in environ.items() if one[0].upper().replace("-", "_") in names]
