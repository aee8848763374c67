"""The contract of every store, as tests to run over a store of your own."""

from __future__ import annotations

from headgate.testing.store_contract.admission import AdmissionContract
from headgate.testing.store_contract.amounts import AmountsContract
from headgate.testing.store_contract.bounds import BoundContract
from headgate.testing.store_contract.history import HistoryContract
from headgate.testing.store_contract.keys import KeysContract
from headgate.testing.store_contract.reservations import (
    ExpiryContract,
    ReservationContract,
    SlotContract,
)


class StoreContract(
    AdmissionContract,
    KeysContract,
    AmountsContract,
    ReservationContract,
    ExpiryContract,
    SlotContract,
    HistoryContract,
    BoundContract,
):
    """The promises of a store, one test each.

    Inherit from it in a test module, say how to make the store, and run pytest:

        from headgate.testing import ManualClock, StoreContract

        class TestMyStore(StoreContract):
            def make_store(self, clock: ManualClock) -> MyStore:
                return MyStore(clock=clock)

    The tests drive a `RateLimiter` on the store, or with `in_loop = True` an `AsyncRateLimiter`.
    The store must take its time from *clock*, a callable that returns nanoseconds, and from nothing
    else: the tests move that clock, also backwards, and never sleep. Each test makes and closes its
    own store, and each limiter has its own namespace, so stores on one server do not interfere.

    A store with a coarser clock declares its tick, and must then be exact to that tick:

        class TestMyStore(StoreContract):
            tick_ns = 1_000

    A layer that does not keep limits exactly names the `accuracy` to test it with: the bound that
    this states then takes the place of equality. Tests that do not apply are not collected.

    Over random histories the store is compared with the memory store. The operations that only
    layers of Headgate use (`GrantLease`, `MergeUsage`, `PublishValue`) are not part of this
    contract. A store need not support them.

    For the values of a failed assertion, put this into `conftest.py`, before anything imports
    `headgate.testing`:

        pytest.register_assert_rewrite("headgate.testing")
    """
