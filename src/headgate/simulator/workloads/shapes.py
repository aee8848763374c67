"""Workloads that take no notice of what becomes of their requests: steady, bursts, many tenants."""

from __future__ import annotations

from heapq import merge
from itertools import accumulate, count
from typing import TYPE_CHECKING

from headgate.simulator.workloads.generated import Workload, arrivals
from headgate.simulator.workloads.options import BEGAN_NS
from headgate.units import SECOND

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from headgate.simulator.traffic import Event


class Steady(Workload):
    """Requests at the same rate all the time, each of any of the callers."""

    name = "steady"

    def events(self, chance: random.Random) -> Iterator[Event]:
        for at_ns in self.times(chance):
            caller = chance.randrange(self.callers.count)
            yield at_ns, self.callers.ask(caller, chance.randrange(len(self.callers.kinds))), None

    def times(self, chance: random.Random) -> Iterator[int]:
        """When requests come."""
        return arrivals(chance, self.options.rate, BEGAN_NS, BEGAN_NS + self.duration_ns)


class Bursts(Steady):
    """The same, and from time to time many more for a second."""

    name = "bursts"

    def times(self, chance: random.Random) -> Iterator[int]:
        return merge(super().times(chance), self._bursts(chance))

    def _bursts(self, chance: random.Random) -> Iterator[int]:
        options, ended_ns = self.options, BEGAN_NS + self.duration_ns
        rate = options.rate * options.factor
        for number in count(1):
            began_ns = BEGAN_NS + round(number * options.every * SECOND) - SECOND
            if began_ns >= ended_ns:
                return
            if began_ns >= BEGAN_NS:
                yield from arrivals(chance, rate, began_ns, min(began_ns + SECOND, ended_ns))


class ManyTenants(Steady):
    """Requests of many callers, of whom few ask most: the n-th as much as 1/n^exponent (Zipf)."""

    name = "many_tenants"
    usual_callers = 1000

    def events(self, chance: random.Random) -> Iterator[Event]:
        callers = range(self.callers.count)
        weights = list(accumulate((one + 1) ** -self.options.exponent for one in callers))
        for at_ns in self.times(chance):
            (caller,) = chance.choices(callers, cum_weights=weights)
            yield at_ns, self.callers.ask(caller, chance.randrange(len(self.callers.kinds))), None
