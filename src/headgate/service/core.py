"""What every way into the service shares: the rules in force, the store, and how they stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.identity.showing import hashed_key
from headgate.responses.options import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.clock import Clock
    from headgate.engine import AsyncRuleEngine
    from headgate.responses import ResponseOptions
    from headgate.rules.envoy import EnvoyConfig
    from headgate.service.shown_keys import ShowKey


@dataclass(slots=True, kw_only=True)
class Core:
    """One per worker process, made before anything listens.

    *clock* is that of this machine, nanoseconds since the epoch, for what is told (the counters go
    by the store's). *envoy* is what is in force of envoyproxy/ratelimit's own configuration, if the
    service was given one: replaced as a whole. *secret* signs what callers are to bring back;
    all workers and replicas of a service have the same.
    """

    engine: AsyncRuleEngine
    clock: Clock
    secret: bytes
    answers: ResponseOptions = DEFAULT
    envoy: EnvoyConfig | None = None
    namespace: str = "headgate"
    not_ready: Callable[[], tuple[str, ...]] = tuple
    """Why this worker should be given no requests, in words; empty if it may."""
    trouble: Callable[[], tuple[str, ...]] = tuple
    """What is amiss though this worker decides, in words; empty if nothing is."""
    hash_key: ShowKey = hashed_key
    """How anybody else is told whose counter it is, in what clients get."""
    show_key: ShowKey = hashed_key
    """How people are told whose counter it is: hashed or clear, as the settings say."""
