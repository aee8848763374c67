"""What the rules say about slots that move, as what moves them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.shaping.adaptive.aimd import AIMD
from headgate.shaping.adaptive.gradient import Gradient
from headgate.units import plain_seconds

if TYPE_CHECKING:
    from headgate.rules.soft import AdaptiveSlots
    from headgate.shaping.steering import Steering


def steering_of(slots: AdaptiveSlots) -> Steering:
    """A new steering as *slots* say."""
    target = None if slots.target_ns is None else plain_seconds(slots.target_ns)
    if slots.algorithm == "aimd":
        return AIMD(least=slots.least, most=slots.most, target=target)
    return Gradient(least=slots.least, most=slots.most, target=target)
