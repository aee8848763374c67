"""Tools for tests: a manual clock, an event loop on virtual time, and the contracts that every
store and every framework integration must keep."""

from headgate.testing.clock import ManualClock
from headgate.testing.integration_contract import IntegrationContract
from headgate.testing.store_contract import StoreContract
from headgate.testing.virtual_loop import VirtualLoop, run_virtually

__all__ = ["IntegrationContract", "ManualClock", "StoreContract", "VirtualLoop", "run_virtually"]
