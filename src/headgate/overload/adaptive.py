"""Adaptive concurrency: limits that find how much a backend can do at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from headgate.errors import OptionError
from headgate.units import duration_ns, plain_seconds

if TYPE_CHECKING:
    from headgate.policy.model import AdaptiveSlots
    from headgate.units import Seconds


class Steering(Protocol):
    """A concurrency limit that moves by the results of requests.

    It reads no clock and takes no lock: a gate reports to it, one request at a time.
    """

    @property
    def limit(self) -> int:
        """Requests that may be in now; at least 1."""

    def observe(self, *, in_flight: int, latency_ns: int, succeeded: bool) -> None:
        """Record the end of a request that was one of *in_flight*, itself included, at its begin.

        Where slots are kept from its class, *in_flight* is in proportion: all of them are in use
        for it when all are that it may use. *latency_ns* is 0 if it is no measure, as for a
        websocket. A request did not succeed if it failed for lack of capacity: a timeout, a 503, a
        denial downstream. A request with an error of its own did succeed in this sense.
        """


_USUAL_START: Final = 20


class _Bounded:
    """A limit that stays from *least* to *most*. It starts at *initial*, or at 20 if that fits."""

    def __init__(self, initial: int | None, least: int, most: int) -> None:
        given = {"least": least, "most": most, "initial": least if initial is None else initial}
        for name, value in given.items():
            if type(value) is not int or value < 1:
                raise OptionError(f"{name} is {value!r}; expected a whole number of at least 1")
        if most < least:
            raise OptionError(f"most is {most}, below least, which is {least}")
        if initial is not None and not least <= initial <= most:
            raise OptionError(f"initial is {initial}; expected from {least} to {most}")
        self._least, self._most = least, most
        self._limit = self._held(_USUAL_START if initial is None else initial)

    @property
    def limit(self) -> int:
        """Requests that may be in now."""
        return int(self._limit)

    def _held(self, limit: float) -> float:
        """Return *limit*, or the bound that it has passed."""
        return min(max(float(limit), self._least), self._most)


# Rounds of requests: the pace at which a limit may move.
#
# The effect of a change of the limit shows one round later, when the requests in flight have been
# replaced by those allowed under the new limit. To judge each request would answer one bad moment
# once for each request in flight. A round has as many requests as the limit, so it needs no clock:
# when the limit is used, a round takes as long as a request.


SHORTEST: Final = 10
"""Requests in a round, at least: a few of them say nothing."""

_USED: Final = 0.75
"""Not all of it: random traffic seldom fills it in every round."""

_HALF: Final = 0.5


@dataclass(slots=True)
class Round:
    """The requests that ended since the limit was last judged."""

    ended: int = 0
    failed: int = 0
    late: int = 0
    peak: int = 0
    _timed: int = 0
    _total_ns: float = 0.0

    def add(self, in_flight: int, latency_ns: float | None, *, succeeded: bool) -> int:
        """Add a request that ended; return how many did.

        *latency_ns* is None if it is no measure of the backend.
        """
        self.ended += 1
        if in_flight > self.peak:
            self.peak = in_flight
        if not succeeded:
            self.failed += 1
        elif latency_ns is not None:
            self._timed += 1
            self._total_ns += latency_ns
        return self.ended

    def used(self, limit: int) -> bool:
        """Return True if *limit* kept requests out, or nearly; else it must not grow."""
        return self.peak + 1 >= _USED * limit

    def blames(self, limit: int) -> bool:
        """Return True if *limit* may be the cause of errors: half of it was used, or most requests
        failed. A few errors in an idle night must not lower it."""
        return self.peak >= _HALF * limit or self.is_failing

    @property
    def is_failing(self) -> bool:
        """True if half of them, and not only a few, failed or were late."""
        return 2 * (self.failed + self.late) >= max(self.ended, SHORTEST)

    @property
    def latency_ns(self) -> float | None:
        """The mean latency; None if unknown."""
        return self._total_ns / self._timed if self._timed else None


def length(limit: float) -> int:
    """Return the requests that make a round under *limit*."""
    return max(int(limit), SHORTEST)


# Additive increase, multiplicative decrease, as in TCP.
#
# Each good round that used the limit adds one to it; a round with a failure, or with too many
# requests slower than the target, takes a tenth of it. Gates that share a backend converge to equal
# limits. The limit swings by a tenth about the best one. It needs failures, or a target.


_LATE: Final = 10
"""One in so many requests of a round may be late without a sign of overload."""


class AIMD(_Bounded):
    """A limit that grows by one a round and falls by a factor; a `Steering`.

    It starts at *initial* (20 by default) and stays from *least* to *most*. It is multiplied by
    *backoff* when a request has failed, or when more than a tenth of a round took longer than
    *target* seconds; then not again before the requests in flight have ended. While less than half
    of it is used it stays, unless most requests fail. Not thread-safe: a gate calls it under its
    own lock.
    """

    def __init__(
        self,
        *,
        initial: int | None = None,
        least: int = 1,
        most: int = 1_000,
        backoff: float = 0.9,
        target: Seconds | None = None,
    ) -> None:
        super().__init__(initial, least, most)
        if not 0 < backoff < 1:
            raise OptionError(f"backoff is {backoff!r}; expected a factor above 0 and below 1")
        self._backoff = backoff
        self._target_ns = None if target is None else duration_ns(target, "target")
        self._round = Round()
        self._ignored = 0

    def observe(self, *, in_flight: int, latency_ns: float, succeeded: bool) -> None:
        """Record the end of a request: `Steering.observe`."""
        if self._ignored:
            self._ignored -= 1
            return
        limit, round_ = int(self._limit), self._round
        ended = round_.add(in_flight, None, succeeded=succeeded)
        if self._target_ns is not None and latency_ns > self._target_ns:
            round_.late += 1
        if (round_.failed or round_.late) and _is_bad(round_, limit):
            self._limit = self._held(self._limit * self._backoff)
            self._ignored = max(round_.peak - 1, 0)
        elif ended < length(limit):
            return
        elif round_.used(limit):
            self._limit = self._held(self._limit + 1)
        self._round = Round()

    def __repr__(self) -> str:
        return f"AIMD(limit={self.limit}, least={self._least}, most={self._most})"


def _is_bad(round_: Round, limit: int) -> bool:
    is_late = round_.late * _LATE > length(limit)
    return (round_.failed > 0 or is_late) and round_.blames(limit)


_LENGTH: Final = 20
"""Requests that are timed, at least."""

_PATIENCE: Final = 6
"""Rounds after which a probe is given up: too few requests began under its limit, or none ended."""


class Probe:
    """A short time under a lower limit, which measures the latency with fewer requests in flight.

    Only requests count that began under it. Of these the first half is left out, because the first
    to end are the fast ones.
    """

    __slots__ = ("_ended", "_length", "_longest", "_seen", "_timed", "_total_ns", "limit")

    def __init__(self, *, limit: int, instead_of: int) -> None:
        self.limit = limit
        self._length = max(limit, _LENGTH)
        self._longest = _PATIENCE * max(instead_of, _LENGTH)
        self._ended = 0
        self._seen = 0
        self._timed = 0
        self._total_ns = 0.0

    def observe(self, in_flight: int, latency_ns: float | None) -> None:
        """Record the end of one of *in_flight*; None if its latency is no measure."""
        self._ended += 1
        if in_flight > self.limit or latency_ns is None:
            return
        self._seen += 1
        if self._seen > self._length:
            self._timed += 1
            self._total_ns += latency_ns

    @property
    def has_ended(self) -> bool:
        return self._timed >= self._length or self._ended >= self._longest

    @property
    def found_ns(self) -> float | None:
        """The mean latency; None if there were too few."""
        return self._total_ns / self._timed if self._timed >= self._length else None


# The gradient of the latency, as in Netflix's concurrency-limits.
#
# Below the knee of a backend more requests in flight take no longer each; above it they only queue,
# and the latency shows that long before anything fails. So the recent latency is compared with the
# usual one:
#
#     gradient = clamp(tolerance * usual / recent, 1/2, 1)
#     limit   <- limit + 1/5 * (limit * gradient + room - limit)
#
# where *room* is the desired queue at the backend, by which the limit grows while the gradient is
# 1. Both latencies are averages over rounds of requests (see `Round`), the usual one over many.
#
# The usual latency must not be learnt in overload: a backend that always has too many requests
# would seem to be slow as usual, and the limit would grow without end. So while the limit is used,
# the usual latency only falls. It rises while there is room, and by a probe: every so many used
# rounds the limit is halved for a round, and the latency of the requests that begin then is the
# usual one. This finds a backend that has become slower for good; a long queue is shorter then.


STEEPEST: Final = 0.5
"""The smallest gradient: half of the limit stays after any round."""

_SMOOTHING: Final = 0.2
"""The share of a change that is made at once."""

_RECENT: Final = 0.5
"""The share of the last round in the recent latency."""

_PROBED: Final = 0.5
"""The share of a probe in the usual latency."""

_SOON: Final = 10
"""Used rounds before the first probe, as the process may start in an overload, and before the next
after a probe with an unexpected result."""

_AS_BELIEVED: Final = (0.85, 1.3)
"""The range, in parts of the usual latency, in which a probe confirms it."""

_FARTHEST: Final = 8
"""The most that one request counts, in usual latencies."""

_SINK: Final = 0.95
"""The factor of the usual latency after a round in which it was more than twice too high."""


def climbed(limit: float, gradient: float, *, room: float | None) -> float:
    """Return *limit* after a round: part of the way to `limit * gradient + room`."""
    target = math.sqrt(limit) if room is None else room
    return limit + _SMOOTHING * (limit * gradient + target - limit)


class Gradient(_Bounded):
    """A limit that follows the latency; a `Steering`.

    It starts at *initial* (20 by default) and stays from *least* to *most*. Latency up to
    *tolerance* times the usual one is fine, unless it is above *target* seconds. *room* requests
    may queue at the backend (the root of the limit by default). *window* is the number of rounds in
    the average of the usual latency, *probe* the number of used rounds between two measurements of
    it. Failures lower the limit by their share of the round, to a half at most. While less than
    half of it is used it stays, unless most requests fail or take three times as long as usual. Not
    thread-safe: a gate calls it under its own lock.
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
        window: int = 200,
        probe: int = 100,
    ) -> None:
        super().__init__(initial, least, most)
        if not 1 <= tolerance < math.inf:
            raise OptionError(f"tolerance is {tolerance!r}; expected 1 or more, such as 1.5")
        for name, value in (("room", room), ("window", window), ("probe", probe)):
            if value is not None and value < 1:
                raise OptionError(f"{name} is {value!r}; expected at least 1")
        self._tolerance = tolerance
        self._target_ns = None if target is None else duration_ns(target, "target")
        self._room = room
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
        """Requests that may be in now."""
        return int(self._limit) if self._probe is None else self._probe.limit

    @property
    def usual(self) -> float | None:
        """The latency that is held to be usual, in seconds; None before there was a round."""
        return None if self._usual_ns is None else self._usual_ns / 1e9

    def observe(self, *, in_flight: int, latency_ns: float, succeeded: bool) -> None:
        """Record the end of a request: `Steering.observe`."""
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
        elif probe.has_ended:
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
            new = climbed(self._limit, gradient, room=room)
            self._limit = self._held(new * kept)
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
        """Learn from a round of *latency_ns* on average, in which the limit was *used* or not."""
        if self._usual_ns is None or self._recent_ns is None:
            self._usual_ns = self._recent_ns = latency_ns
            return
        self._recent_ns += _RECENT * (latency_ns - self._recent_ns)
        # At the lowest limit no probe is possible: its latency is usual.
        if self._recent_ns < self._usual_ns or not used or int(self._limit) <= self._least:
            self._usual_ns += self._learning * (self._recent_ns - self._usual_ns)
        if self._recent_ns < self._usual_ns / 2:
            self._usual_ns *= _SINK

    @property
    def _halved(self) -> int:
        return max(int(self._limit) // 2, self._least)

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
        bounds = f"least={self._least}, most={self._most}"
        return f"Gradient(limit={self.limit}, usual={self.usual}, {bounds})"


def steering_of(slots: AdaptiveSlots) -> Steering:
    """Return a new steering for *slots* of a rule."""
    target = None if slots.target_ns is None else plain_seconds(slots.target_ns)
    if slots.algorithm == "aimd":
        return AIMD(least=slots.least, most=slots.most, target=target)
    return Gradient(least=slots.least, most=slots.most, target=target)


class Signal(_Bounded):
    """A limit that keeps a number at its target; a `Steering`.

    The number is any that grows with load, given by `update` as often as it is known: CPU
    utilisation (*target* 0.8), requests in a downstream queue (100), the share of errors (0.05),
    the lag of the event loop. Above the target the limit falls in proportion, to a half
    at most; below it grows by *room* (its root by default), if it is used; while less than half
    of it is used it stays. What requests take does not matter.
    """

    def __init__(
        self,
        target: float,
        *,
        initial: int | None = None,
        least: int = 1,
        most: int = 1_000,
        room: int | None = None,
    ) -> None:
        if not 0 < target < math.inf:
            raise OptionError(f"target is {target!r}; expected a number above 0, such as 0.8")
        super().__init__(initial, least, most)
        self._target = target
        self._room = room
        self._round = self._last = Round()

    def update(self, value: float) -> None:
        """Set the number to *value*. NaN changes nothing."""
        if math.isnan(value):
            return
        if self._round.ended:
            self._last, self._round = self._round, Round()
        limit, round_ = self.limit, self._last  # requests that hang have not ended
        gradient = 1.0 if value <= self._target else max(self._target / value, STEEPEST)
        if round_.used(limit) or (gradient < 1 and round_.blames(limit)):
            room = self._room if gradient >= 1 else 0
            new = climbed(self._limit, gradient, room=room)
            self._limit = self._held(new)

    def observe(self, *, in_flight: int, latency_ns: float, succeeded: bool) -> None:
        """Record whether the limit is used: `Steering.observe`."""
        self._round.add(in_flight, None, succeeded=succeeded)

    def __repr__(self) -> str:
        return f"Signal(target={self._target}, limit={self.limit})"


class Lowest:
    """The lowest of several limits, each moved by its own reasons; a `Steering`.

    Those that are not the lowest see that they are not used, and so do not grow.
    """

    __slots__ = ("_parts",)

    def __init__(self, *parts: Steering) -> None:
        if not parts:
            raise OptionError("there is nothing to be the lowest of; expected at least one")
        self._parts = parts

    @property
    def limit(self) -> int:
        """Requests that may be in now."""
        return min(part.limit for part in self._parts)

    def observe(self, *, in_flight: int, latency_ns: int, succeeded: bool) -> None:
        """Record the end of a request: `Steering.observe`."""
        for part in self._parts:
            part.observe(in_flight=in_flight, latency_ns=latency_ns, succeeded=succeeded)

    def __repr__(self) -> str:
        return f"Lowest({', '.join(map(repr, self._parts))})"
