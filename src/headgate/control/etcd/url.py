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
    from collections.abc import Mapping, Sequence

MAX_REQUEST_BYTES: Final = 1_572_864
"""The largest request that etcd accepts by default."""

_BOUNDS: Final[dict[str, tuple[type[float], float, float, str]]] = {
    "timeout": (float, 0, 600, "seconds above 0, up to 600"),
    "heartbeat": (float, 0, 600, "seconds above 0, up to 600"),
    "history": (int, 0, 100_000, "1 to 100000"),
    "max_request_bytes": (int, 1_023, 2**31, "1024 to 2147483648"),
}
"""For each option: its type, what it is above, the largest value, and both in words."""
_TLS: Final = ("ca", "cert", "key", "server_name")


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
class Options:
    """The options of a source. *timeout* and *heartbeat* are seconds."""

    timeout: float = 5.0
    heartbeat: float = 1.0
    history: int = 100
    max_request_bytes: int = MAX_REQUEST_BYTES

    def __post_init__(self) -> None:
        for name, (_, low, high, words) in _BOUNDS.items():
            value = getattr(self, name)
            if not low < value <= high:
                raise OptionError(f"{name} is {value!r}; expected {words}")


def _read_options(
    reader: URLReader, pairs: Sequence[tuple[str, str]]
) -> tuple[Options, TLSFiles | None]:
    """Read the options in *pairs*, and the TLS files if TLS is asked for. Raises `OptionError`."""
    given = dict(pairs)
    known = sorted((*_BOUNDS, *_TLS, "tls"))
    if len(given) < len(pairs):
        raise reader.wrong("an option is given twice")
    for name, value in given.items():
        if name not in known:
            raise reader.wrong(f"unknown option {name!r}; there are {', '.join(known)}")
        if not value:
            raise reader.wrong(f"the option {name} has no value; leave it out")
    tls = None
    if _is_tls(reader, given):
        if ("cert" in given) != ("key" in given):
            raise reader.wrong("cert and key belong together; give both or none")
        tls = TLSFiles(*map(given.get, _TLS))
    try:
        numbers = {name: _number(name, given[name]) for name in _BOUNDS if name in given}
        return Options(**numbers), tls
    except OptionError as error:
        raise reader.wrong(str(error)) from None


def _is_tls(reader: URLReader, given: Mapping[str, str]) -> bool:
    is_secure = reader.scheme == "etcds"
    word = given.get("tls", "true" if is_secure else "false")
    if word not in ("true", "false"):
        raise reader.wrong(f"tls is {word!r}; expected true or false")
    if word == "false" and is_secure:
        raise reader.wrong("this is with TLS; leave out tls=false, or write etcd://")
    for name in _TLS:
        if word == "false" and name in given:
            raise reader.wrong(f"{name} is for TLS; did you mean etcds://?")
    return word == "true"


def _number(name: str, text: str) -> Any:
    kind, _, _, words = _BOUNDS[name]
    try:
        return kind(text)
    except ValueError:
        raise OptionError(f"{name} is {text!r}; expected {words}") from None


PASSWORD_VARIABLE: Final = "HEADGATE_ETCD_PASSWORD"  # noqa: S105 - the name of one
DEFAULT_PREFIX: Final = "/headgate/"
_PORT: Final = 2379
_SCHEMES: Final = ("etcd", "etcds")


@dataclass(frozen=True, slots=True)
class EtcdURL:
    """A parsed URL with its defaults. *prefix* begins and ends with a slash."""

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
    options, tls = _read_options(reader, pairs)
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
