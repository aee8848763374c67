"""Leases: units of hot keys that a node takes in advance, and denials that it remembers.

Read `lease_table` first, the logic without I/O; `store` is the layer.
"""

from headgate.stores.layers.leases.lease_table import Book
from headgate.stores.layers.leases.served import Bound
from headgate.stores.layers.leases.store import LeasedStore

__all__ = ["Book", "Bound", "LeasedStore"]
