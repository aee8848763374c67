"""The request that a gateway asks about, as each of them describes it, and whom to believe.

    gateway                 asks                       what it says of the request
    Envoy ext_authz (HTTP)  /v1/authorize + the path   its method, Host, X-Forwarded-For
    nginx auth_request      /v1/authorize?deny=403     X-Original-URI, X-Original-Method, Host,
                                                       X-Forwarded-For or X-Real-IP
    Caddy forward_auth,     /v1/authorize              X-Forwarded-Uri, -Method, -Host, -For
    Traefik forwardAuth

A gateway passes the client's own headers on, so a client can send what one of them would have said.
Nothing it sends may change which request is checked:

- A path behind `/v1/authorize` is the path; then none of the other headers count. (With the path
  `/` alone they are refused: somebody wrote one slash too many in the configuration of a gateway
  of the other kinds, and everything would be checked as `/`.)
- X-Original-* with X-Forwarded-Uri or -Method is refused: one of the two is the client's.
- A header that the gateway sets replaces the client's, so one that is there twice is refused.

Who asked the gateway is at the right end of X-Forwarded-For, where each of them adds the address
that it sees (Envoy with `use_remote_address`; nginx with `$proxy_add_x_forwarded_for`; Caddy and
Traefik by themselves). That is the peer of the original request, and what is left of the header is
what the peer had sent: from there on the policy's own `identity.ip` decides whom to believe. nginx
may say X-Real-IP instead; both, and not the same, is refused, for one is the client's.

All of this holds for the networks in `HttpOptions.gateways`. Nobody else is answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.engine.request import NOTHING, Request
from headgate.integrations.request_view import LOCAL
from headgate.policy.identity.address import Proxies, read_address
from headgate.service.http.replies import UNIX, RefusedError, problem

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from headgate.engine.request import Reads
    from headgate.service.http.replies import Headers, HttpOptions, Scope

REMEMBERED: Final = 4096
"""How many peers are remembered as trusted or not."""

FORWARDED_FOR: Final = b"x-forwarded-for"
REAL_IP: Final = b"x-real-ip"
ORIGINAL_URI: Final = b"x-original-uri"
ORIGINAL_METHOD: Final = b"x-original-method"
FORWARDED_URI: Final = b"x-forwarded-uri"
FORWARDED_METHOD: Final = b"x-forwarded-method"
FORWARDED_HOST: Final = b"x-forwarded-host"

SAID_BY_GATEWAYS: Final = frozenset(
    {
        REAL_IP,
        ORIGINAL_URI,
        ORIGINAL_METHOD,
        FORWARDED_URI,
        FORWARDED_METHOD,
        FORWARDED_HOST,
    }
)
_SAYS_WHICH: Final = SAID_BY_GATEWAYS - {REAL_IP, FORWARDED_HOST}
LONGEST_METHOD: Final = 64


class Original(Request):
    """A request as a server's lines of bytes have it, read as far as it is asked for.

    *trail* is what `X-Forwarded-For` was before the gateway added to it, in place of what is in
    *lines*; None if that is to stay.
    """

    __slots__ = ("_decoded", "_lines", "_trail", "attributes", "host", "method", "path", "peer")

    method: str
    path: str
    host: str
    peer: str
    attributes: Mapping[str, str]
    _lines: Headers
    _trail: bytes | None
    _decoded: tuple[tuple[str, str], ...] | None

    __setattr__ = object.__setattr__  # a frozen value is made slowly, and this one for each request

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
        self._lines = lines
        self._trail = trail
        self._decoded = None

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """The lines of the header."""
        found = self._decoded
        if found is None:
            lines, trail = self._lines, self._trail
            if trail is not None:
                lines = [line for line in lines if line[0] != FORWARDED_FOR]
                lines += [(FORWARDED_FOR, trail)] if trail else []
            found = self._decoded = tuple(
                [(name.decode("latin-1"), value.decode("latin-1")) for name, value in lines]
            )
        return found

    def header(self, name: str) -> str | None:
        """The value of the header *name* (in lower case); of several lines the first."""
        wanted = name.encode("latin-1", "replace")
        if wanted == FORWARDED_FOR and self._trail is not None:
            return self._trail.decode("latin-1") or None
        for field, value in self._lines:
            if field == wanted:
                return value.decode("latin-1")
        return None

    def header_lines(self, name: str) -> list[str]:
        """The values of all lines of the header *name* (in lower case), in their order."""
        wanted = name.encode("latin-1", "replace")
        if wanted == FORWARDED_FOR and self._trail is not None:
            return [self._trail.decode("latin-1")] if self._trail else []
        return [value.decode("latin-1") for field, value in self._lines if field == wanted]

    def parts(self, reads: Reads) -> tuple[Hashable, ...]:
        """The values of all that *reads* names, as the lines have them."""
        fields = reads.fields
        lines = [(name, value) for name, value in self._lines if name.lower() in fields]
        found = Original, self.method, self.path, self.host, self.peer, self._trail, *lines
        return (*found, *self._attributes_read(reads)) if reads.attributes else found


class Peers:
    """The other ends of connections: which of them are gateways."""

    def __init__(self, options: HttpOptions) -> None:
        self._gateways = Proxies(options.networks)
        self._unix = UNIX in options.gateways
        self._known: dict[str, bool] = {}

    def peer_of(self, scope: Scope) -> tuple[str, bool]:
        """The address of the other end, and whether it is a gateway's."""
        client = scope.get("client")
        peer = client[0] if client else ""
        if not peer:
            return LOCAL, self._unix
        known = self._known.get(peer)
        return peer, self._meet(peer) if known is None else known

    def _meet(self, peer: str) -> bool:
        address = read_address(peer)
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        known = self._known[peer] = address is not None and address in self._gateways
        return known


class Described(NamedTuple):
    """What a gateway says of a request by headers rather than by the path that it asks for."""

    method: str
    path: str
    host: str | None


def original_at(scope: Scope, rest: bytes, peer: str) -> Original:
    """The request that the gateway at *peer* asks about by its path, *rest*."""
    lines: Headers = scope["headers"]
    host, trail, said = b"", None, None
    for name, value in lines:
        if name == b"host":
            host = value
        elif name == FORWARDED_FOR:
            trail = value if trail is None else b"%b,%b" % (trail, value)
        elif name in _SAYS_WHICH:
            said = name
    if said is not None and rest == b"/":
        raise _misled(
            f"{said.decode()} describes the request, and so does the path behind /v1/authorize: "
            "point the gateway at /v1/authorize, without a slash at the end"
        )
    if trail is not None:
        peer, trail = before_gateway(trail)
    return Original(scope["method"], path_text(rest), host.decode("latin-1"), peer, lines, trail)


def original_in(scope: Scope, peer: str) -> Original:
    """The request that the gateway at *peer* describes by its headers."""
    lines: Headers = scope["headers"]
    said: dict[bytes, bytes] = {}
    for name, value in lines:
        if name in SAID_BY_GATEWAYS:
            if name in said:
                raise _misled(f"{name.decode()} is there twice: the gateway must replace it")
            said[name] = value
    told = _described(said)
    real = said.get(REAL_IP) if ORIGINAL_URI in said else None
    trail = trail_in(lines)
    if trail is not None:
        peer, trail = before_gateway(trail)
        if real is not None and not _same(real, peer):
            raise _misled(
                "x-real-ip and the end of x-forwarded-for differ: set X-Real-IP $remote_addr and "
                "X-Forwarded-For $proxy_add_x_forwarded_for"
            )
    elif real is not None:
        peer = real.decode("latin-1")
    host = told.host
    if host is None:
        own = next((value for name, value in lines if name == b"host"), b"")
        host = own.decode("latin-1")
    return Original(told.method, told.path, host, peer, lines, trail)


def trail_in(lines: Headers) -> bytes | None:
    """All lines of `X-Forwarded-For` as one; None if there is none."""
    found = [value for name, value in lines if name == FORWARDED_FOR]
    return b",".join(found) if found else None


def before_gateway(trail: bytes) -> tuple[str, bytes]:
    """Whom the gateway saw at the other end, and the trail as it was before it added that."""
    earlier, _, seen = trail.rpartition(b",")
    return seen.strip(b" \t").decode("latin-1"), earlier


def path_text(target: bytes) -> str:
    """The path of *target*, without its query. Bytes that are no UTF-8 stand as lone surrogates."""
    if b"?" in target:
        target = target.partition(b"?")[0]
    return target.decode("utf-8", "surrogateescape")


def untrusted(peer: str) -> RefusedError:
    """The answer to somebody who is no gateway."""
    return RefusedError(
        problem(
            403,
            f"{peer} is not among the gateways of this service, whose word is taken on whose "
            "request is to be checked; add its network to them",
        )
    )


def _described(said: dict[bytes, bytes]) -> Described:
    is_nginx = ORIGINAL_URI in said or ORIGINAL_METHOD in said
    if is_nginx and (FORWARDED_URI in said or FORWARDED_METHOD in said):
        raise _misled(
            "x-original-* and x-forwarded-uri or -method are both there: the gateway must send its "
            "own and remove the client's"
        )
    uri, method = (ORIGINAL_URI, ORIGINAL_METHOD) if is_nginx else (FORWARDED_URI, FORWARDED_METHOD)
    if uri not in said or method not in said:
        raise _misled(
            "which request is it about? Expected X-Original-URI and X-Original-Method (nginx), or "
            "X-Forwarded-Uri and X-Forwarded-Method (Caddy, Traefik), or the path behind "
            "/v1/authorize (Envoy)"
        )
    verb = said[method].strip().decode("latin-1").upper()
    if not 0 < len(verb) <= LONGEST_METHOD:
        raise _misled(f"{method.decode()} is no method")
    if said[uri][:1] not in (b"/", b"*"):
        raise _misled(f"{uri.decode()} is no path: expected one that begins with /")
    host = None if is_nginx else said.get(FORWARDED_HOST)
    return Described(verb, path_text(said[uri]), None if host is None else host.decode("latin-1"))


def _same(real: bytes, seen: str) -> bool:
    return read_address(real.strip(b" \t").decode("latin-1")) == read_address(seen)


def _misled(detail: str) -> RefusedError:
    return RefusedError(problem(400, detail))
