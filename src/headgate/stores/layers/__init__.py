"""What stands before a store: a circuit breaker, leases, and replication between regions."""
