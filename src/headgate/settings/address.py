"""Where the service listens: a host and a port, or a unix socket."""

from __future__ import annotations

from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Final

from headgate.errors import OptionError

UNIX: Final = "unix:"
EXPECTED: Final = "HOST:PORT such as 127.0.0.1:8090 or [::1]:8090, or unix:/path/to/socket"

_LARGEST_PORT: Final = 65_535
_LONGEST_PATH: Final = 107
"""How many bytes the kernel takes for the path of a socket."""


@dataclass(frozen=True, slots=True)
class Address:
    """*host* and *port*, or the absolute *path* of a unix socket and no host.

    Port 0 is any that is free.
    """

    host: str = ""
    port: int = 0
    path: str = ""

    def __post_init__(self) -> None:
        if bool(self.host) == bool(self.path):
            raise OptionError(f"an address is a host and a port, or a path; expected {EXPECTED}")
        if self.path and (not self.path.startswith("/") or "\0" in self.path):
            raise OptionError(f"unix:{self.path} is not an absolute path; expected {EXPECTED}")
        if len(self.path.encode("utf-8", "surrogateescape")) > _LONGEST_PATH:
            raise OptionError(f"the path of a socket has at most {_LONGEST_PATH} bytes")
        if not 0 <= self.port <= _LARGEST_PORT:
            raise OptionError(f"{self.port} is not a port; expected 0 to {_LARGEST_PORT}")

    @property
    def is_unix(self) -> bool:
        return bool(self.path)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it, as far as can be told without a name server."""
        if self.is_unix or self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def nth(self, number: int) -> Address:
        """The address of worker *number*, from 0, if each worker has one of its own."""
        if self.is_unix:
            return self if number == 0 else replace(self, path=f"{self.path}.{number}")
        return self if self.port == 0 else replace(self, port=self.port + number)

    def __str__(self) -> str:
        if self.is_unix:
            return f"{UNIX}{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> Address:
    """The address that *text* is. Raises `OptionError`."""
    if text.startswith(UNIX):
        return Address(path=text.removeprefix(UNIX))
    host, colon, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    if not colon or not host or (":" in host) != is_bracketed or not _is_port(port):
        raise OptionError(f"{text!r} is not an address; expected {EXPECTED}")
    return Address(host, int(port))


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 5
