"""The URL of a Redis store, parsed. No I/O, and no password in any message.

    redis://user:password@host:6379/0          rediss:// with TLS
    unix://user:password@/path/to.sock?db=0
    redis+sentinel://user:password@host:26379,host:26379/primary-name/0
    redis+cluster://user:password@host:6379,host:6379

`valkey` may stand for `redis` in each. Characters such as `@ : / ? # %` in a name or a password
are percent-encoded.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from headgate.errors import StoreURLError
from headgate.server_urls import Address, URLReader

if TYPE_CHECKING:
    from collections.abc import Sequence


_COUNT: Final = re.compile("[1-9][0-9]{0,3}")
_SECONDS: Final = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,9})?|\.[0-9]{1,9}")
_LONGEST: Final = 600.0
_YES: Final = ("true", "1", "yes")
_NO: Final = ("false", "0", "no")
_OWN: Final = ("connections", "db", "timeout")
_TLS: Final = (
    "ssl_ca_certs",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_keyfile",
)
_SENTINEL: Final = ("sentinel_password", "sentinel_username")

LEAST_CONNECT_TIMEOUT: Final = 0.25
"""Seconds that connecting may take, at least."""

CertificateCheck = Literal["none", "optional", "required"]


@dataclass(frozen=True, slots=True)
class TLSFiles:
    """The paths of PEM files, and how to verify the server."""

    ca_certs: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    cert_reqs: CertificateCheck = "required"
    check_hostname: bool = True


@dataclass(frozen=True, slots=True)
class Options:
    """Headgate's own options."""

    timeout: float = 0.05
    connections: int = 2
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)


def read_options(
    scheme: str, pairs: Sequence[tuple[str, str]], *, is_tls: bool, is_sentinel: bool
) -> tuple[Options, TLSFiles | None, str]:
    """The options, the TLS files if *is_tls*, and the text of `db`, "" if there is none."""
    given = dict(pairs)
    if len(given) < len(pairs):
        raise StoreURLError(f"{scheme}://: an option is given twice")
    _refuse_unknown(scheme, given, is_tls=is_tls, is_sentinel=is_sentinel)
    for name, value in given.items():
        if not value:
            raise StoreURLError(f"{scheme}://: the option {name} has no value; leave it out")
    tls = _tls(scheme, given) if is_tls else None
    return _own(scheme, given), tls, given.get("db", "")


def _refuse_unknown(scheme: str, given: dict[str, str], *, is_tls: bool, is_sentinel: bool) -> None:
    known = (*_OWN, *(_TLS if is_tls else ()), *(_SENTINEL if is_sentinel else ()))
    for name in given:
        if name in known:
            continue
        if name in _TLS:
            raise StoreURLError(f"{scheme}://: {name} is for TLS; did you mean rediss://?")
        if name in _SENTINEL:
            raise StoreURLError(f"{scheme}://: {name} is for redis+sentinel://")
        raise StoreURLError(
            f"{scheme}://: unknown option {name!r}; there are {', '.join(sorted(known))}"
        )


def _own(scheme: str, given: dict[str, str]) -> Options:
    name, secret = given.get("sentinel_username"), given.get("sentinel_password")
    if name and not secret:
        raise StoreURLError(f"{scheme}://: sentinel_username needs a sentinel_password")
    return Options(
        timeout=_seconds(scheme, given.get("timeout", "0.05")),
        connections=_count(scheme, given.get("connections", "2")),
        sentinel_username=name,
        sentinel_password=secret,
    )


def _tls(scheme: str, given: dict[str, str]) -> TLSFiles:
    check = _one_of(
        scheme,
        "ssl_cert_reqs",
        given.get("ssl_cert_reqs", "required"),
        ("none", "optional", "required"),
    )
    hostname = _boolean(scheme, "ssl_check_hostname", given.get("ssl_check_hostname"))
    if check == "none" and (hostname or "ssl_ca_certs" in given):
        raise StoreURLError(
            f"{scheme}://: ssl_cert_reqs=none looks at no certificate: leave out "
            "ssl_check_hostname and ssl_ca_certs, or ssl_cert_reqs"
        )
    if "ssl_keyfile" in given and "ssl_certfile" not in given:
        raise StoreURLError(f"{scheme}://: ssl_keyfile needs an ssl_certfile")
    return TLSFiles(
        ca_certs=given.get("ssl_ca_certs"),
        certfile=given.get("ssl_certfile"),
        keyfile=given.get("ssl_keyfile"),
        cert_reqs=check,  # type: ignore[arg-type]
        check_hostname=check != "none" and hostname is not False,
    )


def _seconds(scheme: str, text: str) -> float:
    value = float(text) if _SECONDS.fullmatch(text) else math.nan
    if not 0 < value <= _LONGEST:
        raise StoreURLError(
            f"{scheme}://: timeout is {text!r}; expected seconds above 0, up to {_LONGEST:.0f}, "
            "such as 0.05"
        )
    return value


def _count(scheme: str, text: str) -> int:
    if not _COUNT.fullmatch(text):
        raise StoreURLError(f"{scheme}://: connections is {text!r}; expected 1 to 9999")
    return int(text)


def _one_of(scheme: str, name: str, text: str, words: tuple[str, ...]) -> str:
    if text not in words:
        raise StoreURLError(f"{scheme}://: {name} is {text!r}; expected {' or '.join(words)}")
    return text


def _boolean(scheme: str, name: str, text: str | None) -> bool | None:
    if text is None:
        return None
    if text.lower() in _YES:
        return True
    if text.lower() in _NO:
        return False
    raise StoreURLError(f"{scheme}://: {name} is {text!r}; expected true or false")


Topology = Literal["single", "sentinel", "cluster"]

_SCHEME: Final = re.compile(r"(?:(redis|valkey)(s)?(?:\+(sentinel|cluster))?|unix)", re.IGNORECASE)
_DB: Final = re.compile(r"[0-9]{1,6}")
_EXPECTED: Final = (
    "expected redis://, rediss://, unix://, redis+sentinel:// or redis+cluster:// "
    "(or valkey in place of redis)"
)


@dataclass(frozen=True, slots=True)
class RedisURL:
    """A parsed URL, with defaults filled in.

    `addresses` are those of the server, the Sentinels or some nodes of the cluster. `timeout` is
    the time that a call may take once there is a connection, `connect_timeout` the time that
    connecting may take, in seconds; `connections` the most blocking ones per server.
    """

    topology: Topology
    addresses: tuple[Address, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    db: int = 0
    primary_name: str = ""
    tls: TLSFiles | None = None
    options: Options = field(default_factory=Options)

    @property
    def is_cluster(self) -> bool:
        """True if it names a cluster."""
        return self.topology == "cluster"

    @property
    def timeout(self) -> float:
        """Seconds that a call may take once there is a connection."""
        return self.options.timeout

    @property
    def connect_timeout(self) -> float:
        """Seconds that connecting may take: several round trips, however short the timeout."""
        return max(4 * self.options.timeout, LEAST_CONNECT_TIMEOUT)

    def __str__(self) -> str:
        return ",".join(map(str, self.addresses))


def parse_redis_url(url: str) -> RedisURL:
    """Parse *url*; `StoreURLError` says what is wrong with it, and what is expected."""
    scheme, separator, rest = url.partition("://")
    match = _SCHEME.fullmatch(scheme)
    if match is None or not separator:
        # The rest is not shown: a password may be in it.
        shown = repr(f"{scheme}://...") if separator else "a URL without '://'"
        raise StoreURLError(f"cannot open the store {shown}; {_EXPECTED}")
    reader = URLReader(scheme, StoreURLError)
    authority, rest, pairs = reader.split(rest)
    username, password = _credentials(reader, authority)
    hosts = authority.rpartition("@")[2]
    topology: Topology = (match[3] or "single").lower()  # type: ignore[assignment]
    options, tls, db_text = read_options(
        scheme, pairs, is_tls=bool(match[2]), is_sentinel=topology == "sentinel"
    )
    if match[1] is None:
        addresses: tuple[Address, ...] = (_socket_address(reader, hosts, rest),)
        rest = ""
    else:
        addresses = _addresses(reader, hosts, topology)
    name, path_db = _path(reader, rest, topology)
    db = _database(scheme, path_db, db_text, topology)
    return RedisURL(topology, addresses, username, password, db, name, tls, options)


def _credentials(reader: URLReader, authority: str) -> tuple[str | None, str | None]:
    userinfo = reader.userinfo(authority)
    if userinfo is None:
        return None, None
    name, colon, secret = userinfo.partition(":")
    if not colon or not (name or secret):
        raise reader.wrong("before the '@' belongs user:password, or :password without a user")
    username = reader.decoded(name, "the user name")
    return username or None, reader.decoded(secret, "the password")


def _socket_address(reader: URLReader, hosts: str, path: str) -> Address:
    if hosts:
        raise StoreURLError(
            "unix://: a path begins with a '/', after the credentials if there are any: "
            "unix:///run/redis.sock or unix://user:password@/run/redis.sock"
        )
    if len(path) < 2:
        raise StoreURLError("unix://: the path is missing; expected unix:///run/redis.sock")
    return Address(reader.decoded(path, "the path"), 0)


def _addresses(reader: URLReader, hosts: str, topology: Topology) -> tuple[Address, ...]:
    if topology == "single":
        if "," in hosts:
            raise reader.wrong(
                "several hosts; one is expected here, several with "
                "redis+sentinel:// and redis+cluster://"
            )
        if not hosts:
            return (Address("localhost", 6379),)
    return reader.addresses(hosts, 26379 if topology == "sentinel" else 6379)


def _path(reader: URLReader, path: str, topology: Topology) -> tuple[str, str]:
    """The primary's name and the text of the database, "" where there is none."""
    parts = path.strip("/").split("/") if path.strip("/") else []
    name = ""
    if topology == "sentinel":
        if not parts:
            raise reader.wrong(
                "the name that the Sentinels know the primary by is missing; "
                "expected redis+sentinel://host:26379/mymaster"
            )
        name = reader.decoded(parts.pop(0), "the primary's name")
    if len(parts) > 1:
        raise reader.wrong("a path too long; only the database's number belongs in")
    return name, parts[0] if parts else ""


def _database(scheme: str, in_path: str, in_query: str, topology: Topology) -> int:
    if in_path and in_query:
        raise StoreURLError(f"{scheme}://: the database is given twice, in the path and as db")
    text = in_path or in_query or "0"
    if not _DB.fullmatch(text):
        raise StoreURLError(f"{scheme}://: the database is {text!r}; expected a number such as 0")
    if topology == "cluster" and int(text):
        raise StoreURLError(f"{scheme}://: a cluster has no database but 0; leave it out")
    return int(text)
