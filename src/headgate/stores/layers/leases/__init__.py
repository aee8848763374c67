"""A store in front of a store: units taken in advance, refusals remembered, hot keys split."""

from headgate.stores.layers.leases.async_store import AsyncLeasedStore
from headgate.stores.layers.leases.lease_table import Book
from headgate.stores.layers.leases.served import Bound
from headgate.stores.layers.leases.store import LeasedStore

__all__ = ["AsyncLeasedStore", "Book", "Bound", "LeasedStore"]
