"""Stores that wrap a store which may fail: it is left alone while it does."""

from headgate.stores.layers.circuit_breaker.breaker import Breaker, BreakerTerms, Change, State
from headgate.stores.layers.circuit_breaker.store import AsyncGuardedStore, GuardedStore

__all__ = ["AsyncGuardedStore", "Breaker", "BreakerTerms", "Change", "GuardedStore", "State"]
