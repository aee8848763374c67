"""For tests of your own: a clock that you move, and the contract every store must keep."""

from headgate.testing.clock import ManualClock

__all__ = ["ManualClock"]
