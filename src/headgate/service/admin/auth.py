"""Authentication for the admin API: by a bearer token, or by the certificate of the connection."""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.service.http.replies import RejectedError, problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.config.values import AdminCertificate, AdminToken, Role
    from headgate.service.http.replies import Scope

_BEARER: Final = b"bearer "
_LONGEST: Final = 4_096
_REALM: Final = (b"www-authenticate", b'Bearer realm="headgate admin"')


class Caller(NamedTuple):
    """An authenticated caller."""

    name: str
    role: Role

    def check_role(self, role: Role) -> None:
        """Raise `RejectedError` (403) unless the caller has the *role* that an operation needs."""
        if role == "write" and self.role != "write":
            message = f"{self.name!r} has the role read; this call needs the role write"
            raise RejectedError(problem(403, message))


def authenticated(
    scope: Scope, *, tokens: Sequence[AdminToken], certificates: Sequence[AdminCertificate]
) -> Caller:
    """Return the caller. Raises `RejectedError`: 403 if the API is closed, else 401.

    With neither *tokens* nor *certificates* the API is closed. The server that ends TLS verifies a
    certificate and passes its subject in the ASGI scope (`extensions.tls.client_cert_name`).
    """
    if not tokens and not certificates:
        message = "the admin API is closed: no token is set (HEADGATE_ADMIN_TOKEN)"
        raise RejectedError(problem(403, message))
    lines = [value for name, value in scope["headers"] if name == b"authorization"]
    caller = _by_token(lines[0], tokens) if len(lines) == 1 else None
    caller = caller or _by_certificate(scope, certificates)
    if caller is None:
        message = "no such token" if lines else "expected Authorization: Bearer TOKEN"
        raise RejectedError(problem(401, message, headers=(_REALM,)))
    return caller


def _by_token(line: bytes, tokens: Sequence[AdminToken]) -> Caller | None:
    if len(line) > _LONGEST or line[: len(_BEARER)].lower() != _BEARER:
        return None
    digest = sha256(line[len(_BEARER) :].strip(b" ")).digest()
    found = None
    for token in tokens:  # all of them, so that the time reveals nothing
        if hmac.compare_digest(token.digest, digest):
            found = Caller(token.name, token.role)
    return found


def _by_certificate(scope: Scope, certificates: Sequence[AdminCertificate]) -> Caller | None:
    tls: dict[str, Any] = (scope.get("extensions") or {}).get("tls") or {}
    subject = tls.get("client_cert_name")
    if not subject or tls.get("client_cert_error"):
        return None
    matching = (one for one in certificates if one.subject == subject)
    return next((Caller(one.name, one.role) for one in matching), None)
