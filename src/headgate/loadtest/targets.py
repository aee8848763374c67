"""Where requests go and what they look like; and whether that is this machine."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

from headgate.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

CALLER: Final = "{n}"
"""Stands for the number of the caller, from 1, in the URL, in headers and in data."""

RUN: Final = "{run}"
"""Stands for a few letters that are others in every run: callers that nobody has counted yet."""

_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """Requests of *method* to *url*, with *headers* and *data*; CALLER and RUN may be in all.

    Raises `OptionError` for a URL that is none.
    """

    url: str
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    data: str | None = None

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            is_right = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_right = False
        if not is_right:
            raise OptionError("the URL cannot be asked; expected http://127.0.0.1:8080/path")
        if parts.username is not None or parts.password is not None:
            raise OptionError("a URL with a password in it; expected it in --header Authorization:")
        if CALLER in parts.netloc or RUN in parts.netloc:
            raise OptionError(
                f"{CALLER} and {RUN} cannot be in the host: only one is tested; expected them in "
                "the path or in headers"
            )

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        parts = urlsplit(self.url)
        return parts.port or _PORTS[parts.scheme]

    @property
    def has_callers(self) -> bool:
        """Whether its requests differ from caller to caller."""
        return any(
            CALLER in text for text in (self.url, self.data or "", *dict(self.headers).values())
        )

    def of(self, caller: int, run: str) -> Target:
        """The requests of one *caller*, counted from 0."""

        def filled(text: str) -> str:
            return text.replace(CALLER, str(caller + 1)).replace(RUN, run)

        headers = tuple((name, filled(value)) for name, value in self.headers)
        data = None if self.data is None else filled(self.data)
        return Target(filled(self.url), self.method, headers, data)

    def at(self, path: str) -> Target:
        """A plain request for *path* of the same server, with the same headers.

        Raises `OptionError` if that is another server.
        """
        other = Target(urljoin(self.url, path), "GET", self.headers)
        if (other.host, other.port) != (self.host, self.port):
            raise OptionError(f"the baseline is {path!r}; expected a path of the same server")
        return other


def addresses_of(target: Target) -> tuple[str, ...]:
    """The addresses of the host, each once. Raises `OptionError` if it has none."""
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise OptionError(f"the host {target.host!r} has no address: {error}") from error
    addresses = tuple(dict.fromkeys(str(one[4][0]) for one in found))
    if any(ip_address(address.partition("%")[0]).is_unspecified for address in addresses):
        raise OptionError(
            f"{target.host} is what a server listens on, not where it is; expected 127.0.0.1"
        )
    return addresses


def are_of_this_machine(addresses: Sequence[str]) -> bool:
    """Whether all of them are loopback addresses."""
    return all(ip_address(address.partition("%")[0]).is_loopback for address in addresses)
