"""Whose counter it is, as the dashboard and the admin API tell it, and as debug headers do."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from headgate.identity.showing import hashed_key

if TYPE_CHECKING:
    from headgate.service.settings import Settings

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
