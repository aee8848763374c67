"""For tests of your own: a clock that you move, a loop on virtual time, and the contract that
every store must keep."""

from headgate.testing.clock import ManualClock
from headgate.testing.store_contract import StoreContract
from headgate.testing.virtual_loop import VirtualLoop, run_virtually

__all__ = ["ManualClock", "StoreContract", "VirtualLoop", "run_virtually"]
