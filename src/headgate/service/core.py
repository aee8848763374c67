"""What every way into the service shares: the rules in force, the store, and how they stand."""

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
    from headgate.policy.envoy_config import EnvoyConfig
    from headgate.responses import ResponseOptions
    from headgate.rule_engine import AsyncRuleEngine


@dataclass(slots=True, kw_only=True)
class Core:
    """One per worker process, made before anything listens.

    *clock* is that of this machine, nanoseconds since the epoch, for what is told (the counters go
    by the store's). *envoy* is what is in force of envoyproxy/ratelimit's own configuration, if the
    service was given one: replaced as a whole. *secret* signs what callers are to bring back;
    all workers and replicas of a service have the same.
    """

    rules: AsyncRuleEngine
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


# Whose counter it is, as the dashboard and the admin API tell it, and as debug headers do.


ShowKey = Callable[[str], str]


def key_shower(settings: Settings) -> ShowKey:
    """How keys are to be told to those who run the service: clear, if the settings say so."""
    return str if settings.dashboard_keys == "clear" else key_hasher(settings)


def key_hasher(settings: Settings) -> ShowKey:
    """How keys are to be told to anybody else: hashed with the salt, or the service's secret if
    there is none, so that nobody can try addresses until one fits."""
    salt = settings.salt or settings.secret

    @lru_cache(maxsize=4096)  # the same busy keys are told again each second
    def show(key: str) -> str:
        return hashed_key(key, salt)

    return show


# Who may hear how a request was decided: see `responses.debug`.


def is_debugged(core: Core, token: str) -> bool:
    """Whether *token* is one of this service's that is still good."""
    return is_genuine(token, core.secret, now_ns=core.clock())
