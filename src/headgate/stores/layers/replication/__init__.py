"""Replication: regions with a store each, which report their usage to each other.

Read `usage` first, the totals that a node reports; `links` has its links to the other regions;
`store` is the layer.
"""

from headgate.stores.layers.replication.store import ReplicatedStore

__all__ = ["ReplicatedStore"]
