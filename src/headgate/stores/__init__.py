"""Where counters live. Read `base` first, the port, and `operations`, what a store does."""

from headgate.stores.base import Hit, Store
from headgate.stores.factory import open_store
from headgate.stores.memory import MemoryStore

__all__ = ["Hit", "MemoryStore", "Store", "open_store"]
