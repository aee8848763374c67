"""The store in shared memory keeps the contract, for threads and for event loops."""

from secrets import token_hex
from typing import TypeVar

from headgate.stores import Store
from headgate.stores.operations import Operation
from headgate.stores.shm import ShmStore
from headgate.stores.shm.file import path_of
from headgate.testing import ManualClock
from tests.contract.layer_operations import LayerStoreContract

R = TypeVar("R")


class WithoutPrepare(Store):
    """A store whose takes all go through `run`."""

    waits = False
    publishes_values = True

    def __init__(self, store: ShmStore) -> None:
        self.store = store

    def run(self, operation: Operation[R]) -> R:
        return self.store.run(operation)

    def close(self) -> None:
        self.store.close()


class _InSharedMemory(LayerStoreContract):
    grants_leases = False

    def setup_method(self) -> None:
        self.name = f"contract-{token_hex(8)}"
        super().setup_method()

    def teardown_method(self) -> None:
        super().teardown_method()
        path_of(self.name).unlink(missing_ok=True)

    @property
    def url(self) -> str:
        return f"shm://{self.name}?size=8MB"


class TestShmStore(_InSharedMemory):
    def make_store(self, clock: ManualClock) -> ShmStore:
        return ShmStore(self.url, clock=clock)


class TestShmStoreInALoop(_InSharedMemory):
    """Calls of an event loop; takes go through `run`."""

    in_loop = True

    def make_store(self, clock: ManualClock) -> WithoutPrepare:
        return WithoutPrepare(ShmStore(self.url, clock=clock))
