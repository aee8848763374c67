"""What says that there is pressure: latency, errors, requests that wait, and what users tell.

Each signal is a number: what it is, divided by what it may be. More than 1 is pressure. What is
less than 1 but close to it is neither pressure nor calm, so that limits are not raised into the
trouble they were lowered for.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from headgate.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.rules.soft import Pressure
    from headgate.shaping.pressure.readings import Reading

CALM: Final = 0.9
"""A signal that is at most so large lets limits be raised."""

OWN: Final = ("latency", "errors", "queue")
"""The names of the signals that are not a user's."""
MOST_SIGNALS: Final = 32
"""How many signals a user may tell: each is a label of a measure."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")

Mood = Literal["pressed", "uncertain", "unknown", "calm"]
"""Uncertain is what is neither pressure nor calm; unknown, what too few requests tell so far."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the signals say together, and *why* if it is pressure: the largest of them."""

    mood: Mood
    signals: Mapping[str, float] = field(default_factory=dict)

    @property
    def why(self) -> str | None:
        found = max(self.signals, key=self.signals.__getitem__, default=None)
        return found if self.mood == "pressed" else None


def judged(signals: Mapping[str, float], *, is_known: bool) -> Verdict:
    """What *signals* come to; unless it *is_known* how requests fare, that is never calm."""
    worst = max(signals.values(), default=0.0)
    if worst > 1:
        return Verdict("pressed", signals)
    if not worst <= CALM:
        return Verdict("uncertain", signals)
    return Verdict("calm" if is_known else "unknown", signals)


def signals_of(reading: Reading, pressure: Pressure) -> dict[str, float]:
    """The signals that come of how requests fared."""
    found = {}
    if reading.latency is not None:
        found["latency"] = reading.latency
    if pressure.errors is not None:
        allowed = float(pressure.errors)
        found["errors"] = reading.failed / allowed if allowed else 2.0 * (reading.failed > 0)
    return found


class Told:
    """What users tell: each signal counts until it is told anew, or has lapsed."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[float, int]] = {}

    def tell(self, name: object, value: object, until_ns: int) -> None:
        """The signal *name* is *value* until then. Raises `OptionError` for what is no signal."""
        if not isinstance(name, str) or name in OWN or not _NAME.fullmatch(name):
            raise OptionError(f"a signal is called {name!r}; expected a name of its own: 'db_lag'")
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise OptionError(f"the signal {name} is {value!r}; expected a number from 0")
        if name not in self._values and len(self._values) >= MOST_SIGNALS:
            raise OptionError(f"{name} is one signal too many; there may be {MOST_SIGNALS}")
        self._values[name] = (min(float(value), _LARGEST), until_ns)

    def now(self, now_ns: int) -> dict[str, float]:
        """All that has not lapsed."""
        told = list(self._values.items())
        return {name: value for name, (value, until_ns) in told if now_ns < until_ns}


_LARGEST: Final = math.ldexp(1.0, 30)
