"""Replication: regions with a store each, which report their usage to each other.

Read `tally` first, the totals that a node reports; `store` is the layer.
"""

from headgate.stores.layers.replication.store import ReplicatedStore

__all__ = ["ReplicatedStore"]
