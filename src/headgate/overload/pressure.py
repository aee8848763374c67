"""Pressure: one factor by which a process, or a fleet, lowers its limits while it is in trouble.

`PressureControl` takes its steps in a thread, `AsyncPressureControl` in a task. A step judges the
signals of an interval (`pressure_signals`), publishes the factor of this process, and reads those
of the others; the factor in force is their mean.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
import weakref
from abc import ABC, abstractmethod
from contextlib import suppress
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from headgate.clock import Clock, MonotonicClock
from headgate.errors import HeadgateError, OptionError
from headgate.fork import watch_forks
from headgate.observability.metrics import METRICS
from headgate.overload.pressure_signals import (
    Course,
    FleetFactor,
    Readings,
    UserSignals,
    judge,
    signals_of,
)
from headgate.runtime.drivers import adrive, drive
from headgate.runtime.effects import Run, Signal, Wait
from headgate.units import MILLISECOND, SECOND, Seconds, duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from headgate.observability.metrics import Sample
    from headgate.overload.pressure_signals import Mood
    from headgate.policy.model import Pressure
    from headgate.runtime.effects import Effects
    from headgate.stores import Store
    from headgate.stores.operations import PublishValue

_LOG: Final = logging.getLogger("headgate.pressure")

STEPS: Final = 64
"""The factor in force is a whole number of such parts: few limits of different size, each made
once."""

_STICKY: Final = 0.75
"""Parts by which the factor must be off before it changes."""

_TINY: Final = 1e-9


class _Control(ABC):
    """The factor by which limits are multiplied, moved by requests, signals and the fleet.

    `record` and `signal` may be called by any thread. *store* shares the factor with all processes
    of the *namespace*. *clock* need not be that of the store: only differences count. *waiting*
    returns how many requests wait. The steps in the background keep neither the control nor the
    process alive.
    """

    def __init__(
        self,
        pressure: Pressure,
        *,
        store: Store | None = None,
        namespace: str = "headgate",
        clock: Clock | None = None,
        waiting: Callable[[], int] | None = None,
    ) -> None:
        if isinstance(store, str):
            raise OptionError(
                f"store is {store!r}; expected a store that is open, such as RedisStore({store!r})"
            )
        self.factor = Fraction(1)
        """The factor of limits now."""
        self.waiting = waiting
        self.clock: Clock = MonotonicClock() if clock is None else clock
        self.pressure = _checked(pressure)
        self._store = store if store is not None and store.publishes_values else None
        self._readings = Readings(pressure.latency_ns, pressure.quantile)
        self._user_signals = UserSignals()
        self._course = Course(pressure)
        self._fleet = FleetFactor(namespace, pressure.interval_ns)
        self.signals: Mapping[str, float] = {}
        """The signals of the last interval."""
        self._namespace = namespace
        self._why = ""
        self._lowest, self._lowered_ns = Fraction(1), 0
        _METRICS.add(self)
        self._listeners: tuple[Callable[[Fraction], None], ...] = ()
        self._is_closed = False
        self._stepped = -math.inf
        self._begin()
        watch_forks(self)

    def record(self, *, latency_ns: int, failed: bool = False) -> None:
        """Record a request that ended after *latency_ns*. It *failed* if that was for lack of
        capacity downstream: a timeout, a 503; not for an error of the request."""
        self._readings.record(latency_ns, failed=failed)
        if self._is_resting:
            self.start()

    def signal(self, name: str, value: float, *, lasts: Seconds = 10) -> None:
        """Set the user's signal *name*: more than 1 is pressure, at most 0.9 is calm.

        It counts until it is set again, for *lasts* seconds at most.
        """
        lasts_ns = duration_ns(lasts, "the time that a signal lasts")
        self._user_signals.set(name, value, self.clock() + lasts_ns)

    def on_change(self, callback: Callable[[Fraction], None]) -> Callable[[], None]:
        """Call *callback* with each new factor; the function that is returned ends this."""
        self._listeners = (*self._listeners, callback)

        def forget() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not callback)

        return forget

    def replace(self, pressure: Pressure) -> None:
        """Go on with another *pressure*. The factor stays as it is, if that allows it."""
        if pressure == self.pressure:
            return
        before, self.pressure = self.pressure, _checked(pressure)
        if (before.latency_ns, before.quantile) != (pressure.latency_ns, pressure.quantile):
            self._readings = Readings(pressure.latency_ns, pressure.quantile)
        self._course.replace(pressure)
        self._fleet.replace(pressure.interval_ns)

    @abstractmethod
    def start(self) -> None:
        """Take steps in the background, one each interval."""

    def after_fork(self) -> None:
        """Start again in the child process; the parent judges what was recorded."""
        self._readings.clear()
        self._fleet.after_fork()
        self._begin()

    def steps(self) -> Effects[None]:
        """Take a step at the end of an interval."""
        share, published = self.advance(self.clock()), None
        if self._store is not None:
            try:
                published = yield Run(self._store, share)
            except HeadgateError:
                published = None  # what was read last counts until it expires
        self.conclude(published, self.clock())

    def advance(self, now_ns: int) -> PublishValue:
        """Judge the interval that has ended; return what to publish to the fleet."""
        readings, course, fleet = self._readings, self._course, self._fleet
        fleet.weigh(readings.fresh())
        if fleet.others(now_ns):
            course.approach(fleet.mean(course.own, now_ns), wholly=not fleet.weight)
        if course.is_holding:
            course.hold()
            readings.clear()
        else:
            mood, latency_ns = self._judge(now_ns)
            if mood == "pressed":
                self._why = _described(self.signals, self.pressure)
            _METRICS.record(self.signals, course.step(mood, latency_ns))
        return fleet.publish(course.own)

    def conclude(self, published: Iterable[tuple[str, float, float]] | None, now_ns: int) -> None:
        """Set the factor by what the fleet has *published*; None if it could not be read."""
        if published is not None:
            self._fleet.read(published, now_ns)
        factor = self._quantised(self._fleet.mean(self._course.own, now_ns))
        if factor == self.factor:
            return
        before, self.factor = self.factor, factor
        self._log_change(before, now_ns)
        for listener in self._listeners:
            try:
                listener(factor)
            except Exception:  # noqa: BLE001 (an error of user code must not leave limits lowered)
                _LOG.exception("a listener of the pressure failed")

    @abstractmethod
    def _time(self) -> float:
        """Return the seconds by which steps are paced."""

    def _begin(self) -> None:
        self._closing = Signal()
        self._running: Any = None
        self._is_resting = not self._is_closed

    def _background(self) -> Effects[None]:
        """Return the work of a thread or a task. It ends with the control."""
        closing = self._closing
        self._is_resting = False
        return _keep_stepping(weakref.ref(self, lambda _: closing.set()), closing)

    def _end(self) -> None:
        self._is_closed = True
        self._is_resting = False
        self._closing.set()
        _METRICS.controls.discard(self)

    def step_if_due(self) -> Effects[float]:
        """Take a step, unless the last one was less than an interval ago: threads that break and
        loops that come and go may call more often. Return the seconds until the next is due."""
        interval, now = self.pressure.interval_ns / SECOND, self._time()
        left = self._stepped + interval - now
        if 0 < left <= interval:
            return left
        self._stepped = now
        yield from self.steps()
        return interval

    def rest(self, closing: Signal) -> None:
        """Let the next recorded request start the steps again, if *closing* ended them."""
        if self._closing is closing:
            self._running = None
            self._is_resting = not self._is_closed

    def _judge(self, now_ns: int) -> tuple[Mood, float]:
        """Read the signals; return the mood of the interval, and the latency at the quantile in
        nanoseconds; 0 if unknown."""
        pressure, readings = self.pressure, self._readings
        signals, latency_ns = self._user_signals.now(now_ns), 0.0
        reading = readings.take()
        if reading is not None:
            signals |= signals_of(reading, pressure)
            latency_ns = (reading.latency or 0.0) * (pressure.latency_ns or 0)
        if pressure.queue is not None and self.waiting is not None:
            try:
                signals["queue"] = max(int(self.waiting()), 0) / max(pressure.queue, 1)
            except Exception:  # noqa: BLE001 (as above)
                _LOG.exception("the number of waiting requests could not be read")
        needs_none = pressure.latency_ns is None and pressure.errors is None
        is_known = needs_none or reading is not None or readings.is_quiet
        self.signals = signals
        return judge(signals, is_known=is_known), latency_ns

    def _log_change(self, before: Fraction, now_ns: int) -> None:
        factor = self.factor
        self._lowest = min(self._lowest, factor)
        if before == 1:
            self._lowered_ns, self._lowest = now_ns, factor
            why = self._why or "other processes are under pressure"
            text = "limits of %s are lowered to %.0f%%: %s"
            _LOG.warning(text, self._namespace, 100 * factor, why)
        elif factor == 1:
            self._why = ""
            seconds, lowest = (now_ns - self._lowered_ns) / SECOND, 100 * self._lowest
            text = "limits of %s are restored after %.0f s; the lowest factor was %.0f%%"
            _LOG.warning(text, self._namespace, seconds, lowest)

    def _quantised(self, mean: float) -> Fraction:
        least = self.pressure.least
        if mean >= 1 - _TINY:
            return Fraction(1)
        if mean <= float(least) + _TINY:
            return least
        steps = mean * STEPS
        if abs(steps - float(self.factor) * STEPS) < _STICKY and self.factor >= least:
            return self.factor
        return min(Fraction(1), max(least, Fraction(round(steps), STEPS)))


def _keep_stepping(me: weakref.ref[_Control], closing: Signal) -> Effects[None]:
    """Take a step each interval, as long as the control is there and open."""
    try:
        while (control := me()) is not None:
            pause = yield from control.step_if_due()
            del control  # a wait must not keep it
            if (yield Wait(closing, pause)):
                return
    finally:
        control = me()
        if control is not None:
            control.rest(closing)


class PressureControl(_Control):
    """Lowers limits under pressure, together with all processes that share *store*.

    `factor` says by how much. Its thread starts with the first recorded request, or by
    `start`; again after a fork.
    """

    def start(self) -> None:
        with self._starting:
            if self._running is not None or self._is_closed:
                return
            self._running = threading.Thread(
                target=drive, args=(self._background(),), daemon=True, name="headgate-pressure"
            )
            self._running.start()

    def step(self) -> None:
        """Take a step. There is no need to call this: it is done in the background."""
        drive(self.steps())

    def close(self) -> None:
        """End it. The factor stays as it is."""
        thread = self._running
        self._end()
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)

    def _begin(self) -> None:
        super()._begin()
        self._starting = threading.Lock()

    def _time(self) -> float:
        return time.monotonic()


class AsyncPressureControl(_Control):
    """The async form of `PressureControl`: a task of the loop in which it is started.

    When that loop has ended, `start` begins again in the one that runs then.
    """

    def start(self) -> None:
        """Take steps in the background. In a thread without a loop the next request starts them."""
        task = self._running
        is_there = task is not None and not task.done() and task.get_loop().is_running()
        with suppress(RuntimeError):  # no loop runs here
            if not is_there and not self._is_closed:
                loop = asyncio.get_running_loop()
                self._running = loop.create_task(adrive(self._background()))

    async def step(self) -> None:
        """Take a step; see `PressureControl.step`."""
        await adrive(self.steps())

    async def aclose(self) -> None:
        """End it. The factor stays as it is."""
        task, self._running = self._running, None
        self._end()
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait({task})

    def _time(self) -> float:
        return asyncio.get_running_loop().time()


def _checked(pressure: Pressure) -> Pressure:
    """Return *pressure*, if limits can be lowered and restored by it, as by all rules."""
    if pressure.interval_ns < 1 or (pressure.latency_ns is not None and pressure.latency_ns < 1):
        raise OptionError("the interval and the latency of a pressure are more than 0 nanoseconds")
    for name in ("quantile", "backoff", "recovery", "least"):
        share = getattr(pressure, name)
        if not 0 < share <= 1 or (name == "backoff" and share == 1):
            end = "less than 1" if name == "backoff" else "at most 1"
            raise OptionError(f"{name} of the pressure is {share}; expected more than 0 and {end}")
    return pressure


def _described(signals: Mapping[str, float], pressure: Pressure) -> str:
    """Describe the largest of *signals*."""
    name = max(signals, key=signals.__getitem__)
    signal = signals[name]
    if name == "latency" and pressure.latency_ns is not None:
        most_ms = pressure.latency_ns / MILLISECOND
        at = f"{100 * float(pressure.quantile):.4g}%"
        return f"{at} of requests take up to {signal * most_ms:.0f} ms, more than {most_ms:.0f} ms"
    if name == "errors" and pressure.errors is not None:
        share = f"{100 * signal * float(pressure.errors):.1f}%"
        return f"{share} of requests fail, more than {100 * float(pressure.errors):.4g}%"
    if name == "queue" and pressure.queue is not None:
        return f"{signal * pressure.queue:.0f} requests wait, more than {pressure.queue}"
    return f"{name} is {signal:.3g} times its bound"


class _Metrics:
    """The metrics of all controls of this process."""

    def __init__(self) -> None:
        self.controls: WeakSet[_Control] = WeakSet()
        self._signals: set[str] = set()
        self._has_gauge = False
        text = "Steps of the factor of this process."
        self._down = METRICS.counter("pressure_steps", text, direction="down")
        self._up = METRICS.counter("pressure_steps", text, direction="up")
        text = "A pressure signal divided by its bound."
        METRICS.collect("pressure_signal", "gauge", text, self.signal_samples)

    def add(self, control: _Control) -> None:
        if not self._has_gauge:
            self._has_gauge = True
            text = "The factor of limits under pressure."
            METRICS.gauge("pressure_factor", text, self.lowest)
        self.controls.add(control)

    def record(self, signals: Mapping[str, float], direction: int) -> None:
        """Record the *signals* of an interval, and the step: -1, 0 or 1."""
        self._signals.update(signals)
        if direction:
            (self._up if direction > 0 else self._down).add()

    def signal_samples(self) -> Iterator[Sample]:
        """Yield the largest value of each signal in this process."""
        controls = list(self.controls)
        for name in sorted(self._signals):
            values = (one.signals.get(name, 0.0) for one in controls)
            yield "", (("signal", name),), max(values, default=0.0)

    def lowest(self) -> float:
        return min((float(one.factor) for one in list(self.controls)), default=1.0)


_METRICS: Final = _Metrics()
