"""The store inside the process."""

from headgate.stores.memory.store import AsyncMemoryStore, MemoryStore

__all__ = ["AsyncMemoryStore", "MemoryStore"]
