"""The course of a factor: down by a part of itself under pressure, up by equal steps in calm.

One step for each interval, in this order.

1. It moves half of the way towards what the fleet has in force. So a process that sees less than
   the others, or more, never strays far: its next step starts from about where all are.
2. While it holds, nothing more. It holds after each step down, until requests that began before it
   have ended: for as many intervals as they took at the quantile, at least 1 and at most 5. What
   ended meanwhile is not looked at, so one spell of trouble is answered once.
3. Under pressure it is multiplied by *backoff*, but never falls below *least*.
4. In calm, from the second calm interval in a row on, *recovery* is added, up to 1. Near to where
   it last stepped down from, within a tenth, it is a quarter of that: it feels its way there, and
   goes on quickly once it is past.
5. Otherwise it stays. Signals that are neither pressure nor calm end a row of calm intervals; those
   in which too few requests ended to say anything do not: a process that has ten a second and is
   heard every other one recovers half as quickly, not never.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.rules.soft import Pressure
    from headgate.shaping.pressure.signals import Mood

PULL: Final = 0.5
"""How much of the way to the fleet's factor is gone in an interval."""
NEAR: Final = 0.9
WARY: Final = 0.25
"""Within which part of where the last step down began steps up are only so large."""
LONGEST_HOLD: Final = 5


class Course:
    """The factor that one process holds to be right, from *least* to 1."""

    __slots__ = ("_calm", "_hold", "_pressure", "_troubled", "own")

    def __init__(self, pressure: Pressure) -> None:
        self.own = 1.0
        self._calm = 0
        self._hold = 0
        self._troubled: float | None = None
        self._pressure = pressure

    def replace(self, pressure: Pressure) -> None:
        """Go on by other terms."""
        self._pressure = pressure
        self.own = max(self.own, float(pressure.least))

    @property
    def is_holding(self) -> bool:
        """Whether what ended lately is not to be looked at."""
        return self._hold > 0

    def approach(self, fleet: float, *, wholly: bool = False) -> None:
        """The fleet has *fleet* in force: move towards it; *wholly* by who knows nothing."""
        self.own += (fleet - self.own) * (1.0 if wholly else PULL)
        self.own = min(1.0, max(self.own, float(self._pressure.least)))

    def hold(self) -> None:
        """An interval of holding is over."""
        self._hold -= 1

    def step(self, mood: Mood, latency_ns: float) -> int:
        """Go on by what an interval came to; -1, 0 or 1 for down, nowhere, up.

        *latency_ns* is how long requests took at the quantile, 0 if unknown.
        """
        if mood == "pressed":
            return self._step_down(latency_ns)
        if mood == "unknown":
            return 0
        if mood == "uncertain":
            self._calm = 0
            return 0
        self._calm += 1
        return 0 if self._calm < 2 else self._step_up()

    def _step_down(self, latency_ns: float) -> int:
        least = float(self._pressure.least)
        intervals = -(-int(latency_ns) // self._pressure.interval_ns)
        self._hold = min(LONGEST_HOLD, max(1, intervals))
        self._calm = 0
        if self.own <= least:
            return 0
        self._troubled = self.own
        self.own = max(least, self.own * float(self._pressure.backoff))
        return -1

    def _step_up(self) -> int:
        if self.own >= 1:
            self._troubled = None
            return 0
        step = float(self._pressure.recovery)
        if self._troubled is not None:
            if NEAR * self._troubled <= self.own <= self._troubled:
                step *= WARY
            elif self.own > self._troubled:
                self._troubled = None
        self.own = min(1.0, self.own + step)
        return 1
