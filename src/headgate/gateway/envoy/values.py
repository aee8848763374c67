"""What the parts of Envoy's configuration hand each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.rules.model import Decide

Json = dict[str, Any]
"""A message of Envoy's, as JSON has it."""


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


@dataclass(frozen=True, slots=True)
class Documents:
    """Everything that Envoy reads: a text for each file by its name in the directory.

    *bootstrap* is read once; *discovered* are watched, and may be replaced while it runs.
    """

    bootstrap: Json
    discovered: Mapping[str, Json] = field(default_factory=dict)
    decided: tuple[Decided, ...] = ()
