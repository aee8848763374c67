"""A WSGI environ as a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.enforcement.lazy import LOCAL, LazyRequest

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

    from headgate.enforcement.passage import Passage

PASSAGE: Final = "headgate"
"""Where in an environ the passage of its request is."""

_UNIX: Final = frozenset({"", "<local>", "localhost", "unix:"})
"""How servers call the peer on a Unix socket: gunicorn, Werkzeug, waitress, nginx."""

_APART: Final = {"content-type": "CONTENT_TYPE", "content-length": "CONTENT_LENGTH"}
"""The headers that WSGI keeps under names of their own."""


class WsgiRequest(LazyRequest):
    """The request that *environ* is about. The environ is there for whoever needs what a server or
    a framework put in it: `request.environ["REMOTE_USER"]`."""

    __slots__ = ("environ",)

    def __init__(self, environ: WSGIEnvironment) -> None:
        super().__init__()
        self._set("environ", environ)

    environ: WSGIEnvironment

    @property
    def method(self) -> str:
        """The method."""
        return str(self.environ.get("REQUEST_METHOD", "GET")).upper()

    @property
    def host(self) -> str:
        """What the client takes the server for."""
        return self.header("host") or ""

    @property
    def peer(self) -> str:
        """The address of the other end of the connection."""
        address = str(self.environ.get("REMOTE_ADDR", ""))
        return LOCAL if address in _UNIX else address

    def header(self, name: str) -> str | None:
        """The value of the header *name* (in lower case); of several lines all, joined by commas.

        A name with an underscore is never found: WSGI does not tell it from one with a dash.
        """
        if "_" in name:
            return None
        apart = _APART.get(name)
        if apart is not None:
            return self.environ.get(apart) or None
        value: str | None = self.environ.get(f"HTTP_{name.upper().replace('-', '_')}")
        return value

    def _read_headers(self) -> tuple[tuple[str, str], ...]:
        lines = [
            (name, str(value))
            for key, value in self.environ.items()
            if key.startswith("HTTP_") and (name := key[5:].lower().replace("_", "-")) not in _APART
        ]
        lines += [(name, value) for name in _APART if (value := self.header(name)) is not None]
        return tuple(lines)

    def _read_path(self) -> bytes:
        """All of it: what the app is mounted under, and what follows."""
        path = self.environ.get("SCRIPT_NAME", "") + self.environ.get("PATH_INFO", "")
        return _as_sent(path or "/")


def _as_sent(text: str) -> bytes:
    """The bytes that *text* of an environ stands for, each as one character (PEP 3333).

    There are servers that decode it as if it were UTF-8 all the same.
    """
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def passage_in(environ: WSGIEnvironment) -> Passage | None:
    """The passage of the request of *environ*, if a part of the app has asked about it."""
    found: Passage | None = environ.get(PASSAGE)
    return found
