"""The store inside the process."""

from headgate.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
