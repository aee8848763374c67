"""Limits that are lowered together while there is pressure, in a process and across a fleet."""

from headgate.overload.pressure.control import AsyncPressureControl, PressureControl

__all__ = ["AsyncPressureControl", "PressureControl"]
