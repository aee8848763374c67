"""The values that the modules of Envoy's configuration share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate.policy.plan_cache import headers_of_interest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.config.gateway import GatewaySettings
    from headgate.gateway.envoy.client_address import ClientAddress
    from headgate.policy.model import Decide, Policy


SERVICE: Final = "headgate"
"""The cluster of the service's gRPC."""


def service() -> Json:
    """The decision service in the form of filters."""
    return {"envoy_grpc": {"cluster_name": SERVICE}}


# Changes to the headers of a request before anything else reads them.


def removed(name: str) -> Json:
    """Remove the header *name*."""
    return {"remove": name}


def put(name: str, value: str) -> Json:
    """Set the header *name* to *value*, which may be a format; do nothing if that is empty."""
    action = "OVERWRITE_IF_EXISTS_OR_ADD"
    return {"append": {"header": {"key": name, "value": value}, "append_action": action}}


# Cookies in one line.
#
# Envoy sends the service the first line of a header, but servers read the cookies of all lines: a
# session in a second line would not be counted. Browsers send one line (RFC 6265, 5.4), and Envoy
# joins those of HTTP/2. So if rules read cookies, the gateway rejects requests with several lines.


_COOKIE: Final = "cookie"
_FIRST: Final = "x-headgate-cookie"
_SEVERAL: Final = "x-headgate-cookies"


@dataclass(frozen=True, slots=True)
class CookieLines:
    """The parts of a configuration that rejects requests with several cookie lines.

    *mutations* change headers first, *rejected* matches those requests, and *internal* headers are
    not sent upstream.
    """

    mutations: tuple[Json, ...] = ()
    rejected: tuple[Json, ...] = ()
    internal: tuple[str, ...] = ()


def cookie_lines(policy: Policy) -> CookieLines:
    """The parts for *policy*; empty if it reads no cookies."""
    if _COOKIE not in headers_of_interest(policy):
        return CookieLines()
    is_one = f"request.headers['{_COOKIE}'] == request.headers['{_FIRST}']"
    several = {"name": _SEVERAL, "present_match": True}
    return CookieLines(
        mutations=(
            *map(removed, (_FIRST, _SEVERAL)),
            put(_FIRST, f"%REQ({_COOKIE})%"),
            put(_SEVERAL, f"%CEL({is_one} ? '' : 'several')%"),
            removed(_FIRST),
        ),
        rejected=({"prefix": "/", "headers": [several]},),
        internal=(_SEVERAL,),
    )


Json = dict[str, Any]
"""A message of Envoy in JSON."""

TYPES: Final = "type.googleapis.com/"


@dataclass(frozen=True, slots=True)
class Decided:
    """The way a gateway decides a rule. If that is not the one *asked* for, *why* is the reason."""

    rule: str
    decide: Decide
    asked: Decide
    why: str = ""


@dataclass(frozen=True, slots=True)
class HttpFilter:
    """An HTTP filter of Envoy: its name in the chain, and its configuration with `@type`.

    The name stays the same as long as its rule: Envoy can change the content of a filter without
    closing connections, but not the list of filters.
    """

    name: str
    config: Json


@dataclass(frozen=True, slots=True)
class Places:
    """The paths of files and sockets on this machine that Envoy uses."""

    directory: str
    """The directory of Envoy's files, without a slash at the end."""

    grpc: tuple[str, ...]
    """The sockets, or `host:port`, of the service's workers for RLS and RLQS."""

    admin: str
    """The socket, or `host:port`, of Envoy's admin page."""

    system_ca: str = "/etc/ssl/certs/ca-certificates.crt"
    """The file of trusted authorities on this machine, for upstreams without `upstream_ca`."""


@dataclass(frozen=True, slots=True)
class Edge:
    """The parts of the listener. *own_headers* are response headers that only Headgate sets: those
    of an upstream are removed."""

    settings: GatewaySettings
    places: Places
    address: ClientAddress
    filters: tuple[HttpFilter, ...] = ()
    own_headers: tuple[str, ...] = ()
    cookies: CookieLines = field(default_factory=CookieLines)


@dataclass(frozen=True, slots=True)
class Documents:
    """All files that Envoy reads, by name.

    Envoy reads *bootstrap* once and watches *discovered*. Replace those by renaming a new file to
    each, **in this order**: a file must exist when another one names it. Remove files that are no
    longer listed afterwards. *whole* is all of it as one static configuration: Envoy does not
    validate what it discovers. *warnings* are sentences about the parts of the policy that do not
    apply.
    """

    bootstrap: Json
    discovered: Mapping[str, Json] = field(default_factory=dict)
    whole: Json = field(default_factory=dict)
    decided: tuple[Decided, ...] = ()
    warnings: tuple[str, ...] = ()


def typed(kind: str, **fields: Any) -> Json:
    """A message with its type *kind*, for a field that takes any message."""
    return {"@type": f"{TYPES}{kind}", **fields}


def extension(name: str, kind: str, **fields: Any) -> Json:
    """The extension *name* of Envoy, configured by a message of type *kind*."""
    return {"name": name, "typed_config": typed(kind, **fields)}


def seconds(amount: float) -> str:
    """*amount* seconds as a duration."""
    return f"{amount:.9f}".rstrip("0").rstrip(".") + "s"
