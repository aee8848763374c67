"""What a single value of the configuration means.

Every reader takes the `Spot` of a value, notes what is wrong with it and then answers None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from headgate.errors import OptionError
from headgate.policy.loader import scalars
from headgate.policy.loader.diagnostics import Scalar
from headgate.policy.loader.scalars import several

if TYPE_CHECKING:
    from headgate.policy.loader.diagnostics import Spot


# Where the service listens: a host and a port, or a unix socket.


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


T = TypeVar("T")
Reader = Callable[["Spot"], T | None]

NONE: Final = "off"
"""What says that there is to be none of something that there is if nothing is said."""

_LONGEST_SECRET: Final = 4_096
_A_DAY: Final = 86_400
_NANOSECONDS: Final = 1_000_000_000


def text(expected: str) -> Reader[str]:
    """Any text of one line."""
    return lambda spot: scalars.word(spot, expected)


def choice(*words: str) -> Reader[str]:
    """One of *words*."""
    return lambda spot: scalars.choice(spot, *words)


def whole(least: int, most: int) -> Reader[int]:
    """A whole number from *least* to *most*."""
    return lambda spot: scalars.whole(spot, least, most)


def boolean(spot: Spot) -> bool | None:
    """True or false."""
    return scalars.boolean(spot)


def share(spot: Spot) -> float | None:
    """A number from 0 to 1."""
    found = scalars.number(spot, "a number from 0 to 1")
    if found is None:
        return None
    if not 0 <= found <= 1:
        spot.expected("a number from 0 to 1")
        return None
    return float(found)


def seconds(least: float = 0.001, most: float = _A_DAY) -> Reader[float]:
    """A time in seconds, or with a unit: `30s`, `500ms`."""

    def read(spot: Spot) -> float | None:
        node = spot.node
        if isinstance(node, Scalar) and node.text in {"0", "0s"}:
            found: float = 0.0
        else:
            nanoseconds = scalars.duration_ns(spot)
            if nanoseconds is None:
                return None
            found = nanoseconds / _NANOSECONDS
        if not least <= found <= most:
            spot.wrong(f"found {found:g} seconds; expected from {least:g} to {most:g}")
            return None
        return found

    return read


def addresses(spot: Spot) -> tuple[Address, ...] | None:
    """Addresses to listen on, each only once; `off` for none."""
    if isinstance(spot.node, Scalar) and spot.node.text == NONE:
        return ()
    return several(spot, address, EXPECTED)


def address(spot: Spot) -> Address | None:
    """One address to listen on."""
    found = scalars.word(spot, EXPECTED)
    if found is None:
        return None
    try:
        return parse_address(found)
    except OptionError as error:
        spot.wrong(str(error))
        return None


def networks(spot: Spot) -> tuple[str, ...] | None:
    """Networks such as 10.0.0.0/8; `off` for none."""
    if isinstance(spot.node, Scalar) and spot.node.text == NONE:
        return ()
    return several(spot, _network, "a network such as 10.0.0.0/8")


def _network(spot: Spot) -> str | None:
    found = scalars.word(spot, "a network such as 10.0.0.0/8")
    if found is None or found == "unix":
        return found
    try:
        return str(ip_network(found))
    except ValueError as error:
        spot.wrong(f"{error}; expected a network such as 10.0.0.0/8")
        return None


def octal(spot: Spot) -> int | None:
    """The permissions of a file, such as 660."""
    node = spot.node
    digits = node.text.removeprefix("0o") if isinstance(node, Scalar) else ""
    if not (0 < len(digits) <= 4 and set(digits) <= set("01234567")) or int(digits, 8) > 0o777:
        spot.expected("permissions such as 660")
        return None
    return int(digits, 8)


def secret(spot: Spot) -> bytes | None:
    """A secret, as bytes. What is wrong with it is said without repeating it."""
    node = spot.node
    if not isinstance(node, Scalar) or node.is_null or not node.text.strip():
        spot.wrong("expected a text that is not empty")
        return None
    found = node.text.encode("utf-8", "surrogateescape")
    if len(found) > _LONGEST_SECRET:
        spot.wrong(f"{len(found)} bytes; expected at most {_LONGEST_SECRET}")
        return None
    return found


# Secrets: how long they are, and those that are kept in files.


_MOST: Final = 4_096
SHORTEST: Final = 16
"""How many characters a token or a secret has at least."""


def secret_in(path: str, spot: Spot) -> bytes | None:
    """What the file at *path* says, without the line's end; None, noted at *spot*, if nothing."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST + 1)
    except OSError as error:
        spot.wrong(f"{path}: cannot be read: {error.strerror or error}")
        return None
    found = content.removesuffix(b"\n").removesuffix(b"\r")
    if not found.strip():
        spot.wrong(f"{path}: there is nothing in it; expected a secret")
        return None
    if len(found) > _MOST:
        spot.wrong(f"{path}: more than {_MOST} bytes; expected a secret")
        return None
    return found


def too_short(token: bytes) -> str | None:
    """What is wrong with *token* (or a secret), if it can be guessed."""
    length = len(token.strip())
    if length >= SHORTEST:
        return None
    return f"{length} characters can be guessed; expected at least {SHORTEST}"
