"""A steady rate in integers that lose nothing.

A rate of three a second lets one unit through every 333,333,333.33... nanoseconds. Rounding that
would drift, so time is counted in *ticks* chosen to make both sides whole: with the rate in
lowest terms as `p` units every `q` nanoseconds, a nanosecond is `p` ticks and a unit is `q` ticks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.units import SECOND

if TYPE_CHECKING:
    from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Pace:
    """A quota that comes back steadily, as whole ticks."""

    quota: int
    ticks_per_ns: int
    ticks_per_unit: int
    span: int
    """Ticks from wholly used to as new: `quota * ticks_per_unit`."""

    @classmethod
    def of(cls, quota: int, per_second: Fraction) -> Pace:
        per_ns = per_second / SECOND
        return cls(quota, per_ns.numerator, per_ns.denominator, quota * per_ns.denominator)

    @property
    def refill_ns(self) -> int:
        """Nanoseconds, rounded up, from wholly used to as new."""
        return self.to_ns(self.span)

    def to_ns(self, ticks: int) -> int:
        """*ticks* as nanoseconds, rounded up; nothing for a negative number."""
        return -(-ticks // self.ticks_per_ns) if ticks > 0 else 0
