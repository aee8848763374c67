"""Signals of pressure: latency, errors, requests that wait, and signals of the user.

Each signal is a value divided by its bound. More than 1 is pressure. Less than 1 but close to it
is neither pressure nor calm, so that limits are not raised into the same overload again.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal
from uuid import uuid4

from headgate.errors import OptionError
from headgate.stores.base import group_name
from headgate.stores.operations import PublishValue
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from fractions import Fraction

    from headgate.policy.model import Pressure


CALM: Final = 0.9
"""Signals up to this value are calm: limits are raised."""

OWN: Final = ("latency", "errors", "queue")
"""The names of the signals that are not a user's."""
MOST_SIGNALS: Final = 32
"""Signals that a user may set: each is a label of a metric."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")

Mood = Literal["pressed", "uncertain", "unknown", "calm"]
"""`uncertain` is neither pressure nor calm; `unknown` is too few requests to say."""


def judge(signals: Mapping[str, float], *, is_known: bool) -> Mood:
    """Judge *signals*; unless it *is_known* how requests perform, they are never calm."""
    worst = max(signals.values(), default=0.0)
    if worst > 1:
        return "pressed"
    if not worst <= CALM:
        return "uncertain"
    return "calm" if is_known else "unknown"


def signals_of(reading: Reading, pressure: Pressure) -> dict[str, float]:
    """Return the signals of a reading."""
    found = {}
    if reading.latency is not None:
        found["latency"] = reading.latency
    if pressure.errors is not None:
        allowed = float(pressure.errors)
        found["errors"] = reading.failed / allowed if allowed else 2.0 * (reading.failed > 0)
    return found


class UserSignals:
    """Signals of the user: each counts until it is set again or has expired."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[float, int]] = {}

    def set(self, name: object, value: object, until_ns: int) -> None:
        """Set the signal *name* to *value* until then. Raises `OptionError` for an invalid one."""
        if not isinstance(name, str) or name in OWN or not _NAME.fullmatch(name):
            raise OptionError(f"a signal is called {name!r}; expected a name of its own: 'db_lag'")
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise OptionError(f"the signal {name} is {value!r}; expected a number from 0")
        if name not in self._values and len(self._values) >= MOST_SIGNALS:
            raise OptionError(f"{name} is one signal too many; there may be {MOST_SIGNALS}")
        self._values[name] = (min(float(value), _LARGEST), until_ns)

    def now(self, now_ns: int) -> dict[str, float]:
        """Return all that have not expired."""
        values = list(self._values.items())
        return {name: value for name, (value, until_ns) in values if now_ns < until_ns}


_LARGEST: Final = math.ldexp(1.0, 30)


# The course of a factor: down by a part of itself under pressure, up by equal steps in calm.
#
# One step for each interval, in this order:
#
# 1. The factor moves half of the way towards that of the fleet, so that no process strays far.
# 2. After a step down it holds until the requests that began before have ended: for as many
#    intervals as they took at the quantile, from 1 to 5. Requests that end meanwhile are not
#    judged, so that one overload is answered once.
# 3. Under pressure it is multiplied by *backoff*, down to *least*.
# 4. In calm, from the second calm interval in a row on, *recovery* is added, up to 1. Within a
#    tenth of where it last stepped down, it is a quarter of that.
# 5. Otherwise it stays. Signals that are neither pressure nor calm end a row of calm intervals;
#    intervals with too few requests do not, so that a process with little traffic recovers too.


PULL: Final = 0.5
"""The part of the way to the fleet's factor that is gone in an interval."""
NEAR: Final = 0.9
WARY: Final = 0.25
"""Steps up are only so large from `NEAR` times where the last step down began."""
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
        """Continue with other settings."""
        self._pressure = pressure
        self.own = max(self.own, float(pressure.least))

    @property
    def is_holding(self) -> bool:
        """True while requests that end are not judged."""
        return self._hold > 0

    def approach(self, fleet: float, *, wholly: bool = False) -> None:
        """Move towards the factor of the *fleet*; *wholly* if this process has no requests."""
        self.own += (fleet - self.own) * (1.0 if wholly else PULL)
        self.own = min(1.0, max(self.own, float(self._pressure.least)))

    def hold(self) -> None:
        """Count down the intervals of holding."""
        self._hold -= 1

    def step(self, mood: Mood, latency_ns: float) -> int:
        """Take a step by the *mood* of an interval; return -1, 0 or 1 for down, none, up.

        *latency_ns* is the latency at the quantile, 0 if unknown.
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


# Readings of the requests that ended: their number, latency and failures.
#
# Recording is on the path of every request, so it takes two steps: the latency falls into one of a
# fixed number of bins, and a failure is counted. The bound of the latency is the edge between two
# bins: an excess is exact, its size to a thirty-second part of the bound.


FEWEST: Final = 20
"""The requests that a reading needs, at least."""
PATIENCE: Final = 5
"""Intervals after which too few requests are dropped as too old."""

_BINS: Final = 32
"""Up to the latency that counts as too long."""
_LAST: Final = 8 * _BINS
"""In the last one is all that took at least eight times as long."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A summary of *requests*: their *latency* at the quantile as a multiple of its bound
    (None: no bound), and the share that *failed*."""

    requests: int
    latency: float | None
    failed: float


class Readings:
    """The requests that ended since the last reading.

    `record` takes no lock: threads that record at the same instant may count one request for two.
    """

    __slots__ = ("_bins", "_counted", "_failed", "_looks", "_quantile", "_width")

    def __init__(self, latency_ns: int | None, quantile: Fraction) -> None:
        self._quantile = None if latency_ns is None else quantile
        # Rounded up: a latency that equals its bound does not exceed it.
        self._width = SECOND if latency_ns is None else latency_ns // _BINS + 1
        self.clear()

    def clear(self) -> None:
        """Forget all that was recorded."""
        self._bins = [0] * (_LAST + 1)
        self._failed = 0
        self._counted = 0
        self._looks = 0

    def record(self, latency_ns: int, *, failed: bool) -> None:
        """Record a request that ended."""
        place = latency_ns // self._width
        self._bins[place if 0 <= place < _LAST else _LAST if place > 0 else 0] += 1
        if failed:
            self._failed += 1

    def fresh(self) -> int:
        """Return how many have ended since the last call."""
        count = sum(self._bins)
        fresh, self._counted = count - self._counted, count
        return fresh

    def take(self) -> Reading | None:
        """Return a summary and forget the requests; None if there are too few."""
        bins, failed = self._bins, self._failed
        count = sum(bins)
        if count >= FEWEST:
            self.clear()
            return Reading(count, self._at_quantile(bins, count), min(1.0, failed / count))
        self._looks += 1
        if self._looks == PATIENCE:
            looks = self._looks
            self.clear()
            self._looks = looks
        return None

    @property
    def is_quiet(self) -> bool:
        """True if there have been too few requests for a long time."""
        return self._looks >= PATIENCE

    def _at_quantile(self, bins: list[int], count: int) -> float | None:
        if self._quantile is None:
            return None
        least, found = self._quantile * count, 0
        for place, many in enumerate(bins):
            found += many
            if found >= least:
                return (place + 0.5) / _BINS
        return (_LAST + 0.5) / _BINS


# The factor of a fleet.
#
# Each process publishes its own factor, with its recent requests as the weight. The weighted mean
# of all that have not expired is in force everywhere, so the shared limits are the same in all of
# the fleet. One process in overload lowers them by its share of the requests.


LAPSES_AFTER: Final = 3
"""Intervals after which a published factor expires; never within a second: a busy
process is late."""
_WEIGHING: Final = 0.5
"""The share of the last interval in a weight."""
_HEAVIEST: Final = 1e9
"""The largest weight: an infinite one would make the mean not a number."""


class FleetFactor:
    """The factors of the other processes, and that of this one, on the clock of this process."""

    def __init__(self, namespace: str, interval_ns: int) -> None:
        self._group = group_name(namespace, "!pressure")  # no rule is called that
        self._interval_ns = interval_ns
        self._origin = uuid4().hex
        self._others: tuple[tuple[float, float], ...] = ()
        self._read_ns = 0
        self.weight = 0.0

    def after_fork(self) -> None:
        """Take another name in the child process; the factors of others stay."""
        self._origin = uuid4().hex
        self.weight = 0.0

    def replace(self, interval_ns: int) -> None:
        """Publish at another interval."""
        self._interval_ns = interval_ns

    @property
    def ttl_ns(self) -> int:
        """The lifetime of a published factor."""
        return max(LAPSES_AFTER * self._interval_ns, SECOND)

    def weigh(self, requests: int) -> None:
        """Update the weight by the *requests* of an interval."""
        self.weight += (requests - self.weight) * _WEIGHING
        if self.weight < _WEIGHING:
            self.weight = 0.0

    def publish(self, own: float) -> PublishValue:
        """Return the operation that publishes *own* and reads the others."""
        return PublishValue(self._group, "factor", self._origin, own, self.weight, self.ttl_ns)

    def read(self, published: Iterable[tuple[str, float, float]], now_ns: int) -> None:
        """Keep what all have *published*."""
        self._others = tuple(
            (value, min(weight, _HEAVIEST))
            for origin, value, weight in published
            if origin != self._origin and 0 < value <= 1 and weight > 0
        )
        self._read_ns = now_ns

    def others(self, now_ns: int) -> tuple[tuple[float, float], ...]:
        """Return the factors and weights of others that have not expired."""
        return self._others if now_ns - self._read_ns < self.ttl_ns else ()

    def mean(self, own: float, now_ns: int) -> float:
        """Return the mean factor of all, with *own* for this process."""
        others = self.others(now_ns)
        total = self.weight + sum(weight for _, weight in others)
        if not others or not total:
            return own
        return (own * self.weight + sum(value * weight for value, weight in others)) / total
