"""Limits moved by a number of the user's, and several limits at once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from headgate.errors import OptionError
from headgate.shaping.adaptive.bounds import Bounds, check_share
from headgate.shaping.adaptive.gradient import STEEPEST, climbed
from headgate.shaping.adaptive.rounds import Round

if TYPE_CHECKING:
    from headgate.shaping.steering import Steering


class Signal:
    """A limit that keeps a number at its target; a `Steering`.

    The number is any that grows with load, told by `tell` as often as it is known: how busy the
    processor is (*target* 0.8), how many wait in a queue further on (100), the share of errors
    (0.05), how late the event loop is. Above the target the limit falls in proportion, to a half
    at most; below it grows by *room* (its root if not said), if it is used; while less than half
    of it is used it stays. What requests take does not matter. *smoothing* is how much of a change
    is made at once.
    """

    __slots__ = ("_bounds", "_last", "_limit", "_room", "_round", "_smoothing", "_target")

    def __init__(
        self,
        target: float,
        *,
        initial: int | None = None,
        least: int = 1,
        most: int = 1_000,
        room: int | None = None,
        smoothing: float = 0.2,
    ) -> None:
        if not 0 < target < math.inf:
            raise OptionError(f"target is {target!r}; expected a number above 0, such as 0.8")
        self._bounds = Bounds(least, most)
        self._limit = self._bounds.start(initial)
        self._target = target
        self._room = room
        self._smoothing = check_share(smoothing, "smoothing")
        self._round = self._last = Round()

    @property
    def limit(self) -> int:
        """How many may be in now."""
        return int(self._limit)

    def tell(self, value: float) -> None:
        """The number is *value* now. One that is not a number is as if it had not been told."""
        if math.isnan(value):
            return
        if self._round.ended:
            self._last, self._round = self._round, Round()
        limit, round_ = self.limit, self._last  # who hangs has not ended: what was is still so
        gradient = 1.0 if value <= self._target else max(self._target / value, STEEPEST)
        if round_.used(limit) or (gradient < 1 and round_.blames(limit)):
            room = self._room if gradient >= 1 else 0
            new = climbed(self._limit, gradient, room=room, smoothing=self._smoothing)
            self._limit = self._bounds.held(new)

    def observe(self, *, in_flight: int, latency_ns: float, succeeded: bool) -> None:
        """As `Steering.observe`; only whether the limit is used matters."""
        self._round.add(in_flight, None, succeeded=succeeded)

    def __repr__(self) -> str:
        return f"Signal(target={self._target}, limit={self.limit})"


class Lowest:
    """The lowest of several limits, each moved by its own reasons; a `Steering`.

    Those that are not the lowest see that they are not used, and so do not run away.
    """

    __slots__ = ("_parts",)

    def __init__(self, *parts: Steering) -> None:
        if not parts:
            raise OptionError("there is nothing to be the lowest of; expected at least one")
        self._parts = parts

    @property
    def limit(self) -> int:
        """How many may be in now."""
        return min(part.limit for part in self._parts)

    def observe(self, *, in_flight: int, latency_ns: int, succeeded: bool) -> None:
        """As `Steering.observe`."""
        for part in self._parts:
            part.observe(in_flight=in_flight, latency_ns=latency_ns, succeeded=succeeded)

    def __repr__(self) -> str:
        return f"Lowest({', '.join(map(repr, self._parts))})"
