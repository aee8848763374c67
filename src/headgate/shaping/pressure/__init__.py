"""Limits that are lowered together while there is pressure, in a process and across a fleet."""

from headgate.shaping.pressure.aio_control import AsyncPressureControl
from headgate.shaping.pressure.control import PressureControl

__all__ = ["AsyncPressureControl", "PressureControl"]
