"""Workloads that take no notice of what becomes of their requests: steady, bursts, many tenants."""

from __future__ import annotations

import random
import time
from heapq import heappop, heappush, merge
from itertools import accumulate, count
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.limits import Concurrency
from headgate.policy.compiled import CompiledPolicy
from headgate.simulator.workloads.generated import BEGAN_NS, Workload, arrivals
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.limits import Limit
    from headgate.policy.model import Policy
    from headgate.simulator.traffic import Event, SimulatedRequest
    from headgate.simulator.workloads.generated import Options


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


# Twice the quota around each boundary of a window: what a counter per window lets through.


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


def _limit_of(policy: Policy, asked: SimulatedRequest) -> Limit:
    for rule in CompiledPolicy(policy, clock=time.time_ns).plan(asked.request(), lease="one").rules:
        for limit in rule.limits:
            if not isinstance(limit, Concurrency):
                return limit
    raise OptionError("a boundary attack needs a rule with a limit per time")


# Clients that ask again when they are refused: how a small excess becomes a large one.


_ROUND_TRIP_NS: Final = 50 * MILLISECOND
"""After which a client that does not wait asks again."""
_FIRST_WAIT_NS: Final = SECOND
_LONGEST_WAIT_NS: Final = 60 * SECOND


class RetryStorm(Steady):
    """Steady traffic whose refused requests come back, as `Options.retry` says."""

    name = "retry_storm"
    retries_denied = True

    def __init__(self, policy: Policy, options: Options) -> None:
        super().__init__(policy, options)
        self._waits = random.Random(options.seed + 1)  # noqa: S311 (no secret)
        self._order = count()
        self._coming: list[tuple[int, int, int, SimulatedRequest]] = []
        self._attempt = 0

    def events(self, chance: random.Random) -> Iterator[Event]:
        coming = self._coming
        for event in super().events(chance):
            while coming and coming[0][0] <= event[0]:
                yield self._again()
            self._attempt = 0
            yield event
        while coming:
            yield self._again()

    def deny(self, event: Event, retry_after_ns: int | None) -> None:
        at_ns, asked, _ = event
        attempt = self._attempt + 1
        if attempt > self.options.attempts:
            return
        wait_ns = self._wait_ns(attempt, retry_after_ns)
        if wait_ns is not None:
            heappush(self._coming, (at_ns + wait_ns, next(self._order), attempt, asked))

    def _again(self) -> Event:
        at_ns, _, self._attempt, asked = heappop(self._coming)
        self.retries += 1
        return at_ns, asked, None

    def _wait_ns(self, attempt: int, retry_after_ns: int | None) -> int | None:
        """How long a client waits; None if it gives up, as it can never be admitted."""
        if self.options.retry == "at_once":
            return _ROUND_TRIP_NS
        if self.options.retry == "backoff":  # exponential, with full jitter
            longest_ns = min(_FIRST_WAIT_NS << (attempt - 1), _LONGEST_WAIT_NS)
            return _ROUND_TRIP_NS + self._waits.randrange(longest_ns)
        if retry_after_ns is None:
            return None
        told_ns = -(-retry_after_ns // SECOND) * SECOND  # headers tell whole seconds
        return _ROUND_TRIP_NS + told_ns + self._waits.randrange(SECOND)
