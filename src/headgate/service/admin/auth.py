"""Authentication for the admin API: by a bearer token, or by the certificate of the connection."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from headgate.errors import OptionError
from headgate.service.http.replies import RefusedError, problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.service.http.replies import Scope

Role = Literal["read", "write"]
_BEARER: Final = b"bearer "
_LONGEST: Final = 4_096
_REALM: Final = (b"www-authenticate", b'Bearer realm="headgate admin"')


class Credential(Protocol):
    """A token as it is kept: the name and the role of its holder, and its SHA-256."""

    @property
    def name(self) -> str: ...

    @property
    def role(self) -> Role: ...

    @property
    def digest(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Token:
    """A `Credential`. The token itself is not kept."""

    name: str
    role: Role
    digest: bytes

    def __post_init__(self) -> None:
        if not self.name or self.role not in ("read", "write"):
            raise OptionError(f"a token has a name and the role read or write; found {self!r}")
        if len(self.digest) != sha256().digest_size:
            raise OptionError(f"the digest of the token {self.name!r} is not a SHA-256")

    @classmethod
    def of(cls, name: str, role: Role, secret: str) -> Token:
        """Make the token *secret*, of which only the digest is kept."""
        return cls(name, role, sha256(secret.encode()).digest())


@dataclass(frozen=True, slots=True)
class Certificate:
    """A client certificate that is as good as a token, by its *subject* in the form of RFC 4514.

    The server that ends TLS verifies it and passes the subject in the ASGI scope
    (`extensions.tls.client_cert_name`).
    """

    name: str
    role: Role
    subject: str


class Caller(NamedTuple):
    """An authenticated caller."""

    name: str
    role: Role


class Authenticator:
    """Identifies callers. With neither *tokens* nor *certificates* the API is closed."""

    def __init__(
        self, tokens: Iterable[Credential], certificates: Sequence[Certificate] = ()
    ) -> None:
        self._tokens = tuple(tokens)
        self._certificates = tuple(certificates)

    def authenticate(self, scope: Scope) -> Caller:
        """Return the caller. Raises `RefusedError`: 403 if the API is closed, else 401."""
        if not self._tokens and not self._certificates:
            message = "the admin API is closed: no token is set (HEADGATE_ADMIN_TOKEN)"
            raise RefusedError(problem(403, message))
        lines = [value for name, value in scope["headers"] if name == b"authorization"]
        caller = self._by_token(lines[0]) if len(lines) == 1 else None
        caller = caller or self._by_certificate(scope)
        if caller is None:
            message = "no such token" if lines else "expected Authorization: Bearer TOKEN"
            raise RefusedError(problem(401, message, headers=(_REALM,)))
        return caller

    def _by_token(self, line: bytes) -> Caller | None:
        if len(line) > _LONGEST or line[: len(_BEARER)].lower() != _BEARER:
            return None
        digest = sha256(line[len(_BEARER) :].strip(b" ")).digest()
        found = None
        for token in self._tokens:  # all of them, so that the time says nothing
            if hmac.compare_digest(token.digest, digest):
                found = Caller(token.name, token.role)
        return found

    def _by_certificate(self, scope: Scope) -> Caller | None:
        shown: dict[str, Any] = (scope.get("extensions") or {}).get("tls") or {}
        subject = shown.get("client_cert_name")
        if not subject or shown.get("client_cert_error"):
            return None
        matching = (one for one in self._certificates if one.subject == subject)
        return next((Caller(one.name, one.role) for one in matching), None)


def check_role(caller: Caller, role: Role) -> None:
    """Raise `RefusedError` (403) unless *caller* has the *role* that an operation needs."""
    if role == "write" and caller.role != "write":
        message = f"the token {caller.name!r} may only read; this needs the role write"
        raise RefusedError(problem(403, message))
