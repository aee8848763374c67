"""Stores that wrap a store which may fail: it is left alone while it does."""

from headgate.stores.guarded.aio_store import AsyncGuardedStore
from headgate.stores.guarded.breaker import Breaker, BreakerTerms, Change, State
from headgate.stores.guarded.store import GuardedStore

__all__ = ["AsyncGuardedStore", "Breaker", "BreakerTerms", "Change", "GuardedStore", "State"]
