"""The control of the pressure for processes that may block: a thread."""

from __future__ import annotations

import asyncio
import math
import threading
import weakref
from abc import ABC, abstractmethod
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headgate.clock import Clock, MonotonicClock
from headgate.errors import HeadgateError, OptionError
from headgate.fork import watch_forks
from headgate.overload.pressure.log import LOG, Telling
from headgate.overload.pressure.signals import Course, Fleet, Readings, Told, judged, signals_of
from headgate.units import SECOND, Seconds, duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headgate.overload.pressure.signals import Verdict
    from headgate.policy.model import Pressure
    from headgate.stores import Store
    from headgate.stores.operations import PublishValue


# What both controls share: from how requests fare to the factor in force, without I/O.


S = TypeVar("S", "Store", "Store")

STEPS: Final = 64
"""The factor in force is a whole number of such parts: so there are few limits of different size,
and each of them is made once."""

_STICKY: Final = 0.75
"""By how many such parts the factor must be off before another is in force."""

_TINY: Final = 1e-9


class Controlling(ABC):
    """The factor by which limits are multiplied, moved by how requests fare and by the fleet.

    `note` and `signal` may be called by any thread; all else by one at a time. *clock* need not be
    that of the store: only differences count.
    """

    def __init__(
        self,
        pressure: Pressure,
        *,
        namespace: str,
        clock: Clock | None,
        waiting: Callable[[], int] | None,
    ) -> None:
        self.factor = Fraction(1)
        """What limits are to be multiplied by now."""
        self.waiting = waiting
        """How many requests wait, if anybody knows."""
        self.clock: Clock = MonotonicClock() if clock is None else clock
        self.pressure = _checked(pressure)
        self._readings = Readings(pressure.latency_ns, pressure.quantile)
        self._told = Told()
        self._course = Course(pressure)
        self._fleet = Fleet(namespace, pressure.interval_ns)
        self._telling = Telling(namespace)
        self._listeners: tuple[Callable[[Fraction], None], ...] = ()
        self._is_resting = True

    def note(self, *, latency_ns: int, failed: bool = False) -> None:
        """A request that was let in has ended, after *latency_ns*. It *failed* if that was for want
        of capacity further on: a timeout, a 503; not if it was wrong itself."""
        self._readings.note(latency_ns, failed=failed)
        if self._is_resting:
            self.rouse()

    def signal(self, name: str, value: float, *, lasts: Seconds = 10) -> None:
        """The signal *name* of yours is *value*: more than 1 is pressure, at most 0.9 is calm.

        It counts until it is told anew, for *lasts* seconds at most.
        """
        lasts_ns = duration_ns(lasts, "the time that a signal lasts")
        self._told.tell(name, value, self.clock() + lasts_ns)

    def on_change(self, callback: Callable[[Fraction], None]) -> Callable[[], None]:
        """Have *callback* called with each new factor; what is returned undoes this."""
        self._listeners = (*self._listeners, callback)

        def forget() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not callback)

        return forget

    def replace(self, pressure: Pressure) -> None:
        """Go on by other terms. The factor stays as it is, if they allow it."""
        if pressure == self.pressure:
            return
        before, self.pressure = self.pressure, _checked(pressure)
        if (before.latency_ns, before.quantile) != (pressure.latency_ns, pressure.quantile):
            self._readings = Readings(pressure.latency_ns, pressure.quantile)
        self._course.replace(pressure)
        self._fleet.replace(pressure.interval_ns)

    @abstractmethod
    def start(self) -> None:
        """Have steps made in the background."""

    def rouse(self) -> None:
        """The same, if that can be done from here."""
        self.start()

    def after_fork(self) -> None:
        """This is another process now: what was noted so far, the other one looks at."""
        self._readings.after_fork()
        self._fleet.after_fork()

    def advance(self, now_ns: int) -> PublishValue:
        """An interval is over: take a step, and say what is to be told to the fleet."""
        readings, course, fleet = self._readings, self._course, self._fleet
        fleet.weigh(readings.fresh())
        if fleet.others(now_ns):
            course.approach(fleet.mean(course.own, now_ns), wholly=not fleet.weight)
        if course.is_holding:
            course.hold()
            readings.after_fork()
        else:
            verdict, latency_ns = self._judge(now_ns)
            self._telling.judged(verdict.signals, verdict.why, self.pressure)
            self._telling.stepped(course.step(verdict.mood, latency_ns))
        return fleet.share(course.own)

    def hear(self, told: Iterable[tuple[str, float, float]] | None, now_ns: int) -> None:
        """What the fleet has told, None if it could not be asked: now the factor is known."""
        if told is not None:
            self._fleet.hear(told, now_ns)
        factor = self._quantised(self._fleet.mean(self._course.own, now_ns))
        if factor == self.factor:
            return
        self.factor = factor
        self._telling.changed(factor, now_ns)
        for listener in self._listeners:
            try:
                listener(factor)
            except Exception:  # noqa: BLE001 (no mistake of a user's may leave limits lowered)
                LOG.exception("a listener to the pressure failed")

    def _judge(self, now_ns: int) -> tuple[Verdict, float]:
        """What there is to say, and how long requests took, in nanoseconds; 0 if unknown."""
        pressure, readings = self.pressure, self._readings
        signals, latency_ns = self._told.now(now_ns), 0.0
        reading = readings.look()
        if reading is not None:
            signals |= signals_of(reading, pressure)
            latency_ns = (reading.latency or 0.0) * (pressure.latency_ns or 0)
        if pressure.queue is not None and self.waiting is not None:
            waiting = self._asked(self.waiting)
            if waiting is not None:
                signals["queue"] = waiting / max(pressure.queue, 1)
        needs_none = pressure.latency_ns is None and pressure.errors is None
        is_known = needs_none or reading is not None or readings.is_quiet
        return judged(signals, is_known=is_known), latency_ns

    def _asked(self, waiting: Callable[[], int]) -> int | None:
        try:
            return max(int(waiting()), 0)  # what is no number fails here
        except Exception:  # noqa: BLE001 (as above)
            LOG.exception("how many requests wait could not be found out")
            return None

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


def _checked(pressure: Pressure) -> Pressure:
    """*pressure*, if limits can be lowered and restored by it: what rules say always is so."""
    if pressure.interval_ns < 1 or (pressure.latency_ns is not None and pressure.latency_ns < 1):
        raise OptionError("the interval and the latency of a pressure are more than 0 nanoseconds")
    for name in ("quantile", "backoff", "recovery", "least"):
        share = getattr(pressure, name)
        if not 0 < share <= 1 or (name == "backoff" and share == 1):
            end = "less than 1" if name == "backoff" else "at most 1"
            raise OptionError(f"{name} of the pressure is {share}; expected more than 0 and {end}")
    return pressure


def shared(store: S | None) -> S | None:
    """*store*, if others see what is told there."""
    if isinstance(store, str):
        told = f"store is {store!r}; expected a store that is open, such as RedisStore({store!r})"
        raise OptionError(told)
    return store if store is not None and store.publishes_values else None


class PressureControl(Controlling):
    """Lowers limits under pressure, together with all processes that share *store*.

    `factor` says by how much. Its thread starts with the first request that is noted, or by
    `start`; again after a fork. It keeps neither the control nor the process alive.
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
        super().__init__(pressure, namespace=namespace, clock=clock, waiting=waiting)
        self._store = shared(store)
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._start_over()
        watch_forks(self)

    def start(self) -> None:
        """Take steps in the background from now on, one each interval."""
        with self._starting:
            if self._thread is not None or self._is_closed:
                return
            closing = self._closing
            me = weakref.ref(self, lambda _: closing.set())
            thread = self._thread = threading.Thread(
                target=_keep_stepping, args=(me, closing), daemon=True, name="headgate-pressure"
            )
            self._is_resting = False
            thread.start()

    def step(self) -> None:
        """An interval is over: take a step, and hear what the others say. There is no need to call
        this: it is done in the background."""
        share = self.advance(self.clock())
        told = None
        if self._store is not None:
            try:
                told = self._store.run(share)
            except HeadgateError:
                told = None  # what was heard last counts until it lapses
        self.hear(told, self.clock())

    def close(self) -> None:
        """End it. The factor stays as it is."""
        self._is_closed = True
        self._is_resting = False
        self._closing.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)
        self._telling.ended()

    def after_fork(self) -> None:
        super().after_fork()
        self._start_over()

    def _start_over(self) -> None:
        self._starting = threading.Lock()
        self._closing = threading.Event()
        self._rest()

    def _rest(self) -> None:
        self._thread = None
        self._is_resting = not self._is_closed


def _keep_stepping(me: weakref.ref[PressureControl], closing: threading.Event) -> None:
    """Take a step each interval, as long as the control is there. A thread's work."""
    control = me()
    pause = 0.0
    try:
        while control is not None:
            pause = control.pressure.interval_ns / SECOND
            control.step()
            del control  # whoever waits must not keep it
            if closing.wait(pause):
                return
            control = me()
    except BaseException:
        control = None
        closing.wait(pause)  # not a thread for each request
        control = me()
        if control is not None:  # whoever notes something starts another
            control._rest()  # noqa: SLF001 (the control's own work, elsewhere)
        raise


# The control of the pressure for event loops: a task.


class AsyncPressureControl(Controlling):
    """As `PressureControl`, by a task of the loop in which it is started.

    When that loop has ended, `start` begins anew in the one that runs then.
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
        super().__init__(pressure, namespace=namespace, clock=clock, waiting=waiting)
        self._store = shared(store)
        self._is_closed = False
        self._task: asyncio.Task[Any] | None = None
        self._stepped = -math.inf
        watch_forks(self)

    def start(self) -> None:
        """Take steps from now on, one each interval. To be called in a loop that runs."""
        task = self._task
        is_there = task is not None and not task.done() and task.get_loop().is_running()
        if is_there or self._is_closed:
            return
        self._task = asyncio.get_running_loop().create_task(
            _aio_control_keep_stepping(weakref.ref(self))
        )
        self._is_resting = False

    def rouse(self) -> None:
        try:
            self.start()
        except RuntimeError:  # a thread without a loop: somebody else will
            return

    async def step(self) -> None:
        """As `PressureControl.step`."""
        share = self.advance(self.clock())
        told = None
        if self._store is not None:
            try:
                told = await self._store.arun(share)
            except HeadgateError:
                told = None  # what was heard last counts until it lapses
        self.hear(told, self.clock())

    async def aclose(self) -> None:
        """End it. The factor stays as it is."""
        self._is_closed = True
        self._is_resting = False
        task, self._task = self._task, None
        self._telling.ended()
        if task is None or task.get_loop().is_closed():
            return
        if task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            await asyncio.wait({task})
        else:
            task.get_loop().call_soon_threadsafe(task.cancel)

    def after_fork(self) -> None:
        super().after_fork()
        self._task = None
        self._is_resting = not self._is_closed

    def _rest(self) -> None:
        """Its task has ended: whoever notes something starts another."""
        self._is_resting = not self._is_closed

    async def _step_if_due(self) -> float:
        """Take a step, unless the last one was less than an interval ago: loops may come and go
        more often, one for each request even. The seconds until the next one is due."""
        interval, now = self.pressure.interval_ns / SECOND, asyncio.get_running_loop().time()
        left = self._stepped + interval - now
        if 0 < left <= interval:
            return left
        self._stepped = now
        await self.step()
        return interval


async def _aio_control_keep_stepping(me: weakref.ref[AsyncPressureControl]) -> None:
    """Take a step each interval, as long as the control is there."""
    try:
        control = me()
        while control is not None:
            pause = await control._step_if_due()  # noqa: SLF001 (the control's own work, elsewhere)
            del control  # whoever waits must not keep it
            await asyncio.sleep(pause)
            control = me()
    finally:
        control = me()
        if control is not None:
            control._rest()  # noqa: SLF001 (as above)
