"""The URL of a policy in etcd, read into a value. No I/O, and no password in any message.

    etcd://host                                      /headgate/ on port 2379
    etcd://user:password@host:2379,host:2379/teams/a?timeout=2
    etcds://user@host/headgate?ca=/etc/ssl/etcd.pem  with TLS; the password from elsewhere

Characters such as `@ : / ? # %` in a name or a password are percent-encoded. A password in a URL is
seen by whoever may list processes: with `user@` it is taken from the environment variable
HEADGATE_ETCD_PASSWORD, or is given apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headgate.control.etcd.options import Options, TLSFiles, read_options
from headgate.errors import OptionError
from headgate.server_urls import Address, URLReader

if TYPE_CHECKING:
    from collections.abc import Mapping

PASSWORD_VARIABLE: Final = "HEADGATE_ETCD_PASSWORD"  # noqa: S105 - the name of one
DEFAULT_PREFIX: Final = "/headgate/"
_PORT: Final = 2379
_SCHEMES: Final = ("etcd", "etcds")


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
    reader = URLReader(scheme.lower(), OptionError)
    authority, path, pairs = reader.split(rest)
    options, tls = read_options(reader.scheme, pairs)
    user, secret = _credentials(reader, authority)
    return EtcdURL(
        reader.addresses(authority.rpartition("@")[2], _PORT),
        _prefix(reader, path),
        user,
        _password(reader, user, (secret, password, (environ or {}).get(PASSWORD_VARIABLE))),
        tls,
        options,
    )


def _credentials(reader: URLReader, authority: str) -> tuple[str | None, str | None]:
    userinfo = reader.userinfo(authority)
    if userinfo is None:
        return None, None
    name, colon, secret = userinfo.partition(":")
    if not name:
        raise reader.wrong("before the '@' belongs user:password, or user alone")
    if colon and not secret:
        raise reader.wrong("the password is empty; write user@host to give it apart")
    user = reader.decoded(name, "the user name")
    return user, reader.decoded(secret, "the password") if colon else None


def _password(reader: URLReader, user: str | None, given: tuple[str | None, ...]) -> str | None:
    if user is None:
        if given[1] is not None:
            raise reader.wrong(f"a password but no user; expected {reader.scheme}://user@host")
        return None
    for secret in given:
        if secret:
            return secret
    raise reader.wrong(f"a user but no password; set {PASSWORD_VARIABLE}, or write user:password@")


def _prefix(reader: URLReader, path: str) -> str:
    name = reader.decoded(path, "the prefix").strip("/")
    if "//" in name:
        raise reader.wrong("the prefix has two slashes in a row; expected /teams/a")
    return f"/{name}/" if name else DEFAULT_PREFIX
