"""Types of the values of settings: addresses, times, secrets, tokens, regions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from headgate.errors import OptionError
from headgate.policy.document import Listing, Scalar, Table
from headgate.policy.fields import (
    FieldError,
    FieldType,
    choice,
    expected,
    number,
    read_duration,
    read_each,
    read_word,
    several,
    word,
)
from headgate.policy.tables import read as read_model
from headgate.policy.tables import table
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.policy.document import Node

UNIX: Final = "unix:"
EXPECTED: Final = "HOST:PORT such as 127.0.0.1:8090 or [::1]:8090, or unix:/path/to/socket"
SHORTEST: Final = 16
"""Characters of a token or a secret at least."""

A_MODE: Final = "permissions such as 660"
A_NETWORK: Final = "a network such as 10.0.0.0/8"
A_HOST: Final = "a name such as headgate.internal or *.example.com, or * for any"
A_REGION: Final = "up to 40 letters, digits and - _"
A_PEER: Final = "a region and its store, such as us=redis://us.example.com:6379"
Role = Literal["read", "write"]

_NONE: Final = "off"
"""No value of something that has one by default."""

_LARGEST_PORT: Final = 65_535
_LONGEST_PATH: Final = 107
"""Bytes of the path of a socket that the kernel takes."""

_LONGEST_SECRET: Final = 4_096
_DIGEST: Final = re.compile("[0-9a-fA-F]{64}")
_HOST: Final = re.compile("[a-z0-9_-]+(?:[.][a-z0-9_-]+)*")
_REGION: Final = re.compile("[A-Za-z0-9_-]{1,40}")


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
        """True if only this machine can reach it, as far as is known without a name server."""
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
    """The address in *text*. Raises `OptionError`."""
    if text.startswith(UNIX):
        return Address(path=text.removeprefix(UNIX))
    host, colon, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    is_port = port.isascii() and port.isdecimal() and len(port) <= 5
    if not colon or not host or (":" in host) != is_bracketed or not is_port:
        raise OptionError(f"{text!r} is not an address; expected {EXPECTED}")
    return Address(host, int(port))


def parsed(
    what: str,
    parse: Callable[[str], Any] = str,
    metavar: str = "",
    write: Callable[[Any], object] = str,
) -> FieldType:
    """A text that *parse* makes a value of, or raises `OptionError`; *write* is the reverse."""

    def read(node: Node) -> Any:
        try:
            return parse(read_word(node, what))
        except OptionError as error:
            raise FieldError(str(error)) from None

    return FieldType(what, read, metavar=metavar, write=write)


def _or_none(item: FieldType, what: str) -> FieldType:
    """Several values of the type *item*; `off` for none."""
    some = several(item, what)

    def read(node: Node) -> tuple[Any, ...]:
        found: tuple[Any, ...]
        found = () if isinstance(node, Scalar) and node.text == _NONE else some.read(node)
        return found

    return replace(some, read=read, write=lambda found: some.write(found) if found else _NONE)


def _parse_network(text: str) -> str:
    try:
        return text if text == "unix" else str(ip_network(text))
    except ValueError as error:
        raise OptionError(f"{error}; expected {A_NETWORK}") from None


def _parse_host(text: str) -> str:
    host = text.lower().rstrip(".")
    if host != "*" and _HOST.fullmatch(host.removeprefix("*.")) is None:
        raise OptionError(f"{text!r} is not a name of a host; expected {A_HOST}")
    return host


FILE: Final = parsed("a path", metavar="FILE")
DIRECTORY: Final = parsed("a path", metavar="DIR")
ADDRESS: Final = parsed(EXPECTED, parse_address, "ADDRESS")
ADDRESSES: Final = _or_none(ADDRESS, EXPECTED)
NETWORKS: Final = _or_none(parsed(A_NETWORK, _parse_network), A_NETWORK)
HOSTS: Final = _or_none(parsed(A_HOST, _parse_host), A_HOST)
PORTION: Final = number("a number from 0 to 1", lambda found: 0 <= found <= 1)


def time(least: float = 0.001, most: float = 86_400) -> FieldType:
    """A time in seconds, from *least* to *most*, or with a unit: `30s`, `500ms`."""

    def read(node: Node) -> float:
        is_zero = isinstance(node, Scalar) and node.text in {"0", "0s"}
        found = 0.0 if is_zero else read_duration(node) / SECOND
        if not least <= found <= most:
            message = f"found {found:g} seconds; expected from {least:g} to {most:g}"
            raise FieldError(message)
        return found

    return FieldType("a time", read, metavar="seconds, or 30s, 500ms")


def _parse_mode(text: str) -> int:
    digits = text.removeprefix("0o")
    if not (0 < len(digits) <= 4 and set(digits) <= set("01234567")) or int(digits, 8) > 0o777:
        raise OptionError(f"found {text!r}, expected {A_MODE}")
    return int(digits, 8)


MODE: Final = parsed(A_MODE, _parse_mode, "MODE", "{:o}".format)


def _read_secret(node: Node) -> bytes:
    if not isinstance(node, Scalar) or node.is_null or not node.text.strip():
        raise FieldError("expected a text that is not empty")
    found = node.text.encode("utf-8", "surrogateescape")
    if len(found) > _LONGEST_SECRET:
        raise FieldError(f"{len(found)} bytes; expected at most {_LONGEST_SECRET}")
    return found


SECRET: Final = FieldType("a secret", _read_secret, metavar="TEXT")
"""A secret, as bytes. Messages do not repeat it."""


def secret_in(path: str) -> bytes:
    """The content of the file at *path*, without the line's end. Raises `FieldError`."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LONGEST_SECRET + 1)
    except OSError as error:
        raise FieldError(f"{path}: cannot be read: {error.strerror or error}") from None
    found = content.removesuffix(b"\n").removesuffix(b"\r")
    if not found.strip():
        raise FieldError(f"{path}: the file is empty; expected a secret")
    if len(found) > _LONGEST_SECRET:
        raise FieldError(f"{path}: more than {_LONGEST_SECRET} bytes; expected a secret")
    return found


def checked_length(token: bytes) -> bytes:
    """*token* (or a secret) if it is too long to be guessed. Raises `FieldError`."""
    length = len(token.strip())
    if length < SHORTEST:
        raise FieldError(f"{length} characters can be guessed; expected at least {SHORTEST}")
    return token


def _read_token(node: Node) -> bytes:
    return digest_of(checked_length(_read_secret(node)))


def _digest_in(path: str) -> bytes:
    return digest_of(checked_length(secret_in(path)))


def _parse_digest(text: str) -> bytes:
    if not _DIGEST.fullmatch(text):
        raise FieldError("expected 64 hex digits, as sha256sum prints them")
    return bytes.fromhex(text)


@dataclass(frozen=True, slots=True)
class AdminToken:
    """A token, of which only the SHA-256 *digest* is kept; *name* is that of its author."""

    name: str
    role: Role
    digest: bytes

    def __post_init__(self) -> None:
        if not self.name or len(self.digest) != sha256().digest_size:
            raise OptionError("an admin token has a name and a SHA-256 digest")
        if self.role not in ("read", "write"):
            raise OptionError(f"the role of {self.name!r} is {self.role!r}; expected read or write")

    @classmethod
    def of(cls, name: str, role: Role, secret: bytes) -> AdminToken:
        """Make the token *secret*, of which only the digest is kept."""
        return cls(name, role, digest_of(secret))


def digest_of(token: bytes) -> bytes:
    """The digest of *token* without the blanks and line ends around it, as in a file."""
    return sha256(token.strip()).digest()


_ROLE: Final = choice(("read", "write"))


def _finish_token(fields: _TokenFields, _node: Table, _context: object) -> AdminToken:
    digest = fields.token or fields.token_file or fields.sha256 or b""
    return AdminToken(fields.name, fields.role, digest)


@table(
    "a token",
    one_of=("token", "token_file", "sha256"),
    finish=_finish_token,
)
@dataclass(frozen=True, slots=True)
class _TokenFields:
    """An admin token in a file of settings."""

    name: Annotated[str, word("who has it")]
    role: Annotated[Role, _ROLE]
    token: Annotated[bytes | None, FieldType("a secret", _read_token)] = None
    token_file: Annotated[bytes | None, parsed("the path of a file", _digest_in)] = None
    sha256: Annotated[bytes | None, parsed("64 hex digits", _parse_digest)] = None


@table("a certificate")
@dataclass(frozen=True, slots=True)
class AdminCertificate:
    """The owner of a client certificate, by its *subject* as RFC 4514 writes it."""

    name: Annotated[str, word("who has it")]
    role: Annotated[Role, _ROLE]
    subject: Annotated[str, word("a name such as CN=ada,O=shop")]


def _named(kind: type[Any], what: str) -> FieldType:
    """A list of the model *kind*, no two of one name."""

    def read(node: Node) -> tuple[Any, ...]:
        if not isinstance(node, Listing):
            raise expected(node, what)
        found = read_each(enumerate(node.items), partial(read_model, kind))
        names = [one.name for one in found]
        for place, name in enumerate(names):
            if name in names[:place]:
                raise FieldError(f"the name {name!r} is used twice", path=(place,))
        return tuple(found)

    return FieldType(what, read, metavar="LIST")


ADMIN_TOKENS: Final = _named(
    _TokenFields, "a list of mappings with name, role, and token or token_file"
)
ADMIN_CERTIFICATES: Final = _named(
    AdminCertificate, "a list of mappings with name, role and subject"
)


@dataclass(frozen=True, slots=True)
class RegionPeer:
    """Another region of a fleet, and its store."""

    name: str
    store: str = field(repr=False)


def _parse_peer(text: str) -> RegionPeer:
    name, sign, url = text.partition("=")
    if not sign or not url or not _REGION.fullmatch(name):
        raise OptionError(f"is not {A_PEER}")  # it may have a password in it: not shown
    return RegionPeer(name, url)


REGION: Final = word("the name of a region", _REGION.pattern, A_REGION)
PEERS: Final = several(parsed(A_PEER, _parse_peer), A_PEER)
