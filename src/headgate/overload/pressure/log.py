"""What operators see of the pressure: a line in the log when limits are lowered and when they are
whole again, and measures."""

from __future__ import annotations

import logging
from fractions import Fraction
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from headgate.observability.metrics import MEASURES
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.policy.model import Pressure

LOG: Final = logging.getLogger("headgate.pressure")


class Telling:
    """Puts into words, and numbers, what happens to the limits of *namespace*."""

    def __init__(self, namespace: str) -> None:
        self.factor = Fraction(1)
        self.signals: Mapping[str, float] = {}
        self._namespace = namespace
        self._why = ""
        self._since_ns = 0
        self._lowest = Fraction(1)
        BOARD.add(self)

    def judged(self, signals: Mapping[str, float], why: str | None, pressure: Pressure) -> None:
        """The *signals* of an interval; the one that says that there is pressure, if any does."""
        self.signals = signals
        for name in signals:
            BOARD.know(name)
        if why is not None:
            self._why = _described(why, signals[why], pressure)

    def stepped(self, direction: int) -> None:
        """This process has taken a step: -1, 0 or 1."""
        if direction:
            BOARD.steps["up" if direction > 0 else "down"].add()

    def changed(self, factor: Fraction, now_ns: int) -> None:
        """This is in force now."""
        before, self.factor = self.factor, factor
        self._lowest = min(self._lowest, factor)
        if before == 1:
            self._since_ns, self._lowest = now_ns, factor
            why = self._why or "other processes are under pressure"
            LOG.warning(
                "limits of %s are lowered to %.0f%% and may be further: %s",
                self._namespace,
                100 * factor,
                why,
            )
        elif factor == 1:
            LOG.warning(
                "limits of %s are whole again after %.0f s; at the least they were %.0f%%",
                self._namespace,
                (now_ns - self._since_ns) / SECOND,
                100 * self._lowest,
            )
            self._why = ""

    def ended(self) -> None:
        """Nobody looks any more."""
        BOARD.remove(self)


def _described(name: str, signal: float, pressure: Pressure) -> str:
    if name == "latency" and pressure.latency_ns is not None:
        most_ms = pressure.latency_ns / MILLISECOND
        at = f"{100 * float(pressure.quantile):.4g}%"
        return f"{at} of requests take up to {signal * most_ms:.0f} ms, more than {most_ms:.0f} ms"
    if name == "errors" and pressure.errors is not None:
        share = f"{100 * signal * float(pressure.errors):.1f}%"
        return f"{share} of requests fail, more than {100 * float(pressure.errors):.4g}%"
    if name == "queue" and pressure.queue is not None:
        return f"{signal * pressure.queue:.0f} requests wait, more than {pressure.queue}"
    return f"{name} is {signal:.3g} times what it may be"


class _Signal:
    """The gauge of one signal."""

    def __init__(self, board: _Board, name: str) -> None:
        self._board = board
        self._name = name

    def read(self) -> float:
        """What it says where it says most."""
        live = list(self._board.tellings)
        return max((one.signals.get(self._name, 0.0) for one in live), default=0.0)


class _Board:
    """All controls of this process."""

    def __init__(self) -> None:
        self.tellings: WeakSet[Telling] = WeakSet()
        self._signals: dict[str, _Signal] = {}
        self._is_told = False
        steps, text = "pressure_steps", "Steps of the factor that this process holds to be right."
        self.steps = {
            direction: MEASURES.counter(steps, text, direction=direction)
            for direction in ("down", "up")
        }

    def add(self, telling: Telling) -> None:
        if not self._is_told:
            self._is_told = True
            text = "What limits are multiplied by under pressure."
            MEASURES.gauge("pressure_factor", text, self.lowest)
        self.tellings.add(telling)

    def remove(self, telling: Telling) -> None:
        self.tellings.discard(telling)

    def lowest(self) -> float:
        return min((float(one.factor) for one in list(self.tellings)), default=1.0)

    def know(self, name: str) -> None:
        """Have a gauge for the signal *name*."""
        if name not in self._signals:
            signal = self._signals.setdefault(name, _Signal(self, name))
            text = "What says that there is pressure, divided by what it may be."
            MEASURES.gauge("pressure_signal", text, signal.read, signal=name)


BOARD: Final = _Board()
