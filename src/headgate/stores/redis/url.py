"""The URL of a Redis store, read into a value. No I/O, and no password in any message.

    redis://user:password@host:6379/0          rediss:// with TLS
    unix://user:password@/path/to.sock?db=0
    redis+sentinel://user:password@host:26379,host:26379/primary-name/0
    redis+cluster://user:password@host:6379,host:6379

`valkey` may stand for `redis` in each. Characters such as `@ : / ? # %` in a name or a password
are percent-encoded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import Final, Literal, NamedTuple
from urllib.parse import parse_qsl, unquote

from headgate.errors import StoreURLError
from headgate.stores.redis.options import Options, TLSFiles, read_options

Topology = Literal["single", "sentinel", "cluster"]

_SCHEME: Final = re.compile(r"(?:(redis|valkey)(s)?(?:\+(sentinel|cluster))?|unix)", re.IGNORECASE)
_AUTHORITY: Final = re.compile(r"([^/?#]*)(.*)", re.DOTALL)
_HOST: Final = re.compile(r"[^\s/?#@\[\]:,%]+")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_DB: Final = re.compile(r"[0-9]{1,6}")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_EXPECTED: Final = (
    "expected redis://, rediss://, unix://, redis+sentinel:// or redis+cluster:// "
    "(or valkey in place of redis)"
)


class Address(NamedTuple):
    """Where a server listens: a host and a port, or the path of a Unix socket and port 0."""

    host: str
    port: int

    def __str__(self) -> str:
        if not self.port:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class RedisURL:
    """What a URL says, and what goes without saying.

    `addresses` are those of the server, the Sentinels or some nodes of the cluster. `timeout` is
    the time a request may take in all, in seconds; `connections` the most blocking ones per server.
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
        """Whether it names a cluster."""
        return self.topology == "cluster"

    @property
    def timeout(self) -> float:
        """Seconds that a request may take in all."""
        return self.options.timeout

    def __str__(self) -> str:
        return ",".join(map(str, self.addresses))


def parse_redis_url(url: str) -> RedisURL:
    """What *url* says; `StoreURLError` if it makes no sense, with what would."""
    scheme, separator, rest = url.partition("://")
    match = _SCHEME.fullmatch(scheme)
    if match is None or not separator:
        # The rest is not shown: a password may be in it.
        shown = repr(f"{scheme}://...") if separator else "a URL without '://'"
        raise StoreURLError(f"cannot open the store {shown}; {_EXPECTED}")
    found = _AUTHORITY.fullmatch(rest)
    authority, rest = found.groups() if found else ("", "")
    _refuse_stray_characters(scheme, authority, rest)
    rest, _, query = rest.partition("?")
    username, password = _credentials(scheme, authority)
    hosts = authority.rpartition("@")[2]
    pairs = _pairs(scheme, query)
    topology: Topology = (match[3] or "single").lower()  # type: ignore[assignment]
    options, tls, db_text = read_options(
        scheme, pairs, is_tls=bool(match[2]), is_sentinel=topology == "sentinel"
    )
    if match[1] is None:
        addresses: tuple[Address, ...] = (_socket_address(hosts, rest),)
        rest = ""
    else:
        addresses = _addresses(scheme, hosts, topology)
    name, path_db = _path(scheme, rest, topology)
    db = _database(scheme, path_db, db_text, topology)
    return RedisURL(topology, addresses, username, password, db, name, tls, options)


def _refuse_stray_characters(scheme: str, authority: str, rest: str) -> None:
    if "@" in rest:
        # Nothing of it may be shown: it is likely the end of a password.
        raise StoreURLError(
            f"{scheme}://: there is an '@' after a '/', '?' or '#'; in a password write these as "
            "%2F, %3F and %23, and an '@' anywhere else as %40"
        )
    if "#" in rest:
        raise StoreURLError(f"{scheme}://: a '#' has no meaning here; in a password write it %23")
    if any(not character.isprintable() for character in authority + rest):
        raise StoreURLError(f"{scheme}://: it contains a character that cannot be printed")


def _decoded(scheme: str, text: str, what: str) -> str:
    try:
        if not _BAD_ESCAPE.search(text):
            return unquote(text, errors="strict")
    except UnicodeDecodeError:
        pass
    raise StoreURLError(
        f"{scheme}://: {what} is not percent-encoded UTF-8; write a '%' in it as %25"
    )


def _credentials(scheme: str, authority: str) -> tuple[str | None, str | None]:
    userinfo, at, _ = authority.rpartition("@")
    if not at:
        return None, None
    if "@" in userinfo:
        raise StoreURLError(f"{scheme}://: there are two '@'; write the one in the password as %40")
    name, colon, secret = userinfo.partition(":")
    if not colon or not (name or secret):
        raise StoreURLError(
            f"{scheme}://: before the '@' belongs user:password, or :password without a user"
        )
    username = _decoded(scheme, name, "the user name")
    return username or None, _decoded(scheme, secret, "the password")


def _pairs(scheme: str, query: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError:
        raise StoreURLError(
            f"{scheme}://: after the '?' belongs name=value&name=value, percent-encoded"
        ) from None


def _socket_address(hosts: str, path: str) -> Address:
    if hosts:
        raise StoreURLError(
            "unix://: a path begins with a '/', after the credentials if there are any: "
            "unix:///run/redis.sock or unix://user:password@/run/redis.sock"
        )
    if len(path) < 2:
        raise StoreURLError("unix://: the path is missing; expected unix:///run/redis.sock")
    return Address(_decoded("unix", path, "the path"), 0)


def _addresses(scheme: str, hosts: str, topology: Topology) -> tuple[Address, ...]:
    texts = hosts.split(",")
    if topology == "single":
        if len(texts) > 1:
            raise StoreURLError(
                f"{scheme}://: several hosts; one is expected here, several with "
                "redis+sentinel:// and redis+cluster://"
            )
        if not hosts:
            return (Address("localhost", 6379),)
    usual = 26379 if topology == "sentinel" else 6379
    addresses = tuple(_address(scheme, text, usual) for text in texts)
    if len(set(addresses)) < len(addresses):
        raise StoreURLError(f"{scheme}://: a host is named twice")
    return addresses


def _address(scheme: str, text: str, usual_port: int) -> Address:
    host, port = _split_port(scheme, text)
    if port is None:
        return Address(host, usual_port)
    if not _PORT.fullmatch(port) or int(port) > 65535:
        # Not shown: in redis://user:password the @host was forgotten.
        raise StoreURLError(
            f"{scheme}://: what follows a host and ':' is no port from 1 to 65535; expected "
            "host:port, or user:password@host:port"
        )
    return Address(host, int(port))


def _split_port(scheme: str, text: str) -> tuple[str, str | None]:
    if text.startswith("["):
        inside, bracket, after = text[1:].partition("]")
        try:
            host = str(IPv6Address(_decoded(scheme, inside, "the host")))
        except ValueError:
            bracket = ""
        if not bracket or (after and not after.startswith(":")):
            raise StoreURLError(f"{scheme}://: expected an IPv6 address as [::1] or [::1]:6379")
        return host, after[1:] if after else None
    host, colon, port = text.partition(":")
    if not _HOST.fullmatch(host):
        raise StoreURLError(
            f"{scheme}://: a host is missing or no host's name; expected host:port, and commas "
            "between several"
        )
    return host, port if colon else None


def _path(scheme: str, path: str, topology: Topology) -> tuple[str, str]:
    """The primary's name and the text of the database, "" where there is none."""
    parts = path.strip("/").split("/") if path.strip("/") else []
    name = ""
    if topology == "sentinel":
        if not parts:
            raise StoreURLError(
                f"{scheme}://: the name that the Sentinels know the primary by is missing; "
                "expected redis+sentinel://host:26379/mymaster"
            )
        name = _decoded(scheme, parts.pop(0), "the primary's name")
    if len(parts) > 1:
        raise StoreURLError(f"{scheme}://: a path too long; only the database's number belongs in")
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
