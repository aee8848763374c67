"""A view of a framework's request, which reads its parts on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headgate.engine.request import NOTHING, Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.engine.request import Reads

LOCAL: str = "127.0.0.1"
"""The peer on a Unix socket: it is on this machine. A proxy there is trusted by this address."""

_AS_THEY_ARE = "/!$&'()*+,=:@~"


class RequestView(Request):
    """A `Request` whose parts are read by its subclass when they are first needed."""

    __slots__ = ("_attributes", "_headers", "_path")

    method: str
    peer: str
    _attributes: Mapping[str, str]
    _headers: tuple[tuple[str, str], ...] | None
    _path: str | None

    # The parts are no fields that `Request` sets once: they are read later. Both, as they share a
    # slot of the type: without the second, each assignment takes 80 ns more.
    __setattr__: Any = object.__setattr__
    __delattr__: Any = object.__delattr__

    def __init__(self, method: str, peer: str) -> None:
        self.method = method
        self.peer = peer
        self._attributes = NOTHING
        self._headers = self._path = None

    @property
    def knows_headers(self) -> bool:
        """True: `header` returns what the app reads."""
        return True

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """The lines of the header."""
        found = self._headers
        if found is None:
            found = self._headers = self._read_headers()
        return found

    @property
    def host(self) -> str:
        """The `Host` header, unchecked."""
        return self.header("host") or ""

    @property
    def path(self) -> str:
        """The path as the app sees it, percent-encoded."""
        found = self._path
        if found is None:
            found = self._path = encoded(self._read_path())
        return found

    @property
    def attributes(self) -> Mapping[str, str]:
        """Further values: `route`, if a framework knows it, and those that an app adds."""
        return self._attributes

    def add_attributes(self, attributes: Mapping[str, str]) -> None:
        """Add *attributes*, before the request is checked."""
        self._attributes = {**self._attributes, **attributes}

    def _read_headers(self) -> tuple[tuple[str, str], ...]:
        raise NotImplementedError

    def _read_path(self) -> str | bytes:
        raise NotImplementedError


def encoded(path: str | bytes) -> str:
    """*path*, which was decoded, percent-encoded again."""
    if isinstance(path, bytes):
        return quote(path, safe=_AS_THEY_ARE)
    return quote(path, safe=_AS_THEY_ARE, errors="surrogatepass")


def environ_lines(environ: Mapping[str, object], reads: Reads) -> list[tuple[str, object]]:
    """The entries of a CGI environment for the headers in *reads*."""
    names = reads.environ
    return [one for one in environ.items() if one[0].upper().replace("-", "_") in names]
