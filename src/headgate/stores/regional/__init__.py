"""Regions with a store each, which tell each other what was used."""

from headgate.stores.regional.aio_store import AsyncRegionalStore
from headgate.stores.regional.store import RegionalStore

__all__ = ["AsyncRegionalStore", "RegionalStore"]
