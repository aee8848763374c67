"""What the parts of Envoy's configuration hand each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate.gateway.envoy.cookies import CookieLines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.gateway.envoy.client_address import ClientAddress
    from headgate.gateway.settings import GatewaySettings
    from headgate.rules.model import Decide

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
    `headgate.gateway.authorities` looks for it."""


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
