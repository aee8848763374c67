"""Where requests go: upstreams, by host and path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from headgate.errors import OptionError
from headgate.rules.reading import scalars

if TYPE_CHECKING:
    from headgate.rules.reading.findings import Spot

EXPECTED: Final = (
    "http://host:port, https://host or unix:/path, and before it, with =, which requests it is for:"
    " /path, host, *.host or host/path"
)
_PORTS: Final = {"http": 80, "https": 443}
_UNIX: Final = "unix:"


@dataclass(frozen=True, slots=True)
class Upstream:
    """A server, and the requests that it is for: those of *for_host* ("" for any, `*.` in front for
    all below it) whose path is *for_path* or below it.

    Either *host* and *port*, or *path*, that of a unix socket.
    """

    host: str = ""
    port: int = 0
    path: str = ""
    is_tls: bool = False
    for_host: str = ""
    for_path: str = "/"

    @property
    def url(self) -> str:
        """The server, as it is written."""
        if self.path:
            return f"{_UNIX}{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"

    def __str__(self) -> str:
        which = f"{self.for_host}{self.for_path if self.for_path != '/' else ''}"
        return f"{which}={self.url}" if which else self.url


def read_upstream(spot: Spot) -> Upstream | None:
    """One upstream."""
    found = scalars.word(spot, EXPECTED)
    if found is None:
        return None
    try:
        return parse_upstream(found)
    except OptionError as error:
        spot.wrong(str(error))
        return None


def parse_upstream(text: str) -> Upstream:
    """The upstream that *text* is. Raises `OptionError`."""
    which, equals, url = text.partition("=")
    if not equals or "://" in which or which.startswith(_UNIX):
        which, url = "", text
    host, slash, path = which.partition("/")
    for_path = f"{slash}{path}".rstrip("/") or "/"
    if any(mark in which for mark in "?# ") or "*" in host.removeprefix("*."):
        raise OptionError(f"{text!r}: {which!r} is no host and path; expected {EXPECTED}")
    if url.startswith(f"{_UNIX}/"):
        return Upstream(path=url.removeprefix(_UNIX), for_host=host.lower(), for_path=for_path)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise OptionError(f"{text!r}: {error}; expected {EXPECTED}") from error
    is_bare = parts.path in ("", "/") and not (parts.query or parts.fragment or parts.username)
    if parts.scheme not in _PORTS or not parts.hostname or not is_bare or port == 0:
        raise OptionError(f"{text!r} is no upstream; expected {EXPECTED}")
    return Upstream(
        host=parts.hostname,
        port=port or _PORTS[parts.scheme],
        is_tls=parts.scheme == "https",
        for_host=host.lower(),
        for_path=for_path,
    )
