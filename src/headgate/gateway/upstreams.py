"""Where requests go: upstreams, by host and path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from headgate.errors import OptionError
from headgate.rules.reading import scalars
from headgate.settings.address import Address

if TYPE_CHECKING:
    from headgate.rules.reading.findings import Spot

EXPECTED: Final = (
    "http://host:port, https://host, grpc://host:port, grpcs://host or unix:/path, and before it,"
    " with =, which requests it is for: /path, host, *.host or host/path"
)
_PORTS: Final = {"http": 80, "https": 443, "grpc": 80, "grpcs": 443}
_UNIX: Final = "unix:"
_HOST: Final = re.compile(r"(?:\*\.)?[\w-]+(?:\.[\w-]+)*|\[[0-9A-Fa-f:.]+\]|", re.ASCII)
"""Without a port: that of a request does not matter."""

_PATH: Final = re.compile(r"/|(?:/(?!\.{1,2}(?:/|$))[^/?#\s\\;]+)+")
"""As requests have them when they are routed: in one spelling."""

_SERVER: Final = re.compile(r"[\w-]+(?:\.[\w-]+)*\.?|[0-9A-Fa-f:.]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Upstream:
    """A server, and the requests that it is for: those of *for_host* ("" for any, `*.` in front for
    all below it) whose path is *for_path* or below it.

    Either *host* and *port*, or *path*, that of a unix socket. With *is_http2* it is spoken to as
    servers of gRPC are, else as those of HTTP/1.1.
    """

    host: str = ""
    port: int = 0
    path: str = ""
    is_tls: bool = False
    for_host: str = ""
    for_path: str = "/"
    is_http2: bool = False

    @property
    def url(self) -> str:
        """The server, as it is written."""
        if self.path:
            return f"{_UNIX}{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "grpc" if self.is_http2 else "http"
        return f"{scheme}{'s' if self.is_tls else ''}://{host}:{self.port}"

    def __post_init__(self) -> None:
        Address(self.host, self.port, self.path)

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
    if not _HOST.fullmatch(host) or not _PATH.fullmatch(for_path):
        raise OptionError(f"{text!r}: {which!r} is no host and path; expected {EXPECTED}")
    if url.startswith(f"{_UNIX}/"):
        return Upstream(path=url.removeprefix(_UNIX), for_host=host.lower(), for_path=for_path)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise OptionError(f"{text!r}: {error}; expected {EXPECTED}") from error
    is_bare = parts.path in ("", "/") and not (parts.query or parts.fragment or parts.username)
    server = parts.hostname or ""
    is_known = parts.scheme in _PORTS and _SERVER.fullmatch(server) is not None
    if not is_known or not is_bare or port == 0:
        raise OptionError(f"{text!r} is no upstream; expected {EXPECTED}")
    return Upstream(
        host=server,
        port=port or _PORTS[parts.scheme],
        is_tls=parts.scheme.endswith("s"),
        is_http2=parts.scheme.startswith("grpc"),
        for_host=host.lower(),
        for_path=for_path,
    )
