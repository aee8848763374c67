"""State shared by all listeners of a worker: the rules in force, the store, readiness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from headgate.policy.identity.parts import hashed_key
from headgate.responses.answer import DEFAULT
from headgate.responses.debug import is_genuine

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.config.service import Settings
    from headgate.policy.envoy_config.config import EnvoyConfig
    from headgate.responses import ResponseOptions
    from headgate.rule_engine import AsyncRuleEngine


@dataclass(slots=True, kw_only=True)
class Core:
    """One per worker process, made before anything listens.

    *clock* is this machine's, in nanoseconds since the epoch, for responses (the counters use the
    store's). *envoy* is the envoyproxy/ratelimit configuration in force, if the service has one; it
    is replaced as a whole. *secret* signs reservation ids and debug tokens; all workers and
    replicas of a service share it.
    """

    rules: AsyncRuleEngine
    clock: Clock
    secret: bytes
    answers: ResponseOptions = DEFAULT
    envoy: EnvoyConfig | None = None
    namespace: str = "headgate"
    not_ready: Callable[[], tuple[str, ...]] = tuple
    """Reasons why this worker is not ready; empty if it is."""
    trouble: Callable[[], tuple[str, ...]] = tuple
    """Problems of a worker that is ready; empty if there are none."""
    hash_key: ShowKey = hashed_key
    """Displays a key in what clients receive: hashed."""
    show_key: ShowKey = hashed_key
    """Displays a key to operators: hashed or clear, by the settings."""


# Displayed keys, on the dashboard, in the admin API and in debug headers.


ShowKey = Callable[[str], str]


def key_shower(settings: Settings) -> ShowKey:
    """The function that displays keys to operators: clear, if the settings say so."""
    return str if settings.dashboard_keys == "clear" else key_hasher(settings)


def key_hasher(settings: Settings) -> ShowKey:
    """The function that displays keys to others: hashed with the salt, or else with the service's
    secret, so that addresses cannot be found by trial."""
    salt = settings.salt or settings.secret

    @lru_cache(maxsize=4096)  # the same busy keys are displayed every second
    def show(key: str) -> str:
        return hashed_key(key, salt)

    return show


# Access to debug headers: see `responses.debug`.


def is_debugged(core: Core, token: str) -> bool:
    """True if *token* is a valid debug token of this service."""
    return is_genuine(token, core.secret, now_ns=core.clock())
