"""For tests of your own: a clock that you move, and the contract every store must keep."""

from headgate.testing.clock import ManualClock
from headgate.testing.contract import StoreContract

__all__ = ["ManualClock", "StoreContract"]
