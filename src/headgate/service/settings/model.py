"""All that can be set of the service: one value, complete and consistent.

This is the only list of the settings. The flags, the variables, the fields of a file and the table
in `docs/configuration.md` are made from it, or held against it by a test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headgate.errors import OptionError
from headgate.service.settings.answers import AnswerSettings
from headgate.service.settings.consistency import contradictions
from headgate.service.settings.regions import RegionPeer, read_peers, read_region
from headgate.service.settings.tokens import (
    AdminCertificate,
    AdminToken,
    read_certificates,
    read_tokens,
)
from headgate.settings import readers
from headgate.settings.address import EXPECTED, Address
from headgate.settings.declaring import declared_in, setting

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
