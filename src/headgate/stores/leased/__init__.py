"""A store in front of a store: units taken in advance, refusals remembered, hot keys split."""

from headgate.stores.leased.aio_store import AsyncLeasedStore
from headgate.stores.leased.book import Book
from headgate.stores.leased.served import Bound
from headgate.stores.leased.store import LeasedStore

__all__ = ["AsyncLeasedStore", "Book", "Bound", "LeasedStore"]
