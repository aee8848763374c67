"""Counters in shared memory, for the processes of one host: `shm://name`.

Read `store` first. `transaction` has the operations, `prepared` the fast path, `table` the layout
of the file.
"""

from headgate.stores.shm.store import ShmStore

__all__ = ["ShmStore"]
