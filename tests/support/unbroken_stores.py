"""Stores that fail as often as a test likes, with a guard that never leaves them alone for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.stores.layers.circuit_breaker import BreakerTerms, CircuitBreakerStore

if TYPE_CHECKING:
    from headgate.stores import Store

PATIENT: Final = BreakerTerms(failures=10**9, least_calls=10**9)


def unbroken(store: Store) -> Store:
    """*store*, asked every time."""
    return CircuitBreakerStore(store, terms=PATIENT)


def unbroken_async(store: Store) -> Store:
    """The same for an event loop."""
    return CircuitBreakerStore(store, terms=PATIENT)
