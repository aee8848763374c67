"""What the parts of Envoy's configuration hand each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate.policy.plan_cache import headers_of_interest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.config.gateway import GatewaySettings
    from headgate.gateway.envoy.client_address import ClientAddress
    from headgate.policy.model import Decide, Policy


# How filters name the decision service.


SERVICE: Final = "headgate"
"""The cluster of the service's gRPC."""


def service() -> Json:
    """The service, as filters ask it."""
    return {"envoy_grpc": {"cluster_name": SERVICE}}


# What is done to the headers of a request before anything else looks at them.


def removed(name: str) -> Json:
    """The header *name* is taken away."""
    return {"remove": name}


def put(name: str, value: str) -> Json:
    """The header *name* becomes *value*, which may be a format; nothing is done if that turns out
    empty."""
    action = "OVERWRITE_IF_EXISTS_OR_ADD"
    return {"append": {"header": {"key": name, "value": value}, "append_action": action}}


# Cookies in one line: what rules see is all that there is.
#
# The service is told the first line of a header. Rules look at the cookies of all lines, and so do
# many servers: in a second line a session would be used without being counted. No browser sends one
# (RFC 6265, 5.4), and those of HTTP/2 Envoy joins. So where rules look at cookies, a request with
# several lines is refused.


_COOKIE: Final = "cookie"
_FIRST: Final = "x-headgate-cookie"
_SEVERAL: Final = "x-headgate-cookies"


@dataclass(frozen=True, slots=True)
class CookieLines:
    """What finds requests with several lines: *mutations* done to headers first, *refused* matches
    of those requests, *internal* headers that no upstream sees."""

    mutations: tuple[Json, ...] = ()
    refused: tuple[Json, ...] = ()
    internal: tuple[str, ...] = ()


def cookie_lines(policy: Policy) -> CookieLines:
    """What is needed for *policy*: nothing, if it does not look at cookies."""
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
        refused=({"prefix": "/", "headers": [several]},),
        internal=(_SEVERAL,),
    )


Json = dict[str, Any]
"""A message of Envoy's, as JSON has it."""

TYPES: Final = "type.googleapis.com/"


@dataclass(frozen=True, slots=True)
class Decided:
    """How a gateway decides a rule: as it *asks* for, or otherwise, and then *why*."""

    rule: str
    decide: Decide
    asked: Decide
    why: str = ""


@dataclass(frozen=True, slots=True)
class HttpFilter:
    """One of Envoy's HTTP filters: its name in the chain, and its configuration with `@type`.

    The name stays the same while the rule that it is for does: what is in a filter can be changed
    without touching a connection, which filters there are cannot.
    """

    name: str
    config: Json


@dataclass(frozen=True, slots=True)
class Places:
    """Where things are on this machine: paths of files and sockets that Envoy is told."""

    directory: str
    """Where Envoy's files are; a path without a slash at the end."""

    grpc: tuple[str, ...]
    """The sockets, or `host:port`, of the service's workers for RLS and RLQS."""

    admin: str
    """The socket, or `host:port`, of Envoy's admin page."""

    system_ca: str = "/etc/ssl/certs/ca-certificates.crt"
    """The authorities that this machine believes, in one file: for upstreams without `upstream_ca`.
    `headgate.gateway.processes.up` looks for it."""


@dataclass(frozen=True, slots=True)
class Edge:
    """What the listener is made of. *own_headers* are those of a response that are ours: what an
    upstream says in them is not passed on."""

    settings: GatewaySettings
    places: Places
    address: ClientAddress
    filters: tuple[HttpFilter, ...] = ()
    own_headers: tuple[str, ...] = ()
    cookies: CookieLines = field(default_factory=CookieLines)


@dataclass(frozen=True, slots=True)
class Documents:
    """Everything that Envoy reads: a text for each file by its name in the directory.

    *bootstrap* is read once; *discovered* are watched, and may be replaced while it runs: each by
    renaming another file to it, **in the order in which they stand here**. What a file names must
    be there when Envoy reads it; files that are no longer among them are removed afterwards.
    *warnings* are sentences about what cannot be as the policy says.
    """

    bootstrap: Json
    discovered: Mapping[str, Json] = field(default_factory=dict)
    decided: tuple[Decided, ...] = ()
    warnings: tuple[str, ...] = ()


def typed(kind: str, **fields: Any) -> Json:
    """A message of the full name *kind*, where any message may stand."""
    return {"@type": f"{TYPES}{kind}", **fields}


def extension(name: str, kind: str, **fields: Any) -> Json:
    """An extension of Envoy's called *name*, configured by a message of the full name *kind*."""
    return {"name": name, "typed_config": typed(kind, **fields)}


def seconds(amount: float) -> str:
    """An amount of seconds, as durations are written."""
    return f"{amount:.9f}".rstrip("0").rstrip(".") + "s"
