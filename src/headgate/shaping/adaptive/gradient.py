"""A limit that follows the latency: lower when requests take longer than usual.

The idea is that of Netflix's concurrency-limits. Below the knee of a backend more requests at once
take no longer each; above it they only queue, and the latency says so long before anything fails.
So the latency of the last requests is held against the usual one:

    gradient = clamp(tolerance * usual / recent, 1/2, 1)
    limit   <- limit + smoothing * (limit * gradient + room - limit)

where *room* is the queue that is wanted at the backend, which lets the limit grow while the
gradient is 1. Both latencies are averages over rounds of requests (see `rounds`), the usual one
over many.

What is usual must not be learnt from overload: a backend that is always asked for too much would
seem to be always as slow, and the limit would grow without end. So while the limit is used, what is
usual only goes down; up it goes while there is room, and by a probe: every so many used rounds the
limit is halved for a round, and what the requests let in then take is what is usual. If the backend
has become slower for good, that is how it is found out; if only its queue was long, it is shorter
then.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.shaping.adaptive.bounds import Bounds, check_share
from headgate.shaping.adaptive.probes import Probe
from headgate.shaping.adaptive.rounds import Round, length
from headgate.units import duration_ns

if TYPE_CHECKING:
    from headgate.units import Seconds

STEEPEST: Final = 0.5
"""The least that a gradient can be: whatever happens in a round, half of the limit stays."""

_RECENT: Final = 0.5
"""How much of the recent latency is that of the last round."""

_PROBED: Final = 0.5
"""How far one probe moves what is usual."""

_SOON: Final = 10
"""Used rounds before the first probe, as it may all have begun in an overload, and before the next
after one that has found something else than was believed."""

_AS_BELIEVED: Final = (0.85, 1.3)
"""From what to what part of the usual latency a probe has found it."""

_FARTHEST: Final = 8
"""One request counts as at most so many times the usual latency."""

_SINK: Final = 0.95
"""What is usual is multiplied by that after a round in which it was more than twice too high."""


def climbed(limit: float, gradient: float, *, room: float | None, smoothing: float) -> float:
    """*limit* after a round: part of the way to `limit * gradient + room`."""
    wanted = math.sqrt(limit) if room is None else room
    return limit + smoothing * (limit * gradient + wanted - limit)


class Gradient:
    """A limit that follows the latency; a `Steering`.

    It starts at *initial* (20 if not said) and stays from *least* to *most*. Latency up to
    *tolerance* times the usual one is fine, unless it is above *target* seconds. *room* requests
    may queue at the backend (the root of the limit if not said); *smoothing* is how much of a
    change is made at once. *window* is over how many rounds the usual latency is averaged, *probe*
    after how many used rounds it is looked at anew. Failures lower the limit by their share of the
    round, to a half at most. While less than half of it is used it stays as it is, unless most
    requests fail or take thrice as long as usual. Not safe for several threads at once: a gate asks
    it under its own lock.
    """

    def __init__(
        self,
        *,
        initial: int | None = None,
        least: int = 1,
        most: int = 1_000,
        tolerance: float = 1.5,
        target: Seconds | None = None,
        room: int | None = None,
        smoothing: float = 0.2,
        window: int = 200,
        probe: int = 100,
    ) -> None:
        self._bounds = Bounds(least, most)
        self._limit = self._bounds.start(initial)
        if not 1 <= tolerance < math.inf:
            raise OptionError(f"tolerance is {tolerance!r}; expected 1 or more, such as 1.5")
        for name, value in (("room", room), ("window", window), ("probe", probe)):
            if value is not None and value < 1:
                raise OptionError(f"{name} is {value!r}; expected at least 1")
        self._tolerance = tolerance
        self._target_ns = None if target is None else duration_ns(target, "target")
        self._room = room
        self._smoothing = check_share(smoothing, "smoothing")
        self._learning = 2 / (window + 1)
        self._probe_after = probe
        self._farthest_ns = math.inf
        self._usual_ns: float | None = None
        self._recent_ns: float | None = None
        self._until_probe = min(probe, _SOON)
        self._probe: Probe | None = None
        self._begin_round()

    @property
    def limit(self) -> int:
        """How many may be in now."""
        return int(self._limit) if self._probe is None else self._probe.limit

    @property
    def usual(self) -> float | None:
        """The latency that is held to be usual, in seconds; None before there was a round."""
        return None if self._usual_ns is None else self._usual_ns / 1e9

    def observe(self, *, in_flight: int, latency_ns: float, succeeded: bool) -> None:
        """As `Steering.observe`."""
        time_ns: float | None = latency_ns
        if not 0 < latency_ns < math.inf:
            time_ns = None
        elif latency_ns > self._farthest_ns:
            time_ns = self._farthest_ns
        ended = self._round.add(in_flight, time_ns, succeeded=succeeded)
        if self._probe is not None:
            self._observe_probe(self._probe, in_flight, time_ns if succeeded else None)
        elif ended >= self._length:
            self._judge(self._round)

    def _observe_probe(self, probe: Probe, in_flight: int, time_ns: float | None) -> None:
        probe.observe(in_flight, time_ns)
        if self._round.is_failing:
            self._end_probe(None)
            self._judge(self._round)
        elif probe.is_over:
            self._end_probe(probe.found_ns)
            self._begin_round()

    def _judge(self, round_: Round) -> None:
        self._move(round_)
        self._begin_round()

    def _begin_round(self) -> None:
        self._round = Round()
        self._length = length(self._limit)
        if self._usual_ns is not None:
            self._farthest_ns = _FARTHEST * self._usual_ns

    def _move(self, round_: Round) -> None:
        limit = int(self._limit)
        latency_ns = round_.latency_ns
        if latency_ns is not None:
            self._learn(latency_ns, used=round_.used(limit))
        gradient = 1.0 if latency_ns is None else self._gradient
        if gradient > STEEPEST and not round_.blames(limit):
            return
        if gradient < 1 or round_.failed or round_.used(limit):
            kept = max(STEEPEST, 1 - round_.failed / round_.ended)
            room = self._room if latency_ns is not None else 0
            new = climbed(self._limit, gradient, room=room, smoothing=self._smoothing)
            self._limit = self._bounds.held(new * kept)
        if round_.used(limit):
            self._until_probe -= 1
            if self._until_probe <= 0 and self._halved < limit:
                self._probe = Probe(limit=self._halved, instead_of=limit)

    @property
    def _gradient(self) -> float:
        if self._usual_ns is None or self._recent_ns is None:
            return 1.0
        fine_ns = self._tolerance * self._usual_ns
        if self._target_ns is not None:
            fine_ns = min(fine_ns, self._target_ns)
        return min(max(fine_ns / self._recent_ns, STEEPEST), 1.0)

    def _learn(self, latency_ns: float, *, used: bool) -> None:
        """A round took *latency_ns* on average, and the limit was *used* or there was room."""
        if self._usual_ns is None or self._recent_ns is None:
            self._usual_ns = self._recent_ns = latency_ns
            return
        self._recent_ns += _RECENT * (latency_ns - self._recent_ns)
        # At the lowest limit nothing else can be tried: what it takes there is usual.
        if self._recent_ns < self._usual_ns or not used or int(self._limit) <= self._bounds.least:
            self._usual_ns += self._learning * (self._recent_ns - self._usual_ns)
        if self._recent_ns < self._usual_ns / 2:
            self._usual_ns *= _SINK

    @property
    def _halved(self) -> int:
        return max(int(self._limit) // 2, self._bounds.least)

    def _end_probe(self, found_ns: float | None) -> None:
        self._probe = None
        self._until_probe = self._probe_after
        if found_ns is None or self._usual_ns is None:
            return
        low, high = _AS_BELIEVED
        if not low < found_ns / self._usual_ns < high:
            self._until_probe = min(self._probe_after, _SOON)
        self._usual_ns += _PROBED * (found_ns - self._usual_ns)

    def __repr__(self) -> str:
        bounds = f"least={self._bounds.least}, most={self._bounds.most}"
        return f"Gradient(limit={self.limit}, usual={self.usual}, {bounds})"
