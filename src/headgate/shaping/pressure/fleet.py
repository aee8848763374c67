"""What the processes of a fleet make of the pressure together.

Each tells its own factor, and how many requests it had lately as its weight. The mean of all that
have not lapsed, by weight, is in force everywhere: so limits, which the fleet shares, are the same
in all of it. One process in trouble lowers them by its share of the requests: it can neither hold
all others down, nor is it ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from headgate.stores.operations import Share
from headgate.stores.port import group_name
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable

LAPSES_AFTER: Final = 3
"""After as many intervals what a process has told counts no more; not within a second, though: one
that is busy is late."""
_WEIGHING: Final = 0.5
"""How much of a weight is of the last interval."""
_HEAVIEST: Final = 1e9
"""No process has so many requests; what says so may be infinite, and then no mean is a number."""


class Fleet:
    """What the others said last, and what is told them. On the clock of the process."""

    def __init__(self, namespace: str, interval_ns: int) -> None:
        self._group = group_name(namespace, "!pressure")  # no rule is called that
        self._interval_ns = interval_ns
        self._origin = uuid4().hex
        self._others: tuple[tuple[float, float], ...] = ()
        self._heard_ns = 0
        self.weight = 0.0

    def begin_anew(self) -> None:
        """This is another process now, with another name; what was heard is as true here."""
        self._origin = uuid4().hex
        self.weight = 0.0

    def replace(self, interval_ns: int) -> None:
        """Tell it at another pace."""
        self._interval_ns = interval_ns

    @property
    def ttl_ns(self) -> int:
        """For how long counts what is told."""
        return max(LAPSES_AFTER * self._interval_ns, SECOND)

    def weigh(self, requests: int) -> None:
        """So many requests have ended in an interval."""
        self.weight += (requests - self.weight) * _WEIGHING
        if self.weight < _WEIGHING:
            self.weight = 0.0

    def share(self, own: float) -> Share:
        """What to tell the others, and to ask."""
        return Share(self._group, "factor", self._origin, own, self.weight, self.ttl_ns)

    def hear(self, told: Iterable[tuple[str, float, float]], now_ns: int) -> None:
        """What all have told by now."""
        self._others = tuple(
            (value, min(weight, _HEAVIEST))
            for origin, value, weight in told
            if origin != self._origin and 0 < value <= 1 and weight > 0
        )
        self._heard_ns = now_ns

    def others(self, now_ns: int) -> tuple[tuple[float, float], ...]:
        """The factor and the weight of each of the others, as far as it has not lapsed."""
        return self._others if now_ns - self._heard_ns < self.ttl_ns else ()

    def mean(self, own: float, now_ns: int) -> float:
        """What all make of it together, with *own* for this process."""
        others = self.others(now_ns)
        total = self.weight + sum(weight for _, weight in others)
        if not others or not total:
            return own
        return (own * self.weight + sum(value * weight for value, weight in others)) / total
