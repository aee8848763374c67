"""Who may call the admin API: names, roles, and the digests of their tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal, TypeVar, cast

from headgate.errors import OptionError
from headgate.rules.reading import scalars
from headgate.rules.reading.fields import Fields
from headgate.rules.reading.tree import Listing
from headgate.settings.files import secret_in, too_short
from headgate.settings.readers import secret

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.rules.reading.findings import Spot

Role = Literal["read", "write"]

_FIELDS: Final = ("name", "role", "token", "token_file", "sha256")
_WAYS: Final = ("token", "token_file", "sha256")
_DIGEST: Final = re.compile("[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True)
class AdminToken:
    """A token, of which only the SHA-256 *digest* is kept; *name* is who is told as the author."""

    name: str
    role: Role
    digest: bytes

    def __post_init__(self) -> None:
        if not self.name or len(self.digest) != sha256().digest_size:
            raise OptionError("an admin token has a name and a SHA-256 digest")
        if self.role not in ("read", "write"):
            raise OptionError(f"the role of {self.name!r} is {self.role!r}; expected read or write")


@dataclass(frozen=True, slots=True)
class AdminCertificate:
    """Who is known by the *subject* of a client certificate, as RFC 4514 writes it."""

    name: str
    role: Role
    subject: str


T = TypeVar("T", AdminToken, AdminCertificate)


def digest_of(token: bytes) -> bytes:
    """What is kept of *token*; blanks and ends of lines around it, as in a file, are not of it."""
    return sha256(token.strip()).digest()


def read_tokens(spot: Spot) -> tuple[AdminToken, ...] | None:
    """A list of tokens, no two of one name."""
    return _each(spot, _token, "a list of mappings with name, role, and token or token_file")


def read_certificates(spot: Spot) -> tuple[AdminCertificate, ...] | None:
    """A list of certificates, no two of one name."""
    return _each(spot, _certificate, "a list of mappings with name, role and subject")


def _each(spot: Spot, reader: Callable[[Spot], T | None], what: str) -> tuple[T, ...] | None:
    if not isinstance(spot.node, Listing):
        spot.expected(what)
        return None
    found: dict[str, T] = {}
    for child in spot.children():
        one = reader(child)
        if one is not None and one.name in found:
            child.wrong(f"the name {one.name!r} is taken by one before")
        elif one is not None:
            found[one.name] = one
    return tuple(found.values())


def _certificate(spot: Spot) -> AdminCertificate | None:
    fields = Fields.of(spot, ("name", "role", "subject"), "a certificate")
    if fields is None:
        return None
    name = fields.need("name", scalars.word, "who has it")
    role: Role | None = fields.need("role", _role, "read or write")
    subject = fields.need("subject", scalars.word, "a name such as CN=ada,O=shop")
    if name is None or role is None or subject is None:
        return None
    return AdminCertificate(name, role, subject)


def _token(spot: Spot) -> AdminToken | None:
    fields = Fields.of(spot, _FIELDS, "a token")
    if fields is None:
        return None
    name = fields.need("name", scalars.word, "who has it")
    role: Role | None = fields.need("role", _role, "read or write")
    digest = _digest(fields)
    if name is None or role is None or digest is None:
        return None
    return AdminToken(name, role, digest)


def _role(spot: Spot) -> Role | None:
    return cast("Role | None", scalars.choice(spot, "read", "write"))


def _digest(fields: Fields) -> bytes | None:
    given = fields.present(_WAYS)
    if len(given) != 1:
        fields.spot.wrong(f"expected one of {', '.join(_WAYS)}; found {len(given)}")
        return None
    spot = fields[given[0]]
    if given[0] == "sha256":
        return _hex(spot)
    token = secret(spot) if given[0] == "token" else _from_file(spot)
    flaw = None if token is None else too_short(token)
    if flaw is not None:
        spot.wrong(flaw)
    return None if token is None or flaw is not None else digest_of(token)


def _from_file(spot: Spot) -> bytes | None:
    path = scalars.word(spot, "the path of a file")
    return None if path is None else secret_in(path, spot)


def _hex(spot: Spot) -> bytes | None:
    text = scalars.text(spot, "64 hex digits")
    if text is None:
        return None
    if not _DIGEST.fullmatch(text):
        spot.wrong("expected 64 hex digits, as sha256sum prints them")
        return None
    return bytes.fromhex(text)
