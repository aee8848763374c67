"""The soft edge: delay instead of denial, turns by weight, limits that lower themselves."""

from headgate.overload.adaptive import AIMD, Gradient, Lowest, Signal
from headgate.overload.async_fair_gate import AsyncFairGate, FleetRate
from headgate.overload.booking import AsyncBooking, Booking
from headgate.overload.fair_gate import FairGate
from headgate.overload.load_shedding import LoadShedder
from headgate.overload.pressure import AsyncPressureControl, PressureControl
from headgate.overload.shaper import AsyncShaper, Shaper
from headgate.overload.slot_control import Steering
from headgate.overload.turns import Turn

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
    "PressureControl",
    "Shaper",
    "Signal",
    "Steering",
    "Turn",
]
