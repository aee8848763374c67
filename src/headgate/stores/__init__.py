"""Where counters live: the one interface, the operations, and the stores behind it."""

from headgate.stores.base import AsyncStore, Hit, Hitter, Store, conclude
from headgate.stores.factory import open_async_store, open_store
from headgate.stores.memory import AsyncMemoryStore, MemoryStore
from headgate.stores.operations import (
    Charge,
    Check,
    Hold,
    Leave,
    Operation,
    Outcomes,
    Refund,
    Renew,
    Reset,
    Settle,
    Take,
    TakeEach,
    Vacate,
)

__all__ = [
    "AsyncMemoryStore",
    "AsyncStore",
    "Charge",
    "Check",
    "Hit",
    "Hitter",
    "Hold",
    "Leave",
    "MemoryStore",
    "Operation",
    "Outcomes",
    "Refund",
    "Renew",
    "Reset",
    "Settle",
    "Store",
    "Take",
    "TakeEach",
    "Vacate",
    "conclude",
    "open_async_store",
    "open_store",
]
