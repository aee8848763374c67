"""Leases: units of hot keys that a node takes in advance, and denials that it remembers.

A node requests a lease of some units of a counter; the store grants it for a fraction of a second.
The node then decides by itself until the lease is used up or expires. A *prepaid* lease is charged
when the store grants it: an unused unit is returned, or stays charged if the lease expires. A
*postpaid* lease (`sync`) is charged when the node reports what it used; the store counts it against
the bound of the overshoot meanwhile, and charges all of it if the node never reports.

Read `lease_table` first, the logic without I/O; `store` is the layer.
"""

from headgate.stores.layers.leases.lease import Bound
from headgate.stores.layers.leases.lease_table import LeaseTable
from headgate.stores.layers.leases.store import LeasedStore

__all__ = ["Bound", "LeaseTable", "LeasedStore"]
