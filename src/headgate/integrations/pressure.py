"""The pressure that an app is under: measured by its requests, and what it does to its limits."""

from __future__ import annotations

import asyncio
import threading
from fractions import Fraction
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from headgate.engine.use_cases import Engine
from headgate.fork import watch_forks
from headgate.overload import AsyncPressureControl, PressureControl
from headgate.runtime.drivers import adrive, drive
from headgate.stores.base import Store
from headgate.stores.factory import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.clock import Clock
    from headgate.integrations.turns import Turns
    from headgate.policy.compiled import CompiledPolicy
    from headgate.policy.limit_adjustment import Scale
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

    def adopt(self, engine: CompiledPolicy) -> None:
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
            control.record(latency_ns=perf_counter_ns() - began_ns, failed=failed)

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
                    store=self._counting.engine.store,
                    namespace=self._namespace,
                    clock=self._clock,
                    waiting=self._waiting,
                )
            else:
                control = PressureControl(
                    pressure,
                    store=self._counting.engine.store,
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


# Where the requests of an app are counted.


class Counting:
    """The engine on the store of an app, opened when it is first used."""

    def __init__(self, store: str | Store, clock: Clock | None) -> None:
        self._store, self._clock = store, clock
        self._opening = threading.RLock()
        self.opened: Engine | None = None
        """The engine, if the store is open."""
        self._opened_store: Store | None = None
        self._accuracies: Accuracies = {}

    def adopt(self, accuracies: Accuracies) -> None:
        """Keep the counters of a policy as exactly as *accuracies* say from now on."""
        with self._opening:
            self._accuracies = accuracies
            if self.opened is not None:
                self.opened.set_accuracies(self, accuracies)

    @property
    def engine(self) -> Engine:
        """The use cases on the store."""
        return self.opened or self._open()

    def close(self) -> None:
        """Close the store. It is opened again if it is used again."""
        engine, self.opened = self.opened, None
        if engine is not None:
            drive(engine.closing())

    async def aclose(self) -> None:
        """Close the store, in an event loop, and forget it."""
        engine, self.opened = self.opened, None
        if engine is not None:
            await adrive(engine.closing())
        self._opened_store = None

    def _open(self) -> Engine:
        with self._opening:  # two threads must not have two stores
            if self.opened is None:
                if self._opened_store is None:
                    self._opened_store = open_store(self._store, self._clock)
                self.opened = Engine(self._opened_store)
                self.opened.set_accuracies(self, self._accuracies)
            return self.opened
