"""The store inside the process."""

from headgate.stores.memory.aio_store import AsyncMemoryStore
from headgate.stores.memory.store import MemoryStore

__all__ = ["AsyncMemoryStore", "MemoryStore"]
