"""All that `headgate up` is asked to run: one value."""

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
class ServiceTerms:
    """What is known here of the service, whose settings are its own.

    *config* has them as a file has them, without *secrets*, which go into files of their own: the
    setting is then `NAME_file`. Where the rules are is added to it.
    """

    config: Mapping[str, object]
    secrets: Mapping[str, bytes]
    http: tuple[Address, ...]
    grpc: tuple[Address, ...]
    workers: int
    linger: float
    drain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What to run. The demo brings its own *rules*, which are None until then, and an upstream.

    *open_source* opens the rules at a place, for reading; those that *may_come_later* (etcd) are
    waited for. *keep* is where the last good policy is kept. *made_token* is the token of the
    admin API if it was made here, and must be told.
    """

    gateway: GatewaySettings
    service: ServiceTerms
    rules: str | None
    open_source: Callable[[str], PolicySource]
    may_come_later: bool = False
    keep: Path | None = None
    made_token: str | None = None
    is_json: bool = False
    is_terminal: bool = False
    is_demo: bool = False
