"""The request that a gateway asks about, in the form of each gateway, and the headers to trust.

        gateway                 calls                      describes the request by
    Envoy ext_authz (HTTP)  /v1/authorize + the path   its method, Host, X-Forwarded-For
    nginx auth_request      /v1/authorize?deny=403     X-Original-URI, X-Original-Method, Host,
                                                       X-Forwarded-For or X-Real-IP
    Caddy forward_auth,     /v1/authorize              X-Forwarded-Uri, -Method, -Host, -For
    Traefik forwardAuth

A gateway passes the client's own headers on, so a client can send the headers of another gateway.
They must not change which request is checked:

- A path behind `/v1/authorize` is the path; then none of the other headers count. (With the path
`/` alone they are rejected: the configuration of a gateway of another kind has one slash too many,
and everything would be checked as `/`.)
- X-Original-* with X-Forwarded-Uri or -Method is rejected: one of the two is the client's.
- A header that the gateway sets replaces the client's, so a duplicate is rejected.

The peer of the gateway is at the right end of X-Forwarded-For, where each gateway appends the
address that it sees (Envoy with `use_remote_address`; nginx with `$proxy_add_x_forwarded_for`;
Caddy and Traefik by default). That is the peer of the original request, and the rest of the header
is what the peer had sent: from there on the policy's own `identity.ip` decides. nginx may send
X-Real-IP instead; if both are present and differ, the request is rejected, because one is the
client's.

Only the networks in `HttpOptions.gateways` are answered.
"""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.engine.request import NOTHING, Request
from headgate.integrations.request_view import LOCAL
from headgate.policy.identity.address import Proxies, read_address
from headgate.service.http.replies import UNIX, RejectedError, problem

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from headgate.engine.request import Reads
    from headgate.service.http.replies import Headers, HttpOptions, Scope

CACHED_PEERS: Final = 4096
"""Peers whose trust is cached."""

FORWARDED_FOR: Final = b"x-forwarded-for"
REAL_IP: Final = b"x-real-ip"
ORIGINAL_URI: Final = b"x-original-uri"
ORIGINAL_METHOD: Final = b"x-original-method"
FORWARDED_URI: Final = b"x-forwarded-uri"
FORWARDED_METHOD: Final = b"x-forwarded-method"
FORWARDED_HOST: Final = b"x-forwarded-host"

GATEWAY_HEADERS: Final = frozenset(
    {
        REAL_IP,
        ORIGINAL_URI,
        ORIGINAL_METHOD,
        FORWARDED_URI,
        FORWARDED_METHOD,
        FORWARDED_HOST,
    }
)
_REQUEST_HEADERS: Final = GATEWAY_HEADERS - {REAL_IP, FORWARDED_HOST}
LONGEST_METHOD: Final = 64


class Original(Request):
    """A request on the server's raw header lines, decoded on demand.

    *trail* is X-Forwarded-For without the gateway's own entry, in place of the one in *lines*;
    None keeps that.
    """

    __slots__ = ("_decoded", "_lines", "attributes", "host", "method", "path", "peer")

    method: str
    path: str
    host: str
    peer: str
    attributes: Mapping[str, str]
    _lines: Headers
    _decoded: tuple[tuple[str, str], ...] | None

    __setattr__ = object.__setattr__  # the frozen base class is slow to construct

    def __init__(
        self,
        method: str,
        path: str,
        host: str,
        peer: str,
        lines: Headers,
        trail: bytes | None = None,
    ) -> None:
        self.method = method
        self.path = path
        self.host = host
        self.peer = peer
        self.attributes = NOTHING
        if trail is not None:
            lines = [line for line in lines if line[0] != FORWARDED_FOR]
            if trail:
                lines.append((FORWARDED_FOR, trail))
        self._lines = lines
        self._decoded = None

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """All headers, decoded."""
        found = self._decoded
        if found is None:
            found = self._decoded = tuple(
                [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self._lines]
            )
        return found

    def parts(self, reads: Reads) -> tuple[Hashable, ...]:
        """The values of everything that *reads* names, undecoded."""
        names = reads.names
        lines = [line for line in self._lines if line[0] in names]
        found = Original, self.method, self.path, self.host, self.peer, *lines
        return (*found, *self._attributes_read(reads)) if reads.attributes else found


class Peers:
    """Decides which peers are gateways, and caches it."""

    def __init__(self, options: HttpOptions) -> None:
        networks = [ip_network(text) for text in options.gateways if text != UNIX]
        self._gateways = Proxies(tuple(networks))
        self._unix = UNIX in options.gateways
        self._known: dict[str, bool] = {}

    def peer_of(self, scope: Scope) -> tuple[str, bool]:
        """The peer's address, and true if it is a gateway."""
        client = scope.get("client")
        peer = client[0] if client else ""
        if not peer:
            return LOCAL, self._unix
        known = self._known.get(peer)
        return peer, self._trusts(peer) if known is None else known

    def _trusts(self, peer: str) -> bool:
        address = read_address(peer)
        if len(self._known) >= CACHED_PEERS:
            self._known.clear()
        known = self._known[peer] = address is not None and address in self._gateways
        return known


class Described(NamedTuple):
    """A request that a gateway describes by headers instead of a path."""

    method: str
    path: str
    host: str | None


def original_at(scope: Scope, rest: bytes, peer: str) -> Original:
    """The request that the gateway at *peer* describes by the path *rest*."""
    lines: Headers = scope["headers"]
    host, trail, given = b"", None, None
    for name, value in lines:
        if name == b"host":
            host = value
        elif name == FORWARDED_FOR:
            trail = value if trail is None else b"%b,%b" % (trail, value)
        elif name in _REQUEST_HEADERS:
            given = name
    if given is not None and rest == b"/":
        raise _rejected(
            f"both {given.decode()} and the path behind /v1/authorize describe the request: "
            "configure the gateway with /v1/authorize, without a slash at the end"
        )
    if trail is not None:
        peer, trail = before_gateway(trail)
    return Original(scope["method"], path_text(rest), host.decode("latin-1"), peer, lines, trail)


def original_in(scope: Scope, peer: str) -> Original:
    """The request that the gateway at *peer* describes by headers."""
    lines: Headers = scope["headers"]
    given: dict[bytes, bytes] = {}
    for name, value in lines:
        if name in GATEWAY_HEADERS:
            if name in given:
                raise _rejected(
                    f"{name.decode()} occurs twice: configure the gateway to replace it"
                )
            given[name] = value
    described = _description(given)
    real = given.get(REAL_IP) if ORIGINAL_URI in given else None
    trail = trail_in(lines)
    if trail is not None:
        peer, trail = before_gateway(trail)
        if real is not None and not _same(real, peer):
            raise _rejected(
                "x-real-ip and the end of x-forwarded-for differ: set X-Real-IP $remote_addr and "
                "X-Forwarded-For $proxy_add_x_forwarded_for"
            )
    elif real is not None:
        peer = real.decode("latin-1")
    host = described.host
    if host is None:
        own = next((value for name, value in lines if name == b"host"), b"")
        host = own.decode("latin-1")
    return Original(described.method, described.path, host, peer, lines, trail)


def trail_in(lines: Headers) -> bytes | None:
    """All lines of `X-Forwarded-For` as one, or None."""
    found = [value for name, value in lines if name == FORWARDED_FOR]
    return b",".join(found) if found else None


def before_gateway(trail: bytes) -> tuple[str, bytes]:
    """The peer that the gateway saw, and the trail before the gateway appended it."""
    earlier, _, seen = trail.rpartition(b",")
    return seen.strip(b" \t").decode("latin-1"), earlier


def path_text(target: bytes) -> str:
    """The path of *target* without the query; bytes that are not UTF-8 become lone surrogates."""
    if b"?" in target:
        target = target.partition(b"?")[0]
    return target.decode("utf-8", "surrogateescape")


def untrusted(peer: str) -> RejectedError:
    """The response to a peer that is not a gateway."""
    return RejectedError(
        problem(
            403,
            f"{peer} is not a trusted gateway: add its network to the setting gateways",
        )
    )


def _description(given: dict[bytes, bytes]) -> Described:
    is_nginx = ORIGINAL_URI in given or ORIGINAL_METHOD in given
    if is_nginx and (FORWARDED_URI in given or FORWARDED_METHOD in given):
        raise _rejected(
            "both x-original-* and x-forwarded-uri or -method are present: the gateway must "
            "send its own and remove the client's"
        )
    uri, method = (ORIGINAL_URI, ORIGINAL_METHOD) if is_nginx else (FORWARDED_URI, FORWARDED_METHOD)
    if uri not in given or method not in given:
        raise _rejected(
            "the request is not described: expected X-Original-URI and X-Original-Method (nginx), "
            "or X-Forwarded-Uri and X-Forwarded-Method (Caddy, Traefik), or the path behind "
            "/v1/authorize (Envoy)"
        )
    verb = given[method].strip().decode("latin-1").upper()
    if not 0 < len(verb) <= LONGEST_METHOD:
        raise _rejected(f"{method.decode()} is not a method")
    if given[uri][:1] not in (b"/", b"*"):
        raise _rejected(f"{uri.decode()} is not a path: expected one that begins with /")
    host = None if is_nginx else given.get(FORWARDED_HOST)
    return Described(verb, path_text(given[uri]), None if host is None else host.decode("latin-1"))


def _same(real: bytes, seen: str) -> bool:
    return read_address(real.strip(b" \t").decode("latin-1")) == read_address(seen)


def _rejected(detail: str) -> RejectedError:
    return RejectedError(problem(400, detail))
