"""Requests that are made up, as traffic."""

from __future__ import annotations

import random
from abc import abstractmethod
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Final

from headgate.simulator.traffic import Traffic
from headgate.simulator.workloads.callers import Callers
from headgate.simulator.workloads.options import BEGAN_NS
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.rules.model import Policy
    from headgate.simulator.traffic import Event
    from headgate.simulator.workloads.options import Options

_BATCH: Final = 4096


class Workload(Traffic):
    """A workload under *policy*: for the same options it is always the same."""

    name: ClassVar[str]
    usual_callers: ClassVar[int] = 10
    usual_duration: ClassVar[float] = 60.0

    def __init__(self, policy: Policy, options: Options) -> None:
        self.options = options
        self.callers = Callers(policy, options, count=options.callers or self.usual_callers)
        duration = self.usual_duration if options.duration is None else options.duration
        self.duration_ns = round(duration * SECOND)
        self._now_ns = BEGAN_NS

    @property
    def share(self) -> float | None:
        return min(1.0, (self._now_ns - BEGAN_NS) / self.duration_ns)

    def batches(self) -> Iterator[list[Event]]:
        events = self.events(random.Random(self.options.seed))  # noqa: S311 (no secret)
        while batch := list(islice(events, 1 if self.hears else _BATCH)):
            self._now_ns = batch[-1][0]
            yield batch

    @abstractmethod
    def events(self, chance: random.Random) -> Iterator[Event]:
        """All requests in the order of their time."""


def arrivals(chance: random.Random, rate: float, began_ns: int, ended_ns: int) -> Iterator[int]:
    """Times of requests that know nothing of each other, *rate* a second on average."""
    at_ns = began_ns
    while True:
        at_ns += round(chance.expovariate(rate) * SECOND)
        if at_ns >= ended_ns:
            return
        yield at_ns
