"""The pressure that an app is under: measured by its requests, and what it does to its limits."""

from __future__ import annotations

import asyncio
import threading
from fractions import Fraction
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from headgate.engine import AsyncRunner, Runner
from headgate.fork import watch_forks
from headgate.overload import AsyncPressureControl, PressureControl
from headgate.stores.base import Store
from headgate.stores.factory import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.clock import Clock
    from headgate.engine import Engine
    from headgate.engine.limit_adjustment import Scale
    from headgate.integrations.turns import Turns
    from headgate.policy.model import Pressure
    from headgate.stores.base import Accuracies, Store
    from headgate.units import Seconds


_NONE: Final = Fraction(1)


class Pressing:
    """Watches how the requests of an app fare, as its policy says, and sets *scale* by it.

    Nothing is begun before a request comes under a policy that says when there is pressure. Whoever
    comes first says how it goes on: by a task of the loop, or by a thread.
    """

    def __init__(
        self,
        scale: Scale,
        counting: Counting,
        turns: Turns,
        *,
        namespace: str,
        clock: Clock | None,
    ) -> None:
        self._scale = scale
        self._counting = counting
        self._turns = turns
        self._namespace = namespace
        self._clock = clock
        self._pressure: Pressure | None = None
        self._control: PressureControl | AsyncPressureControl | None = None
        self._unhear: Callable[[], None] = _nothing
        self._making = threading.Lock()
        watch_forks(self)

    def adopt(self, engine: Engine) -> None:
        """From now on there is pressure when the policy of *engine* says so."""
        self._pressure = pressure = engine.policy.pressure
        control = self._control
        if pressure is None:
            self._scale.factor = _NONE
        elif control is not None:
            control.replace(pressure)
            self._scale.factor = control.factor

    @property
    def factor(self) -> Fraction:
        """What limits are multiplied by now."""
        return self._scale.factor

    def begin(self) -> int | None:
        """A request begins: when, if it is to be noted how long it takes."""
        if self._pressure is None:
            return None
        if self._control is None:
            self._open(is_async=False)
        return perf_counter_ns()

    def begin_async(self) -> int | None:
        """The same in an event loop."""
        if self._pressure is None:
            return None
        if self._control is None:
            self._open(is_async=True)
        return perf_counter_ns()

    def note(self, began_ns: int, *, failed: bool) -> None:
        """A request that began at *began_ns* has ended."""
        control = self._control  # which may be closed meanwhile
        if control is not None:
            control.note(latency_ns=perf_counter_ns() - began_ns, failed=failed)

    def signal(self, name: str, value: float, *, lasts: Seconds = 10) -> None:
        """The signal *name* of the app's own is *value*: more than 1 is pressure."""
        if self._pressure is not None and self._control is None:
            self._open(is_async=_is_in_a_loop())
        control = self._control
        if control is not None:
            control.signal(name, value, lasts=lasts)

    def close(self) -> None:
        """Watch no longer, where that is done by a thread. Nobody would restore the limits: they
        are whole from now on, until somebody watches again."""
        control = self._control
        if isinstance(control, PressureControl):
            self._forget()
            control.close()

    async def aclose(self) -> None:
        """Watch no longer, by whatever means."""
        self.close()
        control = self._control
        if isinstance(control, AsyncPressureControl):
            self._forget()
            await control.aclose()

    def _forget(self) -> None:
        self._unhear()  # first: it may be in the middle of a step
        self._control, self._scale.factor = None, _NONE

    def after_fork(self) -> None:
        """In a forked process: no thread is left that would give a lock back."""
        self._making = threading.Lock()

    def _open(self, *, is_async: bool) -> None:
        with self._making:
            pressure = self._pressure
            if self._control is not None or pressure is None:
                return
            control: PressureControl | AsyncPressureControl
            if is_async:
                control = AsyncPressureControl(
                    pressure,
                    store=self._counting.async_runner.store,
                    namespace=self._namespace,
                    clock=self._clock,
                    waiting=self._waiting,
                )
            else:
                control = PressureControl(
                    pressure,
                    store=self._counting.runner.store,
                    namespace=self._namespace,
                    clock=self._clock,
                    waiting=self._waiting,
                )
            self._unhear = control.on_change(self._changed)
            self._control, self._scale.factor = control, control.factor
            control.start()

    def _waiting(self) -> int:
        return self._turns.waiting

    def _changed(self, factor: Fraction) -> None:
        if self._pressure is not None:
            self._scale.factor = factor


def _nothing() -> None:
    """There is nothing to be heard."""


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# Where the requests of an app are counted, by code that may block and code that may not.


class Counting:
    """The store of an app, opened when it is first used. Both kinds of code count together."""

    def __init__(self, store: str | Store, clock: Clock | None) -> None:
        self._store, self._clock = store, clock
        self._opening = threading.RLock()
        self._runner: Runner | None = None
        self._async_runner: AsyncRunner | None = None
        self._terms: Accuracies = {}
        self._opened: Store | None = None

    def adopt(self, terms: Accuracies) -> None:
        """From now on have the counters of a policy kept as *terms* say."""
        with self._opening:
            self._terms = terms
            for runner in (self._runner, self._async_runner):
                if runner is not None:
                    runner.adopt(terms)

    @property
    def runner(self) -> Runner:
        """What asks the store, for code that may block."""
        return self._runner or self._open_runner()

    @property
    def async_runner(self) -> AsyncRunner:
        """What asks the store, for an event loop."""
        return self._async_runner or self._open_async_runner()

    def close(self) -> None:
        """Close what code that blocks has opened. It is opened again if it is used again."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    async def aclose(self) -> None:
        """Close everything."""
        runner, self._async_runner = self._async_runner, None
        if runner is None:
            self.close()
        else:
            self._runner = None
            await runner.aclose()
        self._opened = None

    def _open_runner(self) -> Runner:
        with self._opening:  # two threads must not have two stores
            if self._runner is None:
                self._runner = Runner(self._open())
                self._runner.adopt(self._terms)
            return self._runner

    def _open_async_runner(self) -> AsyncRunner:
        with self._opening:
            if self._async_runner is None:
                self._async_runner = AsyncRunner(self._open())
                self._async_runner.adopt(self._terms)
            return self._async_runner

    def _open(self) -> Store:
        """The one store that both kinds of code use."""
        if self._opened is None:
            self._opened = open_store(self._store, self._clock)
        return self._opened
