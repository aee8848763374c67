"""The URL of a policy in etcd, parsed. No I/O, and no password in any message.

    etcd://host                                      /headgate/ on port 2379
    etcd://user:password@host:2379,host:2379/teams/a?timeout=2
    etcds://user@host/headgate?ca=/etc/ssl/etcd.pem  with TLS; the password from elsewhere

Characters such as `@ : / ? # %` in a name or a password are percent-encoded. A password in a URL is
visible in lists of processes: with `user@` it is taken from the environment variable
HEADGATE_ETCD_PASSWORD, or is given apart.

    timeout=5               seconds that one request may take in all, over all members
    heartbeat=1             seconds of silence after which a watch is checked
    history=100             how many revisions are kept
    max_request_bytes=...   etcd's --max-request-bytes, if not 1572864
    ca=, cert=, key=        paths of PEM files: the trusted authority, and the client's certificate
    server_name=            the name in the server's certificate
    tls=true                the same as etcds://
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import OptionError
from headgate.server_urls import Address, URLReader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headgate.server_urls import Options

MAX_REQUEST_BYTES: Final = 1_572_864
"""The largest request that etcd accepts by default."""
PASSWORD_VARIABLE: Final = "HEADGATE_ETCD_PASSWORD"  # noqa: S105 - the name of one
DEFAULT_PREFIX: Final = "/headgate/"
_PORT: Final = 2379
_SCHEMES: Final = ("etcd", "etcds")
_FILES: Final = ("ca", "cert", "key", "server_name")


def _number(kind: type[float], above: float, most: float) -> Callable[[str], float | None]:
    def read(text: str) -> float | None:
        try:
            value = kind(text)
        except ValueError:
            return None
        return value if above < value <= most else None

    return read


_SECONDS: Final = (_number(float, 0, 600), "seconds above 0, up to 600")
_OPTIONS: Final[Options] = {
    "timeout": _SECONDS,
    "heartbeat": _SECONDS,
    "history": (_number(int, 0, 100_000), "1 to 100000"),
    "max_request_bytes": (_number(int, 1_023, 2**31), "1024 to 2147483648"),
    "tls": ({"true": True, "false": False}.get, "true or false"),
    **{name: (lambda text: text or None, "a value, or leave it out") for name in _FILES},
}


@dataclass(frozen=True, slots=True)
class TLSFiles:
    """Paths of PEM files, and the name in the server's certificate.

    *ca* is None for the authorities that the system trusts.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class EtcdURL:
    """A parsed URL with its defaults. *prefix* begins and ends with a slash; times in seconds."""

    addresses: tuple[Address, ...]
    prefix: str = DEFAULT_PREFIX
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: TLSFiles | None = None
    timeout: float = 5.0
    heartbeat: float = 1.0
    history: int = 100
    max_request_bytes: int = MAX_REQUEST_BYTES

    def __str__(self) -> str:
        scheme = "etcds" if self.tls else "etcd"
        return f"{scheme}://{','.join(map(str, self.addresses))}{self.prefix}"


def parse_etcd_url(
    url: str, *, password: str | None = None, environ: Mapping[str, str] | None = None
) -> EtcdURL:
    """Parse *url*. Raises `OptionError` with what is expected.

    The password of a user is the one in the URL, or else *password*, or else
    HEADGATE_ETCD_PASSWORD in *environ*.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.lower() not in _SCHEMES:
        # The rest is not shown: a password may be in it.
        shown = repr(f"{scheme}://...") if separator else "a URL without '://'"
        raise OptionError(f"cannot open {shown}; expected etcd://host:2379 or etcds://host:2379")
    reader = URLReader(scheme.lower(), OptionError)
    authority, path, pairs = reader.split(rest)
    tls, numbers = _options(reader, pairs)
    user, secret = _credentials(reader, authority)
    return EtcdURL(
        reader.addresses(authority.rpartition("@")[2], _PORT),
        _prefix(reader, path),
        user,
        _password(reader, user, (secret, password, (environ or {}).get(PASSWORD_VARIABLE))),
        tls,
        **numbers,
    )


def _options(
    reader: URLReader, pairs: Sequence[tuple[str, str]]
) -> tuple[TLSFiles | None, dict[str, Any]]:
    """Read the TLS files, if there is TLS, and the numbers in *pairs*. Raises `OptionError`."""
    given = reader.options(pairs, _OPTIONS)
    files = {name: given.pop(name) for name in _FILES if name in given}
    is_secure = reader.scheme == "etcds"
    has_tls = given.pop("tls", is_secure)
    if is_secure and not has_tls:
        raise reader.wrong("this scheme uses TLS; remove tls=false, or write etcd://")
    if files and not has_tls:
        raise reader.wrong(f"{next(iter(files))} is for TLS; did you mean etcds://?")
    if ("cert" in files) != ("key" in files):
        raise reader.wrong("cert and key belong together; set both or neither")
    return TLSFiles(**files) if has_tls else None, given


def _credentials(reader: URLReader, authority: str) -> tuple[str | None, str | None]:
    userinfo = reader.userinfo(authority)
    if userinfo is None:
        return None, None
    name, colon, secret = userinfo.partition(":")
    if not name:
        raise reader.wrong("expected user:password or user before the '@'")
    if colon and not secret:
        raise reader.wrong("the password is empty; to set it elsewhere, write user@host")
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
