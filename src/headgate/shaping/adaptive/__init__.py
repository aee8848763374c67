"""Limits that find out by themselves how much a backend can do at a time."""

from headgate.shaping.adaptive.aimd import AIMD
from headgate.shaping.adaptive.chosen import steering_of
from headgate.shaping.adaptive.gradient import Gradient
from headgate.shaping.adaptive.signals import Lowest, Signal

__all__ = ["AIMD", "Gradient", "Lowest", "Signal", "steering_of"]
