"""The soft edge: delay instead of denial, turns by weight, limits that lower themselves."""

from headgate.shaping.adaptive import AIMD, Gradient, Lowest, Signal
from headgate.shaping.gates.aio_gate import AsyncFairGate
from headgate.shaping.gates.fleet_rate import FleetRate
from headgate.shaping.gates.gate import FairGate
from headgate.shaping.gates.turns import Turn
from headgate.shaping.pressure import AsyncPressureControl, PressureControl
from headgate.shaping.shapers.aio_shaper import AsyncShaper
from headgate.shaping.shapers.booking import AsyncBooking, Booking
from headgate.shaping.shapers.shaper import Shaper
from headgate.shaping.shedding import LoadShedder
from headgate.shaping.steering import Steering

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
