"""The memory store keeps the contract, for threads and for event loops."""

from typing import TypeVar

from headgate.stores import MemoryStore, Store
from headgate.stores.operations import Operation
from headgate.testing import ManualClock
from tests.contract.layer_operations import LayerStoreContract
from tests.support.lease_store import LeaseGrantingStore

R = TypeVar("R")


class WithoutShortCut(Store):
    """A memory store whose hits all go through `run`, as they do in a store on a wire."""

    waits = may_fail = False
    grants_leases = publishes_values = True

    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    def run(self, operation: Operation[R]) -> R:
        return self.store.run(operation)


class TestMemoryStore(LayerStoreContract):
    grants_leases = False

    def make_store(self, clock: ManualClock) -> MemoryStore:
        return MemoryStore(clock=clock)


class TestAsyncMemoryStore(LayerStoreContract):
    def make_store(self, clock: ManualClock) -> LeaseGrantingStore:
        return LeaseGrantingStore(clock=clock)


class TestMemoryStoreWithoutShortCut(LayerStoreContract):
    def make_store(self, clock: ManualClock) -> WithoutShortCut:
        return WithoutShortCut(LeaseGrantingStore(clock=clock))
