"""The URL of a Redis store, parsed. No I/O, and no password in any message.

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
from typing import TYPE_CHECKING, Any, Final, Literal

from headgate.errors import StoreURLError
from headgate.server_urls import Address, URLReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.server_urls import Options

Topology = Literal["single", "sentinel", "cluster"]
CertificateCheck = Literal["none", "optional", "required"]

_SCHEME: Final = re.compile(r"(?:(redis|valkey)(s)?(?:\+(sentinel|cluster))?|unix)", re.IGNORECASE)
_EXPECTED: Final = (
    "expected redis://, rediss://, unix://, redis+sentinel:// or redis+cluster:// "
    "(or valkey in place of redis)"
)
_SECONDS: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,9})?|\.[0-9]{1,9}")


def _number(pattern: str) -> Callable[[str], int | None]:
    return lambda text: int(text) if re.fullmatch(pattern, text) else None


def _text(pattern: str) -> Callable[[str], str | None]:
    return lambda text: text if re.fullmatch(pattern, text) else None


def _timeout(text: str) -> float | None:
    seconds = float(text) if _SECONDS.fullmatch(text) else 0.0
    return seconds if 0 < seconds <= 600 else None


_OWN: Final[Options] = {
    "connections": (_number("[1-9][0-9]{0,3}"), "1 to 9999"),
    "db": (_number("[0-9]{1,6}"), "a number such as 0"),
    "timeout": (_timeout, "seconds above 0, up to 600, such as 0.05"),
}
_TLS: Final[Options] = {
    "ssl_ca_certs": (_text(".+"), "a path"),
    "ssl_cert_reqs": (_text("none|optional|required"), "none or optional or required"),
    "ssl_certfile": (_text(".+"), "a path"),
    "ssl_check_hostname": (_text("(?i:true|1|yes|false|0|no)"), "true or false"),
    "ssl_keyfile": (_text(".+"), "a path"),
}
_SENTINEL: Final[Options] = {
    "sentinel_password": (_text("(?s:.+)"), "a password"),
    "sentinel_username": (_text("(?s:.+)"), "a name"),
}

LEAST_CONNECT_TIMEOUT: Final = 0.25
"""Seconds that connecting may take, at least."""


@dataclass(frozen=True, slots=True)
class TLSFiles:
    """The paths of PEM files, and the checks of the server's certificate."""

    ca_certs: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    cert_reqs: CertificateCheck = "required"
    check_hostname: bool = True


@dataclass(frozen=True, slots=True)
class RedisURL:
    """A parsed URL, with defaults filled in.

    `addresses` are those of the server, the Sentinels or some nodes of the cluster. `timeout` is
    the time that a call may take once there is a connection, in seconds; `connections` is the
    number of blocking connections to each server, at most.
    """

    topology: Topology
    addresses: tuple[Address, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    db: int = 0
    primary_name: str = ""
    tls: TLSFiles | None = None
    timeout: float = 0.05
    connections: int = 2
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)

    @property
    def is_cluster(self) -> bool:
        """True if it names a cluster."""
        return self.topology == "cluster"

    @property
    def connect_timeout(self) -> float:
        """Seconds that connecting may take: several round trips, however short the timeout."""
        return max(4 * self.timeout, LEAST_CONNECT_TIMEOUT)

    def __str__(self) -> str:
        return ",".join(map(str, self.addresses))


def parse_redis_url(url: str) -> RedisURL:
    """Parse *url*. Raises `StoreURLError`, with what is wrong and what is expected."""
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
    if match[1] is None:
        addresses: tuple[Address, ...] = (_socket_address(reader, hosts, rest),)
        rest = ""
    else:
        addresses = _addresses(reader, hosts, topology)
    name, in_path = _path(reader, rest, topology)
    if in_path:
        pairs = [*pairs, ("db", in_path)]
    given = _read_options(reader, pairs, is_tls=bool(match[2]), topology=topology)
    tls = _tls(reader, given) if match[2] else None
    if topology == "cluster" and given.get("db"):
        raise reader.wrong("a cluster has no database but 0; leave it out")
    if "sentinel_username" in given and "sentinel_password" not in given:
        raise reader.wrong("sentinel_username needs a sentinel_password")
    own = {name: given[name] for name in (*_OWN, *_SENTINEL) if name in given}
    return RedisURL(topology, addresses, username, password, primary_name=name, tls=tls, **own)


def _read_options(
    reader: URLReader, pairs: list[tuple[str, str]], *, is_tls: bool, topology: Topology
) -> dict[str, Any]:
    known = {
        **_OWN,
        **(_TLS if is_tls else {}),
        **(_SENTINEL if topology == "sentinel" else {}),
    }
    for name, _ in pairs:
        if name in _TLS and name not in known:
            raise reader.wrong(f"{name} is for TLS; did you mean rediss://?")
        if name in _SENTINEL and name not in known:
            raise reader.wrong(f"{name} is for redis+sentinel://")
    return reader.options(pairs, known)


def _tls(reader: URLReader, given: dict[str, Any]) -> TLSFiles:
    check = given.get("ssl_cert_reqs", "required")
    hostname = given.get("ssl_check_hostname", "").lower()
    is_checked = hostname in ("true", "1", "yes")
    if check == "none" and (is_checked or "ssl_ca_certs" in given):
        raise reader.wrong(
            "ssl_cert_reqs=none looks at no certificate: leave out "
            "ssl_check_hostname and ssl_ca_certs, or ssl_cert_reqs"
        )
    if "ssl_keyfile" in given and "ssl_certfile" not in given:
        raise reader.wrong("ssl_keyfile needs an ssl_certfile")
    return TLSFiles(
        ca_certs=given.get("ssl_ca_certs"),
        certfile=given.get("ssl_certfile"),
        keyfile=given.get("ssl_keyfile"),
        cert_reqs=check,
        check_hostname=check != "none" and (is_checked or not hostname),
    )


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
    """Return the primary's name and the text of the database, "" where there is none."""
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
