"""Layers around a store: circuit breaker, leases, replication between regions."""
