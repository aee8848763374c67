"""The options of `headgate up`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from headgate.config import Address
    from headgate.config.gateway import GatewaySettings
    from headgate.control.source import PolicySource


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """The options of the service.

    *config* is the content of its configuration file, without the rules and without *secrets*. Each
    secret is written to its own file, which the setting `NAME_file` names.
    """

    config: Mapping[str, object]
    secrets: Mapping[str, bytes]
    http: tuple[Address, ...]
    grpc: tuple[Address, ...]
    workers: int
    linger: float
    drain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """The options of the gateway. The demo has its own rules and upstream: *rules* is None.

    *open_source* opens the rules for reading; those that *may_arrive_later* (etcd) are awaited.
    *keep* is the file of the last known good policy. *generated_token* is the admin token if it was
    generated for this run.
    """

    gateway: GatewaySettings
    service: ServiceOptions
    rules: str | None
    open_source: Callable[[str], PolicySource]
    may_arrive_later: bool = False
    keep: Path | None = None
    generated_token: str | None = None
    is_json: bool = False
    is_terminal: bool = False
    is_demo: bool = False
