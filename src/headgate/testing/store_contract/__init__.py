"""The contract that every store keeps, as tests that you can run over a store of your own."""

from __future__ import annotations

from headgate.testing.store_contract.admission import AdmissionContract
from headgate.testing.store_contract.amounts import AmountsContract, ElsewhereContract
from headgate.testing.store_contract.bounds import BoundContract, RegionsContract
from headgate.testing.store_contract.constants import ConstantContract
from headgate.testing.store_contract.history import HistoryContract
from headgate.testing.store_contract.holding import ReservationContract, SlotContract
from headgate.testing.store_contract.keys import KeysContract
from headgate.testing.store_contract.lending import LendingContract, LoanHistoryContract
from headgate.testing.store_contract.partial import PartialContract
from headgate.testing.store_contract.queues import QueueContract, QueueHistoryContract
from headgate.testing.store_contract.shares import (
    KeepingContract,
    SharesContract,
    SharesHistoryContract,
)
from headgate.testing.store_contract.sharing import SharingContract


class StoreContract(
    AdmissionContract,
    KeysContract,
    AmountsContract,
    PartialContract,
    ConstantContract,
    ReservationContract,
    SlotContract,
    SharesContract,
    KeepingContract,
    QueueContract,
    LendingContract,
    ElsewhereContract,
    SharingContract,
    HistoryContract,
    LoanHistoryContract,
    SharesHistoryContract,
    QueueHistoryContract,
    BoundContract,
    RegionsContract,
):
    """Every promise that a store can break, each a test.

    Inherit from it in a test module and say how to make the store; pytest does the rest:

        from headgate.testing import ManualClock, StoreContract

        class TestMyStore(StoreContract):
            def make_store(self, clock: ManualClock) -> MyStore:
                return MyStore(clock=clock)

    The store may be a `Store` or an `Store`: the same tests drive a `RateLimiter` or an
    `AsyncRateLimiter` on it. It has to read *clock*, a callable that gives nanoseconds, and nothing
    else; the tests move that clock, also backwards, and never sleep. Each test gets a store of its
    own and closes it; every limiter in it has a namespace of its own, so stores that talk to the
    same server do not disturb each other.

    A store that counts time more coarsely than in nanoseconds says so, and is then held to be
    exact to that tick:

        class TestMyStore(StoreContract):
            tick_ns = 1_000

    In the same way a store declares what it does not know (`grants_leases = False`,
    `publishes_values = False`), a layer that replicates says so (`replicates = True`), and one that
    leases says with what `accuracy` it is to be tested: then the bound that this states takes the
    place of equality.
    Tests that do not apply are not collected.

    To have pytest show the values in a failed assertion, put this into your `conftest.py`, before
    anything imports `headgate.testing`:

        pytest.register_assert_rewrite("headgate.testing")
    """
