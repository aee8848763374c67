"""Where counters live: the one interface, the operations, and the stores behind it."""

from headgate.stores.base import Hit, Store
from headgate.stores.factory import open_store
from headgate.stores.memory import MemoryStore
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
    TakeUpTo,
)

__all__ = [
    "CancelQueued",
    "Charge",
    "Check",
    "Hit",
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
    "TakeUpTo",
    "open_store",
]
