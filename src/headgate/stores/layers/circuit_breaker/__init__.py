"""The circuit breaker: a store that fails is not called until it may have recovered.

Read `breaker` first, the state machine; `store` is the layer.
"""

from headgate.stores.layers.circuit_breaker.breaker import Breaker, BreakerTerms, Change, State
from headgate.stores.layers.circuit_breaker.store import CircuitBreakerStore

__all__ = ["Breaker", "BreakerTerms", "Change", "CircuitBreakerStore", "State"]
