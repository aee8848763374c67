"""Rates as the capacity of a gate: of one process (`PacedBudget`) or of a fleet (`FleetRate`).

A gate calls `take`, `give_back` and `delay` of either under its lock, with the time in nanoseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.limits import LeakyQueue, Limit, parse_rate
from headgate.limits.model import Pace, PacedLimit
from headgate.overload.shaper import ShaperVerbs
from headgate.runtime.effects import Interrupted, Signal, Sleep, Wait
from headgate.runtime.waiting_lines import naps
from headgate.units import MILLISECOND, SECOND, Rate, exact_rate

if TYPE_CHECKING:
    from fractions import Fraction

    from headgate.clock import Clock
    from headgate.decision import FailurePolicy, OnFailure
    from headgate.runtime.effects import Effects
    from headgate.stores.base import Store

LATENESS_NS: Final = 10 * MILLISECOND
"""The lateness of a place that does not delay the next ones: timers are late."""

_LONGEST: Final = 100_000
"""Units that the whole fleet may have queued: one place of each process."""

_PAUSE: Final = 1.0
"""Seconds until the next attempt, if the store denied and gave no time."""

_MEMORY: Final = 8
"""About how many places the time between them is averaged over."""


class PacedBudget:
    """A constant drain: the next unit may go when what went before has drained.

    At *per_second* units, evenly spaced; *burst* units may go at once after idle time. Exact: time
    is counted in ticks, of which a unit and a nanosecond are whole numbers.
    """

    __slots__ = ("_free_at", "_pace", "_tolerance")

    def __init__(self, per_second: Fraction, *, burst: int = 1) -> None:
        if type(burst) is not int or burst < 1:
            raise OptionError(f"burst is {burst!r}; expected a whole number from 1")
        self._pace = Pace.of(burst, per_second)
        self._tolerance = (burst - 1) * self._pace.ticks_per_unit
        self._free_at: int | None = None  # in ticks: when all that was taken has drained

    def take(self, cost: int, now: int, *, has_waited: bool) -> int:
        """Take *cost* and return 0; or take nothing and return the least wait, in nanoseconds.

        One that *has_waited* may be a bit late, which does not delay those behind it.
        """
        pace = self._pace
        now_ticks = now * pace.ticks_per_ns
        free_at = self._free_at
        if free_at is None:
            free_at = now_ticks
        early = free_at - now_ticks - self._tolerance
        if early > 0:
            return pace.to_ns(early)
        earliest = now_ticks - LATENESS_NS * pace.ticks_per_ns if has_waited else now_ticks
        self._free_at = max(free_at, earliest) + cost * pace.ticks_per_unit
        return 0

    def give_back(self, cost: int) -> None:
        """Return what was taken last and not used."""
        if self._free_at is not None:
            self._free_at -= cost * self._pace.ticks_per_unit

    def follow(self, other: PacedBudget) -> None:
        """Continue from where *other*, perhaps of another rate, is."""
        if other._free_at is not None:
            self._free_at = other._free_at * self._pace.ticks_per_ns // other._pace.ticks_per_ns

    def delay(self, ahead: int, now: int) -> int:
        """Return the nanoseconds until *ahead* units have been taken and one more can be."""
        pace = self._pace
        now_ticks = now * pace.ticks_per_ns
        free_at = now_ticks if self._free_at is None else max(self._free_at, now_ticks)
        return pace.to_ns(free_at - now_ticks - self._tolerance + ahead * pace.ticks_per_unit)


class FleetRate:
    """A rate that all gates share, in any process, that name the same *key* and store.

        exports = FleetRate("100/s", store="redis://localhost:6379/0", key="exports")
        gate = AsyncFairGate(rate=exports)

    A gate at which requests wait has one place in the store's queue at a time. Which request gets
    it is decided when it comes: a request that gives up takes no place along. Each process with
    requests waiting gets the same number of places, whatever the weights of those requests. A place
    takes a round trip, and a process gets at most one in a round trip. While the store cannot be
    reached, *on_store_failure* applies, as for any limit.
    """

    def __init__(
        self,
        rate: str | PacedLimit | Rate,
        *,
        store: str | Store,
        key: str,
        namespace: str = "headgate",
        on_store_failure: FailurePolicy | OnFailure = "fail_open",
    ) -> None:
        self.per_second = read_rate(rate)
        self.key = key
        queue = LeakyQueue(self.per_second, _LONGEST)
        self._shaper = ShaperVerbs(
            queue, store=store, namespace=namespace, on_store_failure=on_store_failure
        )
        self._held = 0  # units that were fetched and not taken
        self._missing = 0
        self._least_ns = self._unit_ns = round(SECOND / self.per_second)

    def __repr__(self) -> str:
        return f"<FleetRate of {float(self.per_second):g} a second for {self.key!r}>"

    def take(self, cost: int, now: int, *, has_waited: bool) -> int:
        if self._held >= cost:
            self._held -= cost
            return 0
        self._missing = cost - self._held
        return max(self._unit_ns, 1)

    def give_back(self, cost: int) -> None:
        self._held += cost

    def delay(self, ahead: int, now: int) -> int:
        """Estimate it by the time between the last places of this process."""
        return ahead * self._unit_ns

    def fetch(self, stop: Signal, clock: Clock) -> Effects[None]:
        """Get what the last `take` found missing, unless *stop* is set before it is there."""
        yield Sleep(0)  # with what comes at the same time in the queue
        missing, began_ns = self._missing, clock()
        granted = yield from self._shaper.taking(self.key, missing, None)
        if not granted:
            wait = granted.retry_after
            yield Wait(stop, _PAUSE if wait is None else wait)
            return
        try:
            for seconds in naps(granted.delay_ns):
                if (yield Wait(stop, seconds)):
                    yield from self._shaper.cancelling(granted)
                    return
        except Interrupted:
            yield from self._shaper.cancelling(granted)
            raise
        self._held += missing
        unit_ns = max((clock() - began_ns) // missing, self._least_ns)
        self._unit_ns += (unit_ns - self._unit_ns) // _MEMORY

    def drop(self) -> None:
        """Discard what was fetched and not taken: no request waits."""
        self._held = 0

    def close(self) -> Effects[None]:
        """Close the store."""
        return self._shaper.closing()


Budget = PacedBudget | FleetRate


def read_rate(rate: str | PacedLimit | Rate) -> Fraction:
    """Return the units a second of *rate*: a text (`100/s`), a limit or a number."""
    if isinstance(rate, str):
        return parse_rate(rate)  # which denies a burst
    if not isinstance(rate, Limit):
        return exact_rate(rate, "rate")
    if not isinstance(rate, PacedLimit):
        raise OptionError(f"rate is {rate!r}; expected a rate like '100/s', without a window")
    return rate.per_second
