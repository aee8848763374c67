"""Limits as arguments of the scripts, and outcomes from the states that scripts report.

Lua has doubles, exact below 2^53. Times are sent in whole microseconds; where a rate does not come
out even, as microseconds and *ticks*, of which there are as many in a microsecond as the rate per
microsecond has in its numerator. So three a second are 333,333 microseconds and one tick of three,
exactly.

The scripts decide and keep state; they compute no figures. They report where a counter stood, in
microseconds, and the pure algorithm computes from that what is left and until when: the code that
decides in the memory store. Only the log and the slots, whose states are too long to be sent, have
their instants computed by the script.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from functools import lru_cache
from math import gcd
from typing import Any, Final

from headgate.algorithms import Algorithm, LeakyQueueAlgorithm, Outcome, algorithm_for
from headgate.algorithms.leaky_queue import Line, QueuedChecks, Vacancy
from headgate.algorithms.reservations import Hold, Holds, outcome_beside, wait_beside
from headgate.errors import HeadgateWarning, LimitError, UsageError
from headgate.limits import (
    Concurrency,
    FixedWindow,
    LeakyQueue,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
)
from headgate.limits.model import PacedLimit
from headgate.stores.redis.naming import SLOTS
from headgate.units import MICROSECOND, SECOND


class Counter(ABC):
    """A counter as reported, which changes as it does on the server."""

    __slots__ = ()

    @abstractmethod
    def wait(self, asked: int) -> int | None:
        """Return the nanoseconds until *asked* units fit; None if they never can."""

    @abstractmethod
    def charge(self, cost: int) -> None:
        """Take *cost* units."""

    @abstractmethod
    def outcome(self, wait: int | None) -> Outcome:
        """Return the figures as they are now, for a cost that has to wait *wait*."""


class ComputedCounter(Counter):
    """A counter whose state the pure algorithm can read."""

    __slots__ = ("_algorithm", "_holds", "_now", "_state")

    def __init__(
        self, algorithm: Algorithm[Any], state: Any, holds: list[bytes], now_ns: int
    ) -> None:
        self._algorithm = algorithm
        self._state = state
        self._holds = _read_holds(holds)
        self._now = now_ns

    def wait(self, asked: int) -> int | None:
        if self._holds:
            return wait_beside(self._algorithm, self._state, self._holds, asked, self._now)
        return self._algorithm.wait(self._state, asked, self._now)

    def charge(self, cost: int) -> None:
        self._state = self._algorithm.charge(self._state, cost, self._now)

    def outcome(self, wait: int | None) -> Outcome:
        if self._holds:
            seen = outcome_beside(self._algorithm, self._state, self._holds, wait, self._now)
        else:
            seen = self._algorithm.outcome(self._state, wait, self._now)
        return _in_microseconds(seen)


class QueueCounter(ComputedCounter):
    """A queue. Each check of it has a place of its own, behind those before."""

    __slots__ = ("_queued",)

    def __init__(self, algorithm: LeakyQueueAlgorithm, line: Line, now_ns: int) -> None:
        super().__init__(algorithm, line, [], now_ns)
        self._queued = QueuedChecks(algorithm, line, now_ns)

    def wait(self, asked: int) -> int | None:
        return self._queued.wait(asked)

    def outcome(self, wait: int | None) -> Outcome:
        seen = self._queued.placed(self._algorithm.outcome(self._state, wait, self._now))
        delay = rounded_up(seen.delay_ns)
        turn = self._now + delay if delay else 0
        return _in_microseconds(seen)._replace(delay_ns=delay, turn_ns=turn)


class ReportedCounter(Counter):
    """A log or slots, whose instants the script computed, in microseconds.

    *room* units are free, *ends* is when all are, *fits_at* when the cost fits ("": never). A
    charge uses room until *charged_until*; None: what is reported includes the charge.
    """

    __slots__ = ("_charged_until", "_ends", "_fits_at", "_now", "_room")

    def __init__(
        self, room: int, ends: bytes, fits_at: bytes, now_ns: int, charged_until: int | None = None
    ) -> None:
        self._room = room
        self._ends = int(ends) * MICROSECOND
        self._fits_at = int(fits_at) * MICROSECOND if fits_at else None
        self._now = now_ns
        self._charged_until = charged_until

    def wait(self, asked: int) -> int | None:
        return None if self._fits_at is None else self._fits_at - self._now

    def charge(self, cost: int) -> None:
        if self._charged_until is not None:
            self._room -= cost
            self._ends = max(self._ends, self._charged_until * MICROSECOND)

    def outcome(self, wait: int | None) -> Outcome:
        return Outcome(wait == 0, max(0, self._room), wait, max(0, self._ends - self._now))


def _in_microseconds(seen: Outcome) -> Outcome:
    """Return the figures of *seen* that every limit has, rounded up."""
    retry_after = None if seen.retry_after_ns is None else rounded_up(seen.retry_after_ns)
    return Outcome(seen.allowed, seen.remaining, retry_after, rounded_up(seen.reset_after_ns))


def rounded_up(nanoseconds: int) -> int:
    """Round *nanoseconds* up to whole microseconds."""
    return -(-nanoseconds // MICROSECOND) * MICROSECOND


def _read_holds(texts: list[bytes]) -> Holds:
    holds: Holds = {}
    for n, text in enumerate(texts):
        expires, amount = text.split(b":")
        holds[str(n)] = Hold(int(amount), int(expires) * MICROSECOND)
    return holds


EXACT: Final = 2**53
LARGEST_LOG: Final = 10_000
"""Entries of a sliding window log above which there is a warning: the server reads through them."""
LARGEST_CHARGE: Final = 4 * 10**15
"""The most that is charged at once: doubles can add it up exactly."""

_LONG_MANTISSAS: Final = (108, 125, 144, 216, 288, 375, 432, 625, 864)
EXTRA_MANTISSAS: Final = {mantissa: 10 * n for n, mantissa in enumerate(_LONG_MANTISSAS, 1)}
"""The mantissas that two digits ending in zero mean, as in lua/counters.lua."""


class Spec(ABC):
    """A limit as the scripts need it."""

    kind: bytes
    mark = ""
    """The mark in the names of its counters."""

    def __init__(self, limit: Limit) -> None:
        self.quota = limit.quota

    def arguments(self, cost: int) -> list[bytes | int]:
        """Return the arguments of a check of *cost*: kind, quota, cost, and the rest."""
        return [self.kind, self.quota, min(cost, LARGEST_CHARGE), *self._rest(cost)]

    @abstractmethod
    def _rest(self, cost: int) -> list[bytes | int]:
        """Return the arguments of the algorithm."""

    @abstractmethod
    def counter(self, state: bytes, now_ns: int) -> Counter:
        """Return the counter whose *state* a script reported."""

    def allowed(self, state: bytes, cost: int, now: int) -> Outcome:
        """Return the outcome of an allowed *cost*; *state* is that before, *now* microseconds."""
        counter = self.counter(state, now * MICROSECOND)
        if cost:
            counter.charge(cost)
        return counter.outcome(0)

    def denied(self, state: bytes, cost: int, now: int) -> Outcome:
        """Return the outcome of *cost* in a take that was denied, by this limit or another."""
        counter = self.counter(state, now * MICROSECOND)
        return counter.outcome(counter.wait(cost) if cost else 0)


class SteadySpec(Spec):
    """A limit with a steady rate: instants in microseconds and ticks."""

    def __init__(self, limit: PacedLimit | LeakyQueue) -> None:
        super().__init__(limit)
        per_microsecond = limit.per_second * MICROSECOND / SECOND
        self.ticks, self.unit = per_microsecond.numerator, per_microsecond.denominator
        if int(float(self.unit)) != self.unit:
            raise LimitError(
                f"{limit}: {limit.per_second} a second is too fine a fraction for Redis, whose "
                "scripts count in doubles; choose a rounder number"
            )
        shared = gcd(self.ticks, MICROSECOND)
        self._per_microsecond = MICROSECOND * self.ticks // shared
        self._per_tick = MICROSECOND // shared

    def duration(self, cost: int) -> tuple[int, int]:
        """Return the time that *cost* takes to refill: microseconds and ticks."""
        whole, ticks = divmod(cost * self.unit, self.ticks)
        return min(whole, LARGEST_CHARGE), ticks

    def _instant(self, whole: bytes, ticks: bytes) -> int:
        """Return a reported instant in the ticks of the pure algorithm."""
        return int(whole) * self._per_microsecond + int(ticks) * self._per_tick


class PacedSpec(SteadySpec):
    """Token bucket, GCRA, leaky bucket: one instant."""

    kind = b"P"

    def __init__(self, limit: PacedLimit) -> None:
        super().__init__(limit)
        self.span = self.quota * self.unit
        self.suffix = paced_suffix(self.unit, self.ticks, self.quota)
        self._algorithm = algorithm_for(limit)

    def _rest(self, cost: int) -> list[bytes | int]:
        span = divmod(self.span, self.ticks)
        return [*span, *self.duration(cost), self.unit, self.ticks, self.suffix]

    def counter(self, state: bytes, now_ns: int) -> Counter:
        text, *holds = state.split(b"|")
        instant = self._instant(*text.split(b","))
        return ComputedCounter(self._algorithm, (instant, now_ns), holds, now_ns)

    def allowed(self, state: bytes, cost: int, now: int) -> Outcome:
        if b"|" in state:  # with reservations
            return super().allowed(state, cost, now)
        after = self.in_use(state, now) + cost * self.unit
        remaining = max(0, self.span - after) // self.unit  # a cost of 0 fits in debt too
        return Outcome(True, remaining, 0, -(-after // self.ticks) * MICROSECOND)  # noqa: FBT003

    def denied(self, state: bytes, cost: int, now: int) -> Outcome:
        if b"|" in state or cost > self.quota:
            return super().denied(state, cost, now)
        in_use, ticks = self.in_use(state, now), self.ticks
        free = self.span - in_use
        lacks = cost * self.unit - free if cost else 0
        return Outcome(
            lacks <= 0,
            free // self.unit if free > 0 else 0,
            -(-lacks // ticks) * MICROSECOND if lacks > 0 else 0,
            -(-in_use // ticks) * MICROSECOND,
        )

    def in_use(self, state: bytes, now: int) -> int:
        """Return the ticks in use at *now*."""
        whole, _, ticks = state.partition(b",")
        return max(0, (int(whole) - now) * self.ticks + int(ticks))


class QueueSpec(SteadySpec):
    """A queue: the instant at which it is empty, and places that were given up."""

    kind = b"Q"

    def __init__(self, limit: LeakyQueue) -> None:
        super().__init__(limit)
        self._algorithm = LeakyQueueAlgorithm(limit, grain_ns=MICROSECOND)
        ticks = self._algorithm.patience // self._per_tick
        self._patience = divmod(ticks, self.ticks)

    def _rest(self, cost: int) -> list[bytes | int]:
        largest = self._algorithm.largest_cost
        return [largest, *self._patience, *self.duration(cost), self.unit, self.ticks]

    def counter(self, state: bytes, now_ns: int) -> Counter:
        text, *_ = state.split(b"|")
        ends, *given_up = text.split(b";")
        vacancies = [one.split(b":") for one in given_up]
        line = Line(
            self._instant(*ends.split(b",")),
            tuple([Vacancy(self._instant(w, f), int(units)) for w, f, units in vacancies]),
            now_ns,
        )
        return QueueCounter(self._algorithm, line, now_ns)

    def allowed(self, state: bytes, cost: int, now: int) -> Outcome:
        counter = self.counter(state, now * MICROSECOND)
        counter.wait(cost)  # which finds its place
        if cost:
            counter.charge(cost)
        return counter.outcome(0)

    def denied(self, state: bytes, cost: int, now: int) -> Outcome:
        counter = self.counter(state, now * MICROSECOND)
        return counter.outcome(counter.wait(cost))


class FixedWindowSpec(Spec):
    """Fixed window: the start of the window, and the count in it."""

    kind = b"F"

    def __init__(self, limit: FixedWindow) -> None:
        super().__init__(limit)
        self._algorithm = algorithm_for(limit)
        self._window = limit.window_ns // MICROSECOND

    def _rest(self, cost: int) -> list[bytes | int]:
        return [self._window]

    def counter(self, state: bytes, now_ns: int) -> Counter:
        text, *holds = state.split(b"|")
        start, count = map(int, text.split(b","))
        return ComputedCounter(self._algorithm, (start * MICROSECOND, count), holds, now_ns)


class SlidingWindowCounterSpec(Spec):
    """Sliding window counter: the index of the current cell, and the counts of all."""

    kind = b"C"

    def __init__(self, limit: SlidingWindowCounter) -> None:
        super().__init__(limit)
        self._algorithm = algorithm_for(limit)
        self._window = limit.window_ns // MICROSECOND
        self._subwindows = limit.subwindows
        if not self._subwindows <= self._window < EXACT // self._subwindows:
            raise LimitError(
                f"{limit}: in Redis a subwindow must be at least a microsecond long, and the "
                "window times their number less than 285 years; choose fewer subwindows"
            )

    def _rest(self, cost: int) -> list[bytes | int]:
        return [self._window, self._subwindows]

    def counter(self, state: bytes, now_ns: int) -> Counter:
        text, *holds = state.split(b"|")
        index, *counts = map(int, text.split(b","))
        return ComputedCounter(self._algorithm, (index, tuple(counts)), holds, now_ns)


class SlidingWindowLogSpec(Spec):
    """Sliding window log: one entry for each allowed request."""

    kind = b"L"

    def __init__(self, limit: SlidingWindowLog) -> None:
        super().__init__(limit)
        self._window = limit.window_ns // MICROSECOND
        if limit.limit > LARGEST_LOG:
            warnings.warn(
                f"{limit} keeps up to {limit.limit} entries a key in Redis, and reading through "
                "them blocks the server; sliding_window_counter needs a few numbers",
                HeadgateWarning,
                stacklevel=2,
            )

    def _rest(self, cost: int) -> list[bytes | int]:
        return [self._window]

    def counter(self, state: bytes, now_ns: int) -> Counter:
        text, *holds = state.split(b"|")
        total, debt, high, ends, fits_at = text.split(b",")
        held = [hold.split(b":") for hold in holds]
        room = max(0, self.quota - int(total) - int(debt)) - sum(int(units) for _, units in held)
        ends = max([ends, *(expires for expires, _ in held)], key=int)
        return ReportedCounter(room, ends, fits_at, now_ns, int(high) + self._window)


class SlotsSpec(Spec):
    """Concurrency: leases, and the times at which they expire."""

    kind = b"S"
    mark = SLOTS

    def __init__(self, limit: Concurrency) -> None:
        super().__init__(limit)
        shares = ":".join(f"{name}={slots}" for name, slots in limit.shares or ())
        if shares:
            shares = f"{int(limit.lends)}:{limit.partition or ''}:{shares}"
        self._arguments: list[bytes | int] = [limit.ttl_ns // MICROSECOND, shares.encode("ascii")]

    def _rest(self, cost: int) -> list[bytes | int]:
        return [*self._arguments]

    def counter(self, state: bytes, now_ns: int) -> Counter:
        room, last, free_at = state.split(b",")
        return ReportedCounter(int(room), last, free_at, now_ns)


@lru_cache(maxsize=4096)
def spec_of(limit: Limit) -> Spec:
    """Return the spec of *limit*. Raises `LimitError` if Lua cannot represent its numbers."""
    match limit:
        case PacedLimit():
            return PacedSpec(limit)
        case LeakyQueue():
            return QueueSpec(limit)
        case FixedWindow():
            return FixedWindowSpec(limit)
        case SlidingWindowCounter():
            return SlidingWindowCounterSpec(limit)
        case SlidingWindowLog():
            return SlidingWindowLogSpec(limit)
        case Concurrency():
            return SlotsSpec(limit)
        case _:
            raise UsageError(f"no script for {limit!r}; expected one of the Limit types")


def paced_suffix(unit: int, ticks: int, quota: int) -> bytes:
    """Return the text after the instant of a counter: the time of a unit, and the quota.

    Where they can, three digits are the unit: two of a mantissa and one of a power of ten, in
    microseconds: 065 is 6 * 10^5, a hundred a minute.
    """
    if ticks > 1:
        return b"/%d/%d/%d/" % (unit, ticks, quota)
    mantissa, power = unit, 0
    while mantissa % 10 == 0 and power < 9:
        mantissa, power = mantissa // 10, power + 1
    code = mantissa if mantissa < 100 and mantissa % 10 else EXTRA_MANTISSAS.get(mantissa)
    return (b"/%d" % unit if code is None else b"%02d%d" % (code, power)) + b",%d" % quota
