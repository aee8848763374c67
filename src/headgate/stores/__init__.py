"""Where counters live: the one interface, the operations, and the stores behind it."""

from headgate.stores.base import AsyncStore, Hit, Hitter, Store, conclude
from headgate.stores.factory import open_async_store, open_store
from headgate.stores.memory import AsyncMemoryStore, MemoryStore
from headgate.stores.operations import (
    CancelQueued,
    Charge,
    Check,
    Hold,
    Operation,
    Outcomes,
    Refund,
    ReleaseSlot,
    RenewSlot,
    Reset,
    Settle,
    Take,
    TakeEach,
)

__all__ = [
    "AsyncMemoryStore",
    "AsyncStore",
    "CancelQueued",
    "Charge",
    "Check",
    "Hit",
    "Hitter",
    "Hold",
    "MemoryStore",
    "Operation",
    "Outcomes",
    "Refund",
    "ReleaseSlot",
    "RenewSlot",
    "Reset",
    "Settle",
    "Store",
    "Take",
    "TakeEach",
    "conclude",
    "open_async_store",
    "open_store",
]
