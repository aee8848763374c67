"""The ideal that fair queueing comes close to: everybody is served at once, by weight.

Generalized processor sharing, slow and obvious: a server of one unit a second, divided among those
who have something left in proportion to their weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


class Fluid:
    """The server, with tenants who come and go."""

    def __init__(self, weights: dict[str, int]) -> None:
        self._weights = weights
        self._wanted = {tenant: Fraction(0) for tenant in weights}
        self.served = {tenant: Fraction(0) for tenant in weights}
        """How much each has been served."""

    def want(self, tenant: str, cost: int) -> None:
        """*tenant* wants so much more from now on."""
        self._wanted[tenant] += cost

    def serve(self, seconds: int | Fraction) -> None:
        """Let so much time pass; less if nobody wants anything any more."""
        left = Fraction(seconds)
        while left:
            hungry = [name for name, wanted in self._wanted.items() if wanted > self.served[name]]
            if not hungry:
                return
            weights = sum(self._weights[name] for name in hungry)
            # Until the first of them has had enough, or the time is over.
            enough = (
                (self._wanted[name] - self.served[name]) * Fraction(weights, self._weights[name])
                for name in hungry
            )
            step = min(left, *enough)
            for name in hungry:
                self.served[name] += step * Fraction(self._weights[name], weights)
            left -= step


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
    fluid = Fluid({tenant: demand.weight for tenant, demand in demands.items()})
    for tenant, demand in demands.items():
        fluid.want(tenant, demand.total)
    fluid.serve(seconds)
    return fluid.served
