"""The configuration of the service: what can be set of it, and what makes sense together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.config import SettingsError, gather_values, parse_address, readers
from headgate.config.declaration import declared_in, setting
from headgate.config.readers import EXPECTED, Address
from headgate.config.service_values import (
    AdminCertificate,
    AdminToken,
    AnswerSettings,
    RegionPeer,
    read_certificates,
    read_peers,
    read_region,
    read_tokens,
)
from headgate.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headgate.config import Setting, Told
    from headgate.policy.problems import Problem

__all__ = [
    "SETTINGS",
    "Address",
    "AdminToken",
    "Gathered",
    "Settings",
    "SettingsError",
    "gather",
    "parse_address",
]


# Settings that make sense each by itself, and not together.


NO_RULES: Final = (
    "there are no rules; give --rules FILE (a file, a directory or etcd://...) or --envoy-config "
    "DIR. The shortest file is: {version: 1, rules: [{id: all, key_by: ip, limit: 100/minute}]}"
)

_FAR: Final = ("redis", "valkey", "unix")
A_FAR_ONE: Final = "Redis or Valkey"
_PAIRS: Final = (
    ("http_tls_cert", "http_tls_key", "http_tls_client_ca"),
    ("grpc_tls_cert", "grpc_tls_key", "grpc_tls_client_ca"),
)


def contradictions(values: Mapping[str, Any]) -> Iterator[Told]:
    """Everything that is wrong with *values*, all settings by name, as a whole."""
    if values["rules"] is None and values["envoy_config"] is None:
        yield "rules", NO_RULES
    if not values["http"] and not values["grpc"]:
        yield "http", "both http and grpc are off: nothing would be served"
    yield from _of_workers(values)
    yield from _of_regions(values)
    yield from _of_addresses(values)
    for cert, key, ca in _PAIRS:
        if (values[cert] is None) != (values[key] is None):
            given, missing = (cert, key) if values[key] is None else (key, cert)
            yield given, f"{missing} is missing; a certificate and its key go together"
        elif values[ca] is not None and values[cert] is None:
            yield ca, f"{cert} and {key} are missing; without TLS no client shows a certificate"
    if values["admin_certificates"] and values["http_tls_client_ca"] is None:
        yield "admin_certificates", "http_tls_client_ca is missing: who says they are genuine?"
    if values["rlqs_silence"] > values["rlqs_idle"]:
        yield "rlqs_silence", "expected no more than rlqs_idle: a bucket is abandoned before that"


def _of_workers(values: Mapping[str, Any]) -> Iterator[Told]:
    if values["workers"] == 1:
        return
    if str(values["store"]).lower().startswith("memory:"):
        told = f"{values['workers']} workers with memory:// would each count by themselves"
        yield "workers", f"{told}; give --store redis://..., or --workers 1"


def _of_regions(values: Mapping[str, Any]) -> Iterator[Told]:
    peers = values["region_peers"]
    if not peers:
        return
    if values["region"] is None:
        yield "region", "missing; with region_peers each node says which region it is in"
    if not _is_far(values["store"]):  # it may have a password in it: not shown
        yield "region_peers", f"a region's own store is {A_FAR_ONE}; give --store redis://..."
    names, stores = [], [_place(values["store"])]
    for peer in peers:
        if peer.name in names:
            yield "region_peers", f"the region {peer.name} is there twice"
        elif peer.name == values["region"]:
            yield "region_peers", f"{peer.name} is this region; expected the others only"
        elif not _is_far(peer.store):
            yield "region_peers", f"the store of {peer.name} is not {A_FAR_ONE}"
        elif _place(peer.store) in stores:
            told = f"the store of {peer.name} is another region's too; all would count twice"
            yield "region_peers", told
        names.append(peer.name)
        stores.append(_place(peer.store))


def _is_far(store: str) -> bool:
    return store.lower().startswith(_FAR)


def _place(store: str) -> str:
    """Where *store* is, without how it is asked."""
    return store.partition("?")[0].rstrip("/")


def _of_addresses(values: Mapping[str, Any]) -> Iterator[Told]:
    """Two listeners at one address, also those of the workers that have one each."""
    taken = {address for address in values["http"] if address.is_unix or address.port}
    is_each = values["grpc_ports"] == "each"
    for address in values["grpc"]:
        for number in range(values["workers"] if is_each else 1):
            if not address.is_unix and address.port + number > 65_535:
                yield "grpc", f"worker {number} would have port {address.port + number}"
                break
            own = address.nth(number)
            if own in taken:
                yield "grpc", f"{own} is taken by another listener of this service"
            if own.is_unix or own.port:
                taken.add(own)


# All that can be set of the service: one value, complete and consistent.
#
# This is the only list of the settings. The flags, the variables, the fields of a file and the
# table in `docs/configuration.md` are made from it, or held against it by a test.


_MIB: Final = 1024 * 1024
_RULES: Final = "Rules and counters"
_LISTENING: Final = "Listening"
_TLS: Final = "TLS"
_ADMIN: Final = "Control plane"
_BOUNDS: Final = "Bounds"

_PATH: Final = readers.text("a path")
_SECONDS: Final = "seconds, or 30s, 500ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(AnswerSettings):
    """What the service is to do. Times are in seconds, sizes in bytes.

    Raises `OptionError` if it makes no sense as a whole.
    """

    rules: str | None = setting(
        readers.text("a path, or etcd://host:2379/prefix"),
        _RULES,
        "PATH or etcd://...",
        "where the rules are: a file, a directory of them, or etcd",
        default=None,
    )
    envoy_config: str | None = setting(
        _PATH, _RULES, "DIR", "a directory with envoyproxy/ratelimit's own YAML", default=None
    )
    envoy_merge_domains: bool = setting(
        readers.boolean,
        _RULES,
        "BOOL",
        "several of those files may describe one domain",
        default=False,
    )
    state_dir: str | None = setting(
        _PATH,
        _RULES,
        "DIR",
        "where the last good policy of etcd is kept, to start on while etcd is down",
        default=None,
    )
    store: str = setting(
        readers.text("a store's URL"), _RULES, "URL", "where the counters are", default="memory://"
    )
    region: str | None = setting(
        read_region, _RULES, "NAME", "the region that this node is in", default=None
    )
    region_peers: tuple[RegionPeer, ...] = setting(
        read_peers,
        _RULES,
        "NAME=URL",
        "the stores of the other regions, told what is used under rules with across_regions",
        default=(),
        is_listed=True,
    )
    namespace: str = setting(
        readers.text("a name"),
        _RULES,
        "NAME",
        "what all counters' names begin with",
        default="headgate",
    )
    salt: bytes = setting(
        readers.secret,
        _RULES,
        "TEXT",
        "hashed into what stands for a caller's credentials; the same everywhere",
        default=b"",
        is_secret=True,
    )
    salt_file: str | None = setting(
        _PATH, _RULES, "FILE", "a file with the salt in it", default=None
    )
    secret: bytes = setting(
        readers.secret,
        _RULES,
        "TEXT",
        "signs what callers bring back (reservations); the same in all replicas",
        default=b"",
        is_secret=True,
    )
    secret_file: str | None = setting(
        _PATH, _RULES, "FILE", "a file with the secret in it", default=None
    )

    http: tuple[Address, ...] = setting(
        readers.addresses,
        _LISTENING,
        "ADDRESS",
        f"where HTTP is served: {EXPECTED}; off for nowhere",
        default=(Address("127.0.0.1", 8090),),
        is_listed=True,
    )
    grpc: tuple[Address, ...] = setting(
        readers.addresses,
        _LISTENING,
        "ADDRESS",
        "where gRPC is served, in the same words",
        default=(Address("127.0.0.1", 8091),),
        is_listed=True,
    )
    grpc_transport: str = setting(
        readers.choice("auto", "lean", "grpcio"),
        _LISTENING,
        "auto, lean or grpcio",
        "what carries gRPC; auto is the lean one where it can be used",
        default="auto",
    )
    grpc_ports: str = setting(
        readers.choice("shared", "each"),
        _LISTENING,
        "shared or each",
        "with several workers: one port for all, or PORT + n (unix: PATH.n) for worker n",
        default="shared",
    )
    workers: int = setting(
        readers.whole(1, 512), _LISTENING, "N", "how many processes serve", default=1
    )
    socket_mode: int = setting(
        readers.octal, _LISTENING, "MODE", "the permissions of unix sockets", default=0o660
    )

    http_tls_cert: str | None = setting(
        _PATH, _TLS, "FILE", "the certificate, with its chain, for HTTPS", default=None
    )
    http_tls_key: str | None = setting(_PATH, _TLS, "FILE", "its key", default=None)
    http_tls_client_ca: str | None = setting(
        _PATH, _TLS, "FILE", "clients must show a certificate of this authority", default=None
    )
    grpc_tls_cert: str | None = setting(
        _PATH, _TLS, "FILE", "the certificate, with its chain, for gRPC", default=None
    )
    grpc_tls_key: str | None = setting(_PATH, _TLS, "FILE", "its key", default=None)
    grpc_tls_client_ca: str | None = setting(
        _PATH, _TLS, "FILE", "clients must show a certificate of this authority", default=None
    )

    admin_token: bytes = setting(
        readers.secret,
        _ADMIN,
        "TEXT",
        "a token that may do everything; with no token at all the admin API is closed",
        default=b"",
        is_secret=True,
    )
    admin_token_file: str | None = setting(
        _PATH, _ADMIN, "FILE", "a file with that token in it", default=None
    )
    admin_tokens: tuple[AdminToken, ...] = setting(
        read_tokens,
        _ADMIN,
        "LIST",
        "more of them: name, role (read or write), and token, token_file or sha256",
        default=(),
        is_nested=True,
    )
    admin_certificates: tuple[AdminCertificate, ...] = setting(
        read_certificates,
        _ADMIN,
        "LIST",
        "who is known by a client certificate: name, role, subject (CN=ada,O=shop)",
        default=(),
        is_nested=True,
    )
    audit_file: str | None = setting(
        _PATH, _ADMIN, "FILE", "where every change of the rules is noted", default=None
    )

    dashboard_keys: str = setting(
        readers.choice("hashed", "clear"),
        _ADMIN,
        "hashed or clear",
        "how the page at / and the admin API tell whose counters are busy",
        default="hashed",
    )

    gateways: tuple[str, ...] = setting(
        readers.networks,
        _BOUNDS,
        "NETWORKS",
        "who may say for whom it asks (forward auth): networks, unix for unix sockets, or off",
        default=("127.0.0.0/8", "::1/128", "unix"),
        is_listed=True,
    )
    max_body: int = setting(
        readers.whole(1024, 64 * _MIB),
        _BOUNDS,
        "BYTES",
        "the largest body of a request",
        default=64 * 1024,
    )
    max_header: int = setting(
        readers.whole(1024, _MIB),
        _BOUNDS,
        "BYTES",
        "the largest head of a request: its line and its headers; 431 beyond",
        default=32 * 1024,
    )
    max_message: int = setting(
        readers.whole(1024, 64 * _MIB),
        _BOUNDS,
        "BYTES",
        "the largest message of gRPC",
        default=_MIB,
    )
    max_connections: int = setting(
        readers.whole(1, 1_000_000),
        _BOUNDS,
        "N",
        "how many connections a worker holds for HTTP; 503 beyond",
        default=10_000,
    )
    deadline: float = setting(
        readers.seconds(0.001, 60.0),
        _BOUNDS,
        _SECONDS,
        "the longest that an answer may take; 503 then",
        default=1.0,
    )
    receive_timeout: float = setting(
        readers.seconds(0.001, 60.0),
        _BOUNDS,
        _SECONDS,
        "the longest that a request may take to arrive",
        default=10.0,
    )
    idle_timeout: float = setting(
        readers.seconds(),
        _BOUNDS,
        _SECONDS,
        "how long a connection may say nothing",
        default=75.0,
    )
    linger: float = setting(
        readers.seconds(0.0),
        _BOUNDS,
        _SECONDS,
        "how long it goes on accepting after SIGTERM, already not ready",
        default=0.5,
    )
    drain: float = setting(
        readers.seconds(0.0),
        _BOUNDS,
        _SECONDS,
        "how long requests under way may take to finish after that",
        default=20.0,
    )

    def __post_init__(self) -> None:
        for name, told in contradictions({name: getattr(self, name) for name in NAMES}):
            raise OptionError(f"{name}: {told}")

    @property
    def has_admin(self) -> bool:
        """Whether anybody may call the admin API."""
        return bool(self.admin_token or self.admin_tokens or self.admin_certificates)

    @property
    def is_in_memory(self) -> bool:
        """Whether the counters are this process's own."""
        return self.store.lower().startswith("memory:")

    @property
    def is_in_shared_memory(self) -> bool:
        """Whether the counters are those of all workers on this machine, and nobody else's."""
        return self.store.lower().startswith("shm:")


_LAST: Final = {one.name for one in declared_in(AnswerSettings)}
SETTINGS: Final = tuple(sorted(declared_in(Settings), key=lambda one: one.name in _LAST))
NAMES: Final = tuple(one.name for one in SETTINGS)


# The settings of the service, from wherever they are said.


@dataclass(frozen=True, slots=True)
class Gathered:
    """The settings, and what their author may regret."""

    settings: Settings
    warnings: tuple[Problem, ...]


def gather(
    *,
    flags: Mapping[str, str | Sequence[str] | None],
    variables: Mapping[str, str],
    config: str | None = None,
    others: Sequence[Setting] = (),
) -> Gathered:
    """The settings that *flags*, *variables* and the file *config* make: see `gather_values`."""
    found = gather_values(
        SETTINGS,
        flags=flags,
        variables=variables,
        config=config,
        contradictions=contradictions,
        others=others,
    )
    return Gathered(Settings(**found.values), found.warnings)
