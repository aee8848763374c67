"""The ideal that fair queueing comes close to: everybody is served at once, by weight.

Generalized processor sharing, slow and obvious: a server of one unit a second, divided among those
who have something left in proportion to their weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Demand:
    """What a tenant wants, all from the start: items of these *costs*."""

    weight: int
    costs: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(self.costs)


def fluid_service(demands: dict[str, Demand], seconds: int | Fraction) -> dict[str, Fraction]:
    """How much each tenant has been served after *seconds*."""
    served = {tenant: Fraction(0) for tenant in demands}
    left = Fraction(seconds)
    while left:
        hungry = {name: one for name, one in demands.items() if served[name] < one.total}
        if not hungry:
            break
        weights = sum(one.weight for one in hungry.values())
        # Until the first of them has had enough, or the time is over.
        enough = (
            (one.total - served[name]) * Fraction(weights, one.weight)
            for name, one in hungry.items()
        )
        step = min(left, *enough)
        for name, one in hungry.items():
            served[name] += step * Fraction(one.weight, weights)
        left -= step
    return served
