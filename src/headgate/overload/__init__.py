"""Overload control: leaky-bucket queue, weighted fair queue, adaptive concurrency, load shedding,
pressure. Read `shaper` for delays, `fair_gate` for queueing by weight, `adaptive` for concurrency
limits that move, `load_shedding` for priorities, `pressure` for a fleet that lowers its limits.
"""

from headgate.overload.adaptive import AIMD, Gradient, Lowest, Signal, Steering
from headgate.overload.fair_gate import AsyncFairGate, FairGate
from headgate.overload.load_shedding import LoadShedder
from headgate.overload.place import Place
from headgate.overload.pressure import AsyncPressureControl, PressureControl
from headgate.overload.rate_budget import FleetRate
from headgate.overload.shaper import AsyncBooking, AsyncShaper, Booking, Shaper

__all__ = [
    "AIMD",
    "AsyncBooking",
    "AsyncFairGate",
    "AsyncPressureControl",
    "AsyncShaper",
    "Booking",
    "FairGate",
    "FleetRate",
    "Gradient",
    "LoadShedder",
    "Lowest",
    "Place",
    "PressureControl",
    "Shaper",
    "Signal",
    "Steering",
]
