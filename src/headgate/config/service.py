"""The settings of the service: one declaration each, and the rules that hold between them.

The flags, the variables, the fields of a file and the tables in `docs/configuration.md` are made
from this list.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from headgate.config.declaration import Setting, declared_in
from headgate.config.sources import gather_values, tls_contradictions
from headgate.config.values import (
    ADDRESSES,
    ADMIN_CERTIFICATES,
    ADMIN_TOKENS,
    DIRECTORY,
    FILE,
    HOSTS,
    MODE,
    NETWORKS,
    PEERS,
    PORTION,
    REGION,
    SECRET,
    Address,
    AdminCertificate,
    AdminToken,
    RegionPeer,
    time,
)
from headgate.errors import OptionError
from headgate.policy.fields import BOOLEAN, choice, whole, word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headgate.config.sources import Contradiction
    from headgate.policy.problems import Problem

_MIB: Final = 1024 * 1024
_rules: Final = partial(Setting, "Rules and counters")
_listening: Final = partial(Setting, "Listening")
_tls: Final = partial(Setting, "TLS")
_admin: Final = partial(Setting, "Control plane")
_bounds: Final = partial(Setting, "Bounds")
_rls: Final = partial(Setting, "Envoy RLS and RLQS")
_responses: Final = partial(Setting, "Responses")
_logs: Final = partial(Setting, "Logs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The configuration of the service. Times are in seconds, sizes in bytes.

    Raises `OptionError` if it makes no sense as a whole.
    """

    rules: Annotated[
        str | None, _rules(word("a path, or etcd://host:2379/prefix"), "PATH or etcd://...")
    ] = None
    """The rules: a file, a directory of them, or etcd."""
    envoy_config: Annotated[str | None, _rules(DIRECTORY)] = None
    """A directory with envoyproxy/ratelimit's own YAML."""
    envoy_merge_domains: Annotated[bool, _rules(BOOLEAN)] = False
    """Several of those files may describe one domain."""
    state_dir: Annotated[str | None, _rules(DIRECTORY)] = None
    """Where the last good policy of etcd is kept, to start on while etcd is down."""
    store: Annotated[str, _rules(word("a store's URL"), "URL")] = "memory://"
    """The store of the counters."""
    region: Annotated[str | None, _rules(REGION, "NAME")] = None
    """The region that this node is in."""
    region_peers: Annotated[tuple[RegionPeer, ...], _rules(PEERS, "NAME=URL")] = ()
    """Stores of the other regions, which get the usage of rules with across_regions."""
    namespace: Annotated[str, _rules(word("a name"), "NAME")] = "headgate"
    """Prefix of the names of all counters."""
    salt: Annotated[bytes, _rules(SECRET)] = field(default=b"", repr=False)
    """Salt for the hashes of callers' credentials; the same on all nodes."""
    salt_file: Annotated[str | None, _rules(FILE)] = None
    """A file with the salt in it."""
    secret: Annotated[bytes, _rules(SECRET)] = field(default=b"", repr=False)
    """Key that signs reservations and debug tokens; the same in all replicas."""
    secret_file: Annotated[str | None, _rules(FILE)] = None
    """A file with the secret in it."""
    http: Annotated[tuple[Address, ...], _listening(ADDRESSES)] = (Address("127.0.0.1", 8090),)
    """Where HTTP is served: HOST:PORT such as 127.0.0.1:8090 or [::1]:8090, or
    unix:/path/to/socket; off for nowhere."""
    grpc: Annotated[tuple[Address, ...], _listening(ADDRESSES)] = (Address("127.0.0.1", 8091),)
    """Where gRPC is served, in the same form."""
    grpc_ports: Annotated[str, _listening(choice(("shared", "each")))] = "shared"
    """With several workers: one port for all, or PORT + n (unix: PATH.n) for worker n."""
    workers: Annotated[int, _listening(whole(1, 512))] = 1
    """Number of processes."""
    socket_mode: Annotated[int, _listening(MODE)] = 0o660
    """The permissions of unix sockets."""
    http_tls_cert: Annotated[str | None, _tls(FILE)] = None
    """The certificate, with its chain, for HTTPS."""
    http_tls_key: Annotated[str | None, _tls(FILE)] = None
    """Its key."""
    http_tls_client_ca: Annotated[str | None, _tls(FILE)] = None
    """Clients must show a certificate of this authority."""
    grpc_tls_cert: Annotated[str | None, _tls(FILE)] = None
    """The certificate, with its chain, for gRPC."""
    grpc_tls_key: Annotated[str | None, _tls(FILE)] = None
    """Its key."""
    grpc_tls_client_ca: Annotated[str | None, _tls(FILE)] = None
    """Clients must show a certificate of this authority."""
    admin_token: Annotated[bytes, _admin(SECRET)] = field(default=b"", repr=False)
    """A token with full access; without any token the admin API is closed."""
    admin_token_file: Annotated[str | None, _admin(FILE)] = None
    """A file with a token that has full access."""
    admin_tokens: Annotated[tuple[AdminToken, ...], _admin(ADMIN_TOKENS, "LIST")] = field(
        default=(), repr=False
    )
    """Further tokens: name, role (read or write), and token, token_file or sha256."""
    admin_certificates: Annotated[
        tuple[AdminCertificate, ...], _admin(ADMIN_CERTIFICATES, "LIST")
    ] = field(default=(), repr=False)
    """Owners of client certificates: name, role, subject (CN=ada,O=shop)."""
    audit_file: Annotated[str | None, _admin(FILE)] = None
    """File that records every change of the rules."""
    dashboard_keys: Annotated[str, _admin(choice(("hashed", "clear")))] = "hashed"
    """Form of keys on the dashboard and in the admin API."""
    gateways: Annotated[tuple[str, ...], _bounds(NETWORKS, "NETWORKS")] = (
        "127.0.0.0/8",
        "::1/128",
        "unix",
    )
    """Peers that may name the caller (forward auth): networks, unix for unix sockets, or off."""
    allowed_hosts: Annotated[tuple[str, ...], _bounds(HOSTS, "NAMES")] = ()
    """Names in Host, besides localhost and addresses, that HTTP without TLS accepts: on loopback,
    and with names given on every TCP listener; * for any."""
    max_body: Annotated[int, _bounds(whole(1024, 64 * _MIB), "BYTES")] = 64 * 1024
    """The largest body of a request."""
    max_header: Annotated[int, _bounds(whole(1024, _MIB), "BYTES")] = 32 * 1024
    """The largest head of a request: its line and its headers; 431 beyond."""
    max_message: Annotated[int, _bounds(whole(1024, 64 * _MIB), "BYTES")] = _MIB
    """The largest message of gRPC."""
    max_connections: Annotated[int, _bounds(whole(1, 1000000))] = 10000
    """Most connections of a worker, for HTTP and gRPC each; at the limit idle ones give way."""
    deadline: Annotated[float, _bounds(time(0.001, 60.0))] = 1.0
    """Longest time for a decision; 503 beyond."""
    receive_timeout: Annotated[float, _bounds(time(0.001, 60.0))] = 10.0
    """Longest time for a request to arrive."""
    idle_timeout: Annotated[float, _bounds(time())] = 75.0
    """Longest time that a connection may be idle."""
    linger: Annotated[float, _bounds(time(0.0))] = 0.5
    """Time after SIGTERM in which requests are accepted, while not ready any more."""
    drain: Annotated[float, _bounds(time(0.0))] = 20.0
    """Longest time for requests in flight to finish after that."""
    rls_charge: Annotated[str, _rls(choice(("all_or_nothing", "always")))] = "all_or_nothing"
    """Charge of a denied request under envoy_config: nothing, or as envoyproxy/ratelimit does."""
    rls_reports: Annotated[str, _rls(choice(("auto", "always", "never")))] = "auto"
    """Hits that report what has happened already, and count in full."""
    rls_on_store_failure: Annotated[str, _rls(choice(("error", "fail_open", "fail_closed")))] = (
        "error"
    )
    """Failure policy of limits without a rule."""
    rls_headers: Annotated[bool, _rls(BOOLEAN)] = True
    """Send rate limit headers back through Envoy."""
    rls_metadata: Annotated[bool, _rls(BOOLEAN)] = False
    """Send dynamic metadata back to Envoy."""
    rlqs_ttl: Annotated[int, _rls(whole(4, 3600), "SECONDS")] = 10
    """Time for which a gateway's share of a limit lasts without being renewed."""
    rlqs_silence: Annotated[float, _rls(time(5.001))] = 16.0
    """Time after which a gateway that reports nothing loses its share."""
    rlqs_idle: Annotated[float, _rls(time(5.001))] = 60.0
    """Time after which an unused bucket is abandoned."""
    responses_x_ratelimit: Annotated[bool, _responses(BOOLEAN)] = True
    """Send X-RateLimit-*."""
    responses_ratelimit: Annotated[bool, _responses(BOOLEAN)] = True
    """Send RateLimit and RateLimit-Policy."""
    responses_draft03: Annotated[bool, _responses(BOOLEAN)] = False
    """Send RateLimit-Limit, -Remaining, -Reset."""
    responses_problem: Annotated[bool, _responses(BOOLEAN)] = False
    """Send problem+json to all clients, not only those that ask."""
    responses_jitter: Annotated[float, _responses(PORTION, "SHARE from 0 to 1")] = 0.0
    """The largest addition to a wait, as a share of it."""
    responses_jitter_most: Annotated[float, _responses(time(0.0))] = 60.0
    """The longest addition."""
    responses_outage_status: Annotated[int, _responses(whole(400, 599), "STATUS")] = 503
    """Status of a denial while the store is down."""
    responses_shed_status: Annotated[int, _responses(whole(400, 599), "STATUS")] = 503
    """Status of a denial by load shedding."""
    log_level: Annotated[str, _logs(choice(("debug", "info", "warning", "error")))] = "info"
    """Level of the messages on stderr."""
    log_format: Annotated[str, _logs(choice(("text", "json")))] = "text"
    """Format of the messages; JSON has one object per line."""
    log_denials: Annotated[int, _logs(whole(0, 1000))] = 0
    """Denials of each rule that are logged per second, with hashed keys; 0 for none."""

    def __post_init__(self) -> None:
        for name, message in contradictions({name: getattr(self, name) for name in NAMES}):
            raise OptionError(f"{name}: {message}")

    @property
    def has_admin(self) -> bool:
        """True if the admin API has callers."""
        return bool(self.admin_token or self.admin_tokens or self.admin_certificates)

    @property
    def is_in_memory(self) -> bool:
        """True if the counters are this process's own."""
        return self.store.lower().startswith("memory:")

    @property
    def is_in_shared_memory(self) -> bool:
        """True if the counters are shared by the workers on this machine only."""
        return self.store.lower().startswith("shm:")


_COMMON: Final = (
    "rules",
    "envoy_config",
    "store",
    "http",
    "grpc",
    "workers",
    "admin_token_file",
    "log_level",
)
SETTINGS: Final = declared_in(Settings, common=_COMMON)
NAMES: Final = tuple(one.name for one in SETTINGS)

NO_RULES: Final = (
    "there are no rules; give --rules FILE (a file, a directory or etcd://...) or --envoy-config "
    "DIR. The shortest file is: {version: 1, rules: [{id: all, key_by: ip, limit: 100/minute}]}"
)

_REMOTE_SCHEMES: Final = ("redis", "valkey", "unix")
_REMOTE: Final = "Redis or Valkey"


def contradictions(values: Mapping[str, Any]) -> Iterator[Contradiction]:
    """Everything that is wrong with *values*, all settings by name, as a whole."""
    if values["rules"] is None and values["envoy_config"] is None:
        yield "rules", NO_RULES
    if not values["http"] and not values["grpc"]:
        yield "http", "both http and grpc are off: nothing would be served"
    if values["workers"] > 1 and str(values["store"]).lower().startswith("memory:"):
        message = f"{values['workers']} workers with memory:// would each count by themselves"
        yield "workers", f"{message}; give --store redis://..., or --workers 1"
    yield from _of_regions(values)
    yield from _of_addresses(values)
    yield from tls_contradictions(values, "http")
    yield from tls_contradictions(values, "grpc")
    if values["admin_certificates"] and values["http_tls_client_ca"] is None:
        yield (
            "admin_certificates",
            "http_tls_client_ca is missing; without it certificates are not verified",
        )
    if values["rlqs_silence"] > values["rlqs_idle"]:
        yield "rlqs_silence", "expected no more than rlqs_idle: a bucket is abandoned before that"


def _of_regions(values: Mapping[str, Any]) -> Iterator[Contradiction]:
    peers = values["region_peers"]
    if not peers:
        return
    if values["region"] is None:
        yield "region", "missing; with region_peers each node says which region it is in"
    if not _is_remote(values["store"]):  # it may have a password in it: not shown
        yield "region_peers", f"a region's own store is {_REMOTE}; give --store redis://..."
    names, stores = [], [_place(values["store"])]
    for peer in peers:
        if peer.name in names:
            yield "region_peers", f"the region {peer.name} is there twice"
        elif peer.name == values["region"]:
            yield "region_peers", f"{peer.name} is this region; expected the others only"
        elif not _is_remote(peer.store):
            yield "region_peers", f"the store of {peer.name} is not {_REMOTE}"
        elif _place(peer.store) in stores:
            message = f"the store of {peer.name} is another region's too; all would count twice"
            yield "region_peers", message
        names.append(peer.name)
        stores.append(_place(peer.store))


def _is_remote(store: str) -> bool:
    return store.lower().startswith(_REMOTE_SCHEMES)


def _place(store: str) -> str:
    """The location of *store*, without its options."""
    return store.partition("?")[0].rstrip("/")


def _of_addresses(values: Mapping[str, Any]) -> Iterator[Contradiction]:
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


@dataclass(frozen=True, slots=True)
class Gathered:
    """The settings, and warnings about them."""

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
