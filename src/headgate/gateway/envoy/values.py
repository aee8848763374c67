"""The values that the modules of Envoy's configuration share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate.policy.identity import Identifier
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


# Headers that say who a caller is, in one line.
#
# Envoy counts by the first line of a header and sends that to the service, but an app may read the
# last line, or all: a caller could invent one of them for each request. Clients send one line, also
# of cookies (RFC 6265, 5.4), and Envoy joins the cookies of HTTP/2. So the gateway rejects requests
# with several lines of a header that a key or a tier depends on, and of cookies if rules read them.


_COOKIE: Final = "cookie"
_FIRST: Final = "x-headgate-first"
_SEVERAL: Final = "x-headgate-several"


@dataclass(frozen=True, slots=True)
class SingleLines:
    """The parts of a configuration that rejects requests with several lines of some headers.

    *mutations* change headers first, *rejected* matches those requests, and *internal* headers are
    not sent upstream.
    """

    mutations: tuple[Json, ...] = ()
    rejected: tuple[Json, ...] = ()
    internal: tuple[str, ...] = ()


def single_lines(policy: Policy) -> SingleLines:
    """The parts for *policy*; empty if nothing depends on a header."""
    names = _names_of_callers(policy)
    if not names:
        return SingleLines()
    several = {"name": _SEVERAL, "present_match": True}
    return SingleLines(
        mutations=(
            removed(_FIRST),
            removed(_SEVERAL),
            *(m for name in names for m in _tested(name)),
        ),
        rejected=({"prefix": "/", "headers": [several]},),
        internal=(_SEVERAL,),
    )


def _names_of_callers(policy: Policy) -> list[str]:
    identifier = Identifier(policy.identity)
    places = [place for rule in policy.rules for place in identifier.places(rule)]
    if any(rule.match.tiers for rule in policy.rules):
        places += identifier.tier_places
    names = {str(name) for kind, name in places if kind == "header"}
    return sorted(names | (headers_of_interest(policy) & {_COOKIE}))


def _tested(name: str) -> tuple[Json, ...]:
    """Set `_SEVERAL` if the header *name* has several lines. An empty first line is not put."""
    text, first = f"request.headers['{name}']", f"request.headers['{_FIRST}']"
    is_one = f"'{_FIRST}' in request.headers ? {text} == {first} : {text} == ''"
    return (
        put(_FIRST, f"%REQ({name})%"),
        put(_SEVERAL, f"%CEL(({is_one}) ? '' : 'several')%"),
        removed(_FIRST),
    )


Json = dict[str, Any]
"""A message of Envoy in JSON."""

TYPES: Final = "type.googleapis.com/"
_EXPRESSION: Final = "envoy.extensions.rate_limit_descriptors.expr.v3.Descriptor"


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
    model_route: Json = field(default_factory=dict)
    """The parts of a route for requests whose bodies are read; empty if none are."""
    model_paths: str | None = None
    """The regular expression for their paths; None if all are."""
    lines: SingleLines = field(default_factory=SingleLines)


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


def expression(key: str, text: str, *, skips: bool = True) -> Json:
    """The action of a rate limit that sends the value of the expression *text* as the entry *key*;
    if it fails, the entry is left out, or the whole descriptor unless it *skips*."""
    kind = {"descriptor_key": key, "skip_if_error": skips, "text": text}
    return {"extension": extension("envoy.rate_limit_descriptors.expr", _EXPRESSION, **kind)}


def seconds(amount: float) -> str:
    """*amount* seconds as a duration."""
    return f"{amount:.9f}".rstrip("0").rstrip(".") + "s"
