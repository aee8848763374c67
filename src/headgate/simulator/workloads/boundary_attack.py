"""Twice the quota around each boundary of a window: what a counter per window lets through."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final

from headgate.engine import Engine
from headgate.errors import OptionError
from headgate.limits import Concurrency
from headgate.simulator.workloads.generated import Workload
from headgate.simulator.workloads.options import BEGAN_NS
from headgate.units import SECOND

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from headgate.limits import Limit
    from headgate.rules.model import Policy
    from headgate.simulator.traffic import Asked, Event
    from headgate.simulator.workloads.options import Options

_WINDOWS: Final = 5


class BoundaryAttack(Workload):
    """Each caller asks for the whole quota right before a window ends, and again when the next has
    begun. Windows and quota are those of the first rule that is for what is asked."""

    name = "boundary_attack"
    usual_callers = 1

    def __init__(self, policy: Policy, options: Options) -> None:
        super().__init__(policy, options)
        self.limit = _limit_of(policy, self.callers.ask(0, 0))
        if options.duration is None:
            self.duration_ns = _WINDOWS * self.limit.period_ns
        first_ns = _boundary_ns(self.limit.period_ns, 1) - BEGAN_NS
        if first_ns > self.duration_ns:
            raise OptionError(
                f"duration is {self.duration_ns / SECOND:g} s, and the first window of "
                f"{self.limit} ends after {first_ns / SECOND:g} s; expected at least that"
            )

    def events(self, chance: random.Random) -> Iterator[Event]:
        window_ns, quota = self.limit.period_ns, self.limit.quota
        burst_ns = min(window_ns // 20, SECOND)
        for window in count(1):
            boundary_ns = _boundary_ns(window_ns, window)
            if boundary_ns - BEGAN_NS > self.duration_ns:
                return
            for place in range(2 * quota):  # half of them before, half from the boundary on
                at_ns = boundary_ns - burst_ns + place * burst_ns // quota
                for caller in range(self.callers.count):
                    yield at_ns, self.callers.ask(caller, 0), None


def _boundary_ns(window_ns: int, number: int) -> int:
    """When the whole window *number*, counted from 1, ends."""
    return -(-BEGAN_NS // window_ns) * window_ns + number * window_ns


def _limit_of(policy: Policy, asked: Asked) -> Limit:
    for rule in Engine(policy).plan(asked.request(), lease="one").rules:
        for limit in rule.limits:
            if not isinstance(limit, Concurrency):
                return limit
    raise OptionError("a boundary attack needs a rule with a limit per time")
