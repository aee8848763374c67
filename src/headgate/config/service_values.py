"""What can be set of what callers, gateways and operators are told."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal, TypeVar, cast

from headgate.config import readers
from headgate.config.declaration import setting
from headgate.config.readers import secret, secret_in, too_short
from headgate.errors import OptionError
from headgate.policy.loader import scalars
from headgate.policy.loader.diagnostics import Listing
from headgate.policy.loader.scalars import Fields, several

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.policy.loader.diagnostics import Spot


_RLS: Final = "Envoy RLS and RLQS"
_RESPONSES: Final = "Responses"
_LOGS: Final = "Logs"

_SECONDS: Final = "seconds, or 30s, 500ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSettings:
    """That part of the `Settings`."""

    rls_charge: str = setting(
        readers.choice("all_or_nothing", "always"),
        _RLS,
        "all_or_nothing or always",
        "what a refusal charges under envoy_config: nothing, or as envoyproxy/ratelimit does",
        default="all_or_nothing",
    )
    rls_reports: str = setting(
        readers.choice("auto", "always", "never"),
        _RLS,
        "auto, always or never",
        "which hits report what has happened already, and count in full",
        default="auto",
    )
    rls_on_store_failure: str = setting(
        readers.choice("error", "fail_open", "fail_closed"),
        _RLS,
        "error, fail_open or fail_closed",
        "what limits without a rule say when the store is gone",
        default="error",
    )
    rls_headers: bool = setting(
        readers.boolean, _RLS, "BOOL", "send rate limit headers back through Envoy", default=True
    )
    rls_metadata: bool = setting(
        readers.boolean, _RLS, "BOOL", "send dynamic metadata back to Envoy", default=False
    )
    rlqs_ttl: int = setting(
        readers.whole(2, 3_600),
        _RLS,
        "SECONDS",
        "how long a gateway's share of a limit lasts without being renewed",
        default=10,
    )
    rlqs_silence: float = setting(
        readers.seconds(5.001),
        _RLS,
        _SECONDS,
        "after which a gateway that reports nothing loses its share",
        default=16.0,
    )
    rlqs_idle: float = setting(
        readers.seconds(5.001),
        _RLS,
        _SECONDS,
        "after which a bucket that nobody uses is abandoned",
        default=60.0,
    )

    responses_x_ratelimit: bool = setting(
        readers.boolean, _RESPONSES, "BOOL", "send X-RateLimit-*", default=True
    )
    responses_ratelimit: bool = setting(
        readers.boolean, _RESPONSES, "BOOL", "send RateLimit and RateLimit-Policy", default=True
    )
    responses_draft03: bool = setting(
        readers.boolean,
        _RESPONSES,
        "BOOL",
        "send RateLimit-Limit, -Remaining, -Reset",
        default=False,
    )
    responses_problem: bool = setting(
        readers.boolean,
        _RESPONSES,
        "BOOL",
        "problem+json for all, not only who asks",
        default=False,
    )
    responses_jitter: float = setting(
        readers.share,
        _RESPONSES,
        "SHARE from 0 to 1",
        "the largest addition to a wait, as a share of it",
        default=0.0,
    )
    responses_jitter_most: float = setting(
        readers.seconds(0.0), _RESPONSES, _SECONDS, "no addition is longer than this", default=60.0
    )
    responses_outage_status: int = setting(
        readers.whole(400, 599),
        _RESPONSES,
        "STATUS",
        "for what is refused for want of a store",
        default=503,
    )
    responses_shed_status: int = setting(
        readers.whole(400, 599), _RESPONSES, "STATUS", "the same for want of capacity", default=503
    )

    log_level: str = setting(
        readers.choice("debug", "info", "warning", "error"),
        _LOGS,
        "debug, info, warning or error",
        "what is told on stderr",
        default="info",
    )
    log_format: str = setting(
        readers.choice("text", "json"),
        _LOGS,
        "text or json",
        "JSON is a line for each",
        default="text",
    )
    log_denials: int = setting(
        readers.whole(0, 1_000),
        _LOGS,
        "N",
        "how many refusals of each rule are told a second, with hashed keys; 0 for none",
        default=0,
    )


# Who may call the admin API: names, roles, and the digests of their tokens.


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


# The other regions of a fleet: a name for each, and where its store is.


_NAME: Final = re.compile("[A-Za-z0-9_-]{1,40}")
A_NAME: Final = "up to 40 letters, digits and - _"
A_PEER: Final = "a region and its store, such as us=redis://us.example.com:6379"


@dataclass(frozen=True, slots=True)
class RegionPeer:
    """Another region."""

    name: str
    store: str = field(repr=False)


def read_region(spot: Spot) -> str | None:
    """The name of a region."""
    found = scalars.word(spot, A_NAME)
    if found is not None and not _NAME.fullmatch(found):
        spot.wrong(f"found {found!r}, expected {A_NAME}")
        return None
    return found


def read_peers(spot: Spot) -> tuple[RegionPeer, ...] | None:
    """The other regions."""
    return several(spot, _peer, A_PEER)


def _peer(spot: Spot) -> RegionPeer | None:
    found = scalars.word(spot, A_PEER)
    if found is None:
        return None
    name, sign, url = found.partition("=")
    if not sign or not url or not _NAME.fullmatch(name):
        spot.wrong(f"is not {A_PEER}")  # it may have a password in it: not shown
        return None
    return RegionPeer(name, url)
