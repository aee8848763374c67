"""The store of a service: one, or that of its region with the others told what was used."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headgate.errors import StoreURLError
from headgate.stores.opening import open_async_store
from headgate.stores.regional import AsyncRegionalStore

if TYPE_CHECKING:
    from headgate.service.settings import Settings
    from headgate.service.settings.regions import RegionPeer
    from headgate.stores.port import AsyncStore

PATIENCE: Final = "timeout=2"
"""Another region is far away, and nobody waits for it."""

_TIMEOUT: Final = re.compile(r"[?&]timeout=")


def store_of(settings: Settings) -> str | AsyncStore:
    """What the counters are in; nothing is asked yet.

    What is used under those rules is told elsewhere that say `across_regions`, nothing at first.
    """
    if settings.region is None or not settings.region_peers:
        return settings.store
    peers = {peer.name: _opened(peer) for peer in settings.region_peers}
    local = open_async_store(settings.store, None)
    return AsyncRegionalStore(local, region=settings.region, peers=peers, groups=())


def _opened(peer: RegionPeer) -> AsyncStore:
    try:
        return open_async_store(_patiently(peer.store), None)
    except StoreURLError as error:
        raise StoreURLError(f"the store of the region {peer.name}: {error}") from error


def _patiently(url: str) -> str:
    if _TIMEOUT.search(url):
        return url
    return f"{url}{'&' if '?' in url else '?'}{PATIENCE}"
