"""The control of the pressure for event loops: a task."""

from __future__ import annotations

import asyncio
import math
import weakref
from typing import TYPE_CHECKING, Any

from headgate.errors import HeadgateError
from headgate.shaping.pressure.controlling import Controlling, shared
from headgate.stores.forking import watch_forks
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.clock import Clock
    from headgate.rules.soft import Pressure
    from headgate.stores import AsyncStore


class AsyncPressureControl(Controlling):
    """As `PressureControl`, by a task of the loop in which it is started.

    When that loop has ended, `start` begins anew in the one that runs then.
    """

    def __init__(
        self,
        pressure: Pressure,
        *,
        store: AsyncStore | None = None,
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
        self._task = asyncio.get_running_loop().create_task(_keep_stepping(weakref.ref(self)))
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
                told = await self._store.run(share)
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

    def begin_anew(self) -> None:
        super().begin_anew()
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


async def _keep_stepping(me: weakref.ref[AsyncPressureControl]) -> None:
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
