"""Regions with a store each, which tell each other what was used."""

from headgate.stores.layers.replication.async_store import AsyncRegionalStore
from headgate.stores.layers.replication.store import RegionalStore

__all__ = ["AsyncRegionalStore", "RegionalStore"]
