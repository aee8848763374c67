"""Counters in shared memory, for the processes of one host: `shm://name`."""

from headgate.stores.shm.store import ShmStore

__all__ = ["ShmStore"]
