"""The URL of a policy in etcd, read into a value. No I/O, and no password in any message.

    etcd://host                                      /headgate/ on port 2379
    etcd://user:password@host:2379,host:2379/teams/a?timeout=2
    etcds://user@host/headgate?ca=/etc/ssl/etcd.pem  with TLS; the password from elsewhere

Characters such as `@ : / ? # %` in a name or a password are percent-encoded. A password in a URL is
seen by whoever may list processes: with `user@` it is taken from the environment variable
HEADGATE_ETCD_PASSWORD, or is given apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from headgate.control.etcd.options import Options, TLSFiles, read_options
from headgate.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

PASSWORD_VARIABLE: Final = "HEADGATE_ETCD_PASSWORD"  # noqa: S105 - the name of one
DEFAULT_PREFIX: Final = "/headgate/"
_PORT: Final = 2379
_SCHEMES: Final = ("etcd", "etcds")
_PORT_TEXT: Final = re.compile(r"[1-9][0-9]{0,4}")
_HOST: Final = re.compile(r"[^\s/?#@\[\]:,%]+")
_AUTHORITY: Final = re.compile(r"([^/?#]*)(.*)", re.DOTALL)
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Address(NamedTuple):
    """Where a member of etcd listens for clients."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class EtcdURL:
    """What a URL says, and what goes without saying. *prefix* begins and ends with a slash."""

    addresses: tuple[Address, ...]
    prefix: str = DEFAULT_PREFIX
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: TLSFiles | None = None
    options: Options = field(default_factory=Options)

    def __str__(self) -> str:
        scheme = "etcds" if self.tls else "etcd"
        return f"{scheme}://{','.join(map(str, self.addresses))}{self.prefix}"


def parse_etcd_url(
    url: str, *, password: str | None = None, environ: Mapping[str, str] | None = None
) -> EtcdURL:
    """What *url* says; `OptionError` if it makes no sense, with what would.

    The password of a user is the one in the URL, or else *password*, or else what *environ* has as
    HEADGATE_ETCD_PASSWORD.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.lower() not in _SCHEMES:
        # The rest is not shown: a password may be in it.
        shown = repr(f"{scheme}://...") if separator else "a URL without '://'"
        raise OptionError(f"cannot open {shown}; expected etcd://host:2379 or etcds://host:2379")
    scheme = scheme.lower()
    found = _AUTHORITY.fullmatch(rest)
    authority, rest = found.groups() if found else ("", "")
    _refuse_stray_characters(scheme, authority, rest)
    path, _, query = rest.partition("?")
    options, tls = read_options(scheme, _pairs(scheme, query))
    user, secret = _credentials(scheme, authority)
    return EtcdURL(
        _addresses(scheme, authority.rpartition("@")[2]),
        _prefix(scheme, path),
        user,
        _password(scheme, user, (secret, password, (environ or {}).get(PASSWORD_VARIABLE))),
        tls,
        options,
    )


def _refuse_stray_characters(scheme: str, authority: str, rest: str) -> None:
    if "@" in rest:
        # Nothing of it may be shown: it is likely the end of a password.
        raise OptionError(
            f"{scheme}://: there is an '@' after a '/', '?' or '#'; in a password write these as "
            "%2F, %3F and %23, and an '@' anywhere else as %40"
        )
    if "#" in rest:
        raise OptionError(f"{scheme}://: a '#' has no meaning here; in a password write it %23")
    if any(not character.isprintable() for character in authority + rest):
        raise OptionError(f"{scheme}://: it contains a character that cannot be printed")


def _pairs(scheme: str, query: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError:
        raise OptionError(
            f"{scheme}://: after the '?' belongs name=value&name=value, percent-encoded"
        ) from None


def _decoded(scheme: str, text: str, what: str) -> str:
    try:
        if not _BAD_ESCAPE.search(text):
            return unquote(text, errors="strict")
    except UnicodeDecodeError:
        pass
    raise OptionError(f"{scheme}://: {what} is not percent-encoded UTF-8; write a '%' in it as %25")


def _credentials(scheme: str, authority: str) -> tuple[str | None, str | None]:
    userinfo, at, _ = authority.rpartition("@")
    if not at:
        return None, None
    if "@" in userinfo:
        raise OptionError(f"{scheme}://: there are two '@'; write the one in the password as %40")
    name, colon, secret = userinfo.partition(":")
    if not name:
        raise OptionError(f"{scheme}://: before the '@' belongs user:password, or user alone")
    if colon and not secret:
        raise OptionError(f"{scheme}://: the password is empty; write user@host to give it apart")
    user = _decoded(scheme, name, "the user name")
    return user, _decoded(scheme, secret, "the password") if colon else None


def _password(scheme: str, user: str | None, given: tuple[str | None, ...]) -> str | None:
    if user is None:
        if given[1] is not None:
            raise OptionError(f"{scheme}://: a password but no user; expected {scheme}://user@host")
        return None
    for secret in given:
        if secret:
            return secret
    raise OptionError(
        f"{scheme}://: a user but no password; set {PASSWORD_VARIABLE}, or write user:password@"
    )


def _addresses(scheme: str, hosts: str) -> tuple[Address, ...]:
    addresses = tuple(_address(scheme, text) for text in hosts.split(","))
    if len(set(addresses)) < len(addresses):
        raise OptionError(f"{scheme}://: a host is named twice")
    return addresses


def _address(scheme: str, text: str) -> Address:
    host, port = _split_port(scheme, text)
    if port is None:
        return Address(host, _PORT)
    if not _PORT_TEXT.fullmatch(port) or int(port) > 65535:
        # Not shown: in etcd://user:password the @host was forgotten.
        raise OptionError(
            f"{scheme}://: what follows a host and ':' is no port from 1 to 65535; expected "
            "host:port, or user:password@host:port"
        )
    return Address(host, int(port))


def _split_port(scheme: str, text: str) -> tuple[str, str | None]:
    if text.startswith("["):
        inside, bracket, after = text[1:].partition("]")
        try:
            host = str(IPv6Address(inside))
        except ValueError:
            bracket = ""
        if not bracket or (after and not after.startswith(":")):
            raise OptionError(f"{scheme}://: expected an IPv6 address as [::1] or [::1]:2379")
        return host, after[1:] if after else None
    host, colon, port = text.partition(":")
    if not _HOST.fullmatch(host):
        raise OptionError(
            f"{scheme}://: a host is missing or no host's name; expected host:port, and commas "
            "between several"
        )
    return host, port if colon else None


def _prefix(scheme: str, path: str) -> str:
    name = _decoded(scheme, path, "the prefix").strip("/")
    if "//" in name:
        raise OptionError(f"{scheme}://: the prefix has two slashes in a row; expected /teams/a")
    return f"/{name}/" if name else DEFAULT_PREFIX
