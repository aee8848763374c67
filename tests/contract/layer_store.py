"""The store under test, as layers use it: with leases, published values and peers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from headgate.testing.store_contract.subject import StoreUnderTest

if TYPE_CHECKING:
    from headgate.stores import Store


class LayerStoreUnderTest(StoreUnderTest):
    """A store with the operations that layers use, less those that a class variable excludes."""

    grants_leases: ClassVar[bool] = True
    """As `Store.grants_leases`: leases, and usage of other regions."""

    publishes_values: ClassVar[bool] = True
    """As `Store.publishes_values`: values that several nodes publish for each other."""

    replicates: ClassVar[bool] = False
    """True if `exchange` sends usage to the store that `peer` returns."""

    def peer(self) -> Store:
        """Return the store of another region. Override this if the store replicates."""
        raise NotImplementedError

    def exchange(self) -> None:
        """Send usage to the peer now. Override this if the store replicates."""
        raise NotImplementedError
