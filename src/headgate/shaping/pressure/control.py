"""The control of the pressure for processes that may block: a thread."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from headgate.errors import HeadgateError
from headgate.shaping.pressure.controlling import Controlling, shared
from headgate.stores.forking import watch_forks
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.clock import Clock
    from headgate.rules.soft import Pressure
    from headgate.stores import Store


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

    def begin_anew(self) -> None:
        super().begin_anew()
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
