"""Stores that fail as often as a test likes, behind a circuit that never opens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.stores.layers.circuit_breaker import BreakerOptions, CircuitBreakerStore

if TYPE_CHECKING:
    from headgate.stores import Store

PATIENT: Final = BreakerOptions(failures=10**9, least_calls=10**9)


def unbroken(store: Store) -> Store:
    """*store*, called every time."""
    return CircuitBreakerStore(store, options=PATIENT)


def unbroken_async(store: Store) -> Store:
    """The same for an event loop."""
    return CircuitBreakerStore(store, options=PATIENT)
