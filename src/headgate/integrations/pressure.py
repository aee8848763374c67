"""The pressure of an app, measured by its requests, which lowers its limits."""

from __future__ import annotations

import asyncio
import threading
from fractions import Fraction
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from headgate.fork import watch_forks
from headgate.overload import AsyncPressureControl, PressureControl

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.clock import Clock
    from headgate.integrations.request_limiter import RequestLimiter
    from headgate.policy.limit_adjustment import Scale
    from headgate.policy.model import Pressure
    from headgate.units import Seconds


_NONE: Final = Fraction(1)


class AppPressure:
    """Measures the requests of an app as its policy says, and sets *scale* by it.

    It begins with the first request under a policy with `pressure`: with a task of the running
    event loop, or with a thread.
    """

    def __init__(self, limiter: RequestLimiter, scale: Scale, clock: Clock | None) -> None:
        self._limiter = limiter
        self._scale = scale
        self._clock = clock
        self._pressure: Pressure | None = None
        self._control: PressureControl | AsyncPressureControl | None = None
        self._unsubscribe: Callable[[], None] = _nothing
        self._lock = threading.Lock()
        watch_forks(self)

    def adopt(self, pressure: Pressure | None) -> None:
        """Measure as *pressure* of a policy says from now on."""
        self._pressure = pressure
        control = self._control
        if pressure is None:
            self._scale.factor = _NONE
        elif control is not None:
            control.replace(pressure)
            self._scale.factor = control.factor

    @property
    def factor(self) -> Fraction:
        """The factor of limits now."""
        return self._scale.factor

    def begin(self) -> int | None:
        """Begin a request; the time, if it is to be measured."""
        if self._pressure is None:
            return None
        if self._control is None:
            self._open()
        return perf_counter_ns()

    def record(self, began_ns: int, *, failed: bool) -> None:
        """Record the end of a request that began at *began_ns*."""
        control = self._control  # which may be closed meanwhile
        if control is not None:
            control.record(latency_ns=perf_counter_ns() - began_ns, failed=failed)

    def signal(self, name: str, value: float, *, lasts: Seconds = 10) -> None:
        """Set the signal *name* of the app to *value*: more than 1 is pressure."""
        if self._pressure is not None and self._control is None:
            self._open()
        control = self._control
        if control is not None:
            control.signal(name, value, lasts=lasts)

    def close(self) -> None:
        """Stop measuring in a thread. Limits are whole from now on."""
        control = self._control
        if isinstance(control, PressureControl):
            self._forget()
            control.close()

    async def aclose(self) -> None:
        """Stop measuring."""
        self.close()
        control = self._control
        if isinstance(control, AsyncPressureControl):
            self._forget()
            await control.aclose()

    def _forget(self) -> None:
        self._unsubscribe()  # first: it may be in the middle of a step
        self._control, self._scale.factor = None, _NONE

    def after_fork(self) -> None:
        """Replace the lock: a thread of the parent process may have had it."""
        self._lock = threading.Lock()

    def _open(self) -> None:
        with self._lock:
            pressure = self._pressure
            if self._control is not None or pressure is None:
                return
            kind = AsyncPressureControl if is_in_loop() else PressureControl
            control: PressureControl | AsyncPressureControl = kind(
                pressure,
                store=self._limiter.engine.store,
                namespace=self._limiter.namespace,
                clock=self._clock,
                waiting=lambda: self._limiter.queues.waiting,
            )
            self._unsubscribe = control.on_change(self._changed)
            self._control, self._scale.factor = control, control.factor
            control.start()

    def _changed(self, factor: Fraction) -> None:
        if self._pressure is not None:
            self._scale.factor = factor


def _nothing() -> None:
    """The end of no subscription."""


def is_in_loop() -> bool:
    """True if an event loop is running in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
