"""Load shedding by priority: the least important requests are denied first, in small steps.

The idea is that of Stripe's worker utilisation load shedder: when a process runs out of workers,
less important requests are denied until it has some again, in steps small enough that the load
does not swing. The pressure, a number from 0 to 1, moves a level:

    0 .. 1   that share of the sheddable requests is denied
    1 .. 2   all of them, and `level - 1` of the default ones
    2 .. 3   the critical ones too, if that is allowed at all

Above *high* the level rises, below *low* it falls, in between it stays, so that allowing requests
again does not at once restore the pressure. It falls more slowly than it rises. The choice of
requests is not random: a share of a third is every third one.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from headgate.clock import MonotonicClock
from headgate.errors import OptionError
from headgate.observability.metrics import METRICS
from headgate.policy.model import PRIORITIES
from headgate.units import SECOND, duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.clock import Clock
    from headgate.engine.plan import Priority
    from headgate.observability.metrics import Counter
    from headgate.units import Seconds

_LOG: Final = logging.getLogger("headgate.shedding")

_ORDER: Final = tuple(reversed(PRIORITIES))
"""The order in which classes are shed."""

_LONGEST_STEP_NS: Final = SECOND
"""The longest time that one observation of the pressure stands for."""


@dataclass(slots=True)
class _Class:
    """The requests of one class."""

    step: int
    measure: Counter
    carried: float = 0.0
    allowed: int = 0
    shed: int = 0


class LoadShedder:
    """Choose the requests to deny under pressure; never the most important ones.

    The pressure is set by `observe`, or read from *pressure*, a function, at most once in
    *interval* seconds by `allows`. At a pressure of 1 one class is shed within *rise* seconds, and
    allowed again within *fall* seconds at a pressure of 0; nearer to *high* and *low* it takes
    longer. With *spare_critical* set to false, critical requests are shed last.

    `allows` changes two numbers and takes no lock: any thread may call it. One should observe.
    """

    def __init__(
        self,
        pressure: Callable[[], float] | None = None,
        *,
        high: float = 0.9,
        low: float = 0.7,
        rise: Seconds = 5.0,
        fall: Seconds = 10.0,
        interval: Seconds = 0.1,
        spare_critical: bool = True,
        name: str = "default",
        clock: Clock | None = None,
    ) -> None:
        if not 0 < low <= high < 1:
            raise OptionError(f"low is {low!r} and high {high!r}; expected 0 < low <= high < 1")
        self._pressure = pressure
        self._high = high
        self._low = low
        self._rise_ns = duration_ns(rise, "rise")
        self._fall_ns = duration_ns(fall, "fall")
        self._interval_ns = duration_ns(interval, "interval")
        self._highest = float(len(_ORDER) - spare_critical)
        self._clock = MonotonicClock() if clock is None else clock
        self._observed_ns: int | None = None
        self._is_readable = True
        self._level = 0.0
        text = "Requests shed under pressure."
        self._classes: dict[Priority, _Class] = {
            one: _Class(step, METRICS.counter("shed_requests", text, priority=one, shedder=name))
            for step, one in enumerate(_ORDER)
        }
        METRICS.gauge(
            "shedding_level",
            "The load that is shed: up to 1 of sheddable requests, up to 2 of default ones.",
            self._read_level,
            shedder=name,
        )

    @property
    def level(self) -> float:
        """The load that is shed: 0 nothing, 1 all sheddable requests, 2 all default ones too."""
        return self._level

    def share(self, priority: Priority) -> float:
        """The share of the requests of a class that is shed now, from 0 to 1."""
        return min(max(self._level - self._known(priority).step, 0.0), 1.0)

    def retry_after(self, priority: Priority = "default") -> float:
        """Return the seconds after which a request of that class may be allowed: one, or as
        long as the level takes, at the least, until not all of them are shed."""
        above = self._level - self._known(priority).step - 1
        return max(1.0, above * self._fall_ns / SECOND)

    def allows(self, priority: Priority = "default") -> bool:
        """Return True if a request of that class is allowed; else deny it with 503."""
        if self._pressure is not None:
            self._look(self._pressure)
        one = self._known(priority)
        above = self._level - one.step
        if above > 0:
            one.carried += min(above, 1.0)
            if one.carried >= 1:
                one.carried -= 1
                one.shed += 1
                one.measure.add()
                return False
        one.allowed += 1
        return True

    def observe(self, pressure: float, *, now_ns: int | None = None) -> None:
        """Set the pressure now: 0 is idle, 1 is full; more counts as 1.

        NaN changes nothing.
        """
        now_ns = self._clock() if now_ns is None else now_ns
        before_ns, self._observed_ns = self._observed_ns, now_ns
        if before_ns is None:
            return
        passed_ns = max(now_ns - before_ns, 0)
        step_ns = min(passed_ns, _LONGEST_STEP_NS)
        moved = 0.0  # NaN is neither above nor below anything
        if pressure > self._high:
            moved = (min(pressure, 1.0) - self._high) / (1 - self._high) * step_ns / self._rise_ns
        elif pressure < self._low:
            # A pressure that was not read for long: no request came meanwhile.
            fell_ns = step_ns if self._pressure is None else passed_ns
            moved = (max(pressure, 0.0) / self._low - 1) * fell_ns / self._fall_ns
        self._level = min(max(self._level + moved, 0.0), self._highest)

    @property
    def counts(self) -> Mapping[Priority, tuple[int, int]]:
        """Requests of each class that were allowed, and that were shed."""
        counts = {name: (one.allowed, one.shed) for name, one in self._classes.items()}
        return MappingProxyType(counts)

    def _look(self, read: Callable[[], float]) -> None:
        now_ns = self._clock()
        before_ns = self._observed_ns
        # A clock that was set back must not make it wait until that time comes again.
        if before_ns is None or not 0 <= now_ns - before_ns < self._interval_ns:
            self.observe(self._read(read), now_ns=now_ns)

    def _read(self, read: Callable[[], float]) -> float:
        """Return what a function of the user's returns; NaN if it fails."""
        try:
            pressure = float(read())
        except Exception:  # noqa: BLE001 (no mistake in it may deny requests, or fail them)
            if self._is_readable:  # logged once, not ten times a second
                _LOG.exception("the pressure could not be read; what is shed stays as it is")
            self._is_readable = False
            return math.nan
        self._is_readable = True
        return pressure

    def _known(self, priority: Priority) -> _Class:
        try:
            return self._classes[priority]
        except KeyError:
            known = ", ".join(PRIORITIES)
            raise OptionError(f"the priority is {priority!r}; expected one of {known}") from None

    def _read_level(self) -> float:
        return self._level

    def __repr__(self) -> str:
        return f"LoadShedder(level={self._level:.2f})"
