"""The circuit breaker: a store that fails gets no calls until it may have recovered.

Read `breaker` first, the state machine; `health` has the breakers of one store, with metrics and
log lines; `store` is the layer.
"""

from headgate.stores.layers.circuit_breaker.breaker import Breaker, BreakerOptions, Change, State
from headgate.stores.layers.circuit_breaker.store import CircuitBreakerStore

__all__ = ["Breaker", "BreakerOptions", "Change", "CircuitBreakerStore", "State"]
