"""Replication: regions with a store each, which report their usage to each other.

Read `usage` first, the totals that a node reports; `store` is the layer, with the links to the
other regions.
"""

from headgate.stores.layers.replication.store import ReplicatedStore

__all__ = ["ReplicatedStore"]
