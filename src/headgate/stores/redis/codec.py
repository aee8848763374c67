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

from headgate.algorithms import LeakyQueueAlgorithm, Outcome, algorithm_for
from headgate.algorithms.base import new_outcome
from headgate.algorithms.leaky_queue import Line, Vacancy
from headgate.algorithms.reservations import Expiry, Hold, Holds
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
from headgate.stores.counter import CounterTransaction
from headgate.stores.redis.naming import SLOTS
from headgate.units import MICROSECOND, SECOND


class ReportedCounter(CounterTransaction):
    """A counter whose state a script reported: it changes as it does on the server."""

    __slots__ = ()

    def outcome(self, wait: int | None) -> Outcome:
        allowed, remaining, retry_after, reset_after, delay, *_ = super().outcome(wait)
        delay = rounded_up(delay)
        return Outcome(
            allowed,
            remaining,
            None if retry_after is None else rounded_up(retry_after),
            rounded_up(reset_after),
            delay,
            self._now + delay if delay else 0,
        )

    def close(self) -> None:
        """Save nothing: the server has the counter."""


class ReportedInstants:
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

    def wait(self, cost: int) -> int | None:
        if not cost:
            return 0
        return None if self._fits_at is None else self._fits_at - self._now

    def charge(self, cost: int) -> None:
        if cost and self._charged_until is not None:
            self._room -= cost
            self._ends = max(self._ends, self._charged_until * MICROSECOND)

    def outcome(self, wait: int | None) -> Outcome:
        return Outcome(wait == 0, max(0, self._room), wait, max(0, self._ends - self._now))


Counter = ReportedCounter | ReportedInstants
"""It gives the wait of each check, in their order, is charged, and then gives its figures."""


def rounded_up(nanoseconds: int) -> int:
    """Round *nanoseconds* up to whole microseconds."""
    return -(-nanoseconds // MICROSECOND) * MICROSECOND


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

    def outcome(self, state: bytes, cost: int, now: int, *, fits: bool) -> Outcome:
        """Return the outcome of *cost* at *now*, in microseconds, from the *state* before the take.

        Unless it *fits*, the take was denied, by this limit or another.
        """
        counter = self.counter(state, now * MICROSECOND)
        wait = counter.wait(cost)
        if fits:
            wait = 0
            counter.charge(cost)
        return counter.outcome(wait)


class ComputedSpec(Spec):
    """A limit whose state is reported in full: *algorithm* computes the figures."""

    def __init__(self, limit: Limit) -> None:
        super().__init__(limit)
        self._algorithm = algorithm_for(limit)

    @abstractmethod
    def _state(self, text: bytes, now_ns: int) -> Any:
        """Return the state that *text* is, as the algorithm defines it."""

    def counter(self, state: bytes, now_ns: int) -> Counter:
        text, *texts = state.split(b"|")
        holds: Holds = {str(n): _reported_hold(hold) for n, hold in enumerate(texts)}
        return ReportedCounter(self._algorithm, self._state(text, now_ns), holds, now_ns)

    def outcome(self, state: bytes, cost: int, now: int, *, fits: bool) -> Outcome:
        if b"|" in state:  # with reservations
            return super().outcome(state, cost, now, fits=fits)
        now_ns, quick_take = now * MICROSECOND, self._algorithm.quick_take
        before = self._state(state, now_ns)
        _, wait, remaining, reset = quick_take(before, cost, now_ns)
        if fits:
            wait = 0
        elif wait == 0:  # it would have fitted, but nothing is charged
            _, _, remaining, reset = quick_take(before, 0, now_ns)
        retry_after = None if wait is None else rounded_up(wait)
        return new_outcome((wait == 0, remaining, retry_after, rounded_up(reset), 0, 0, "store"))


def _reported_hold(text: bytes) -> Hold:
    """Return the open hold that is reported as *text*."""
    expires, amount = text.split(b":")
    expiry = Expiry.CHARGES if amount.endswith(b"+") else Expiry.VANISHES
    return Hold(int(amount.rstrip(b"+")), int(expires) * MICROSECOND, 0, expiry)


class Rate:
    """A steady rate: instants in microseconds and ticks."""

    def __init__(self, limit: PacedLimit | LeakyQueue) -> None:
        per_microsecond = limit.per_second * MICROSECOND / SECOND
        self.ticks, self.unit = per_microsecond.numerator, per_microsecond.denominator
        if int(float(self.unit)) != self.unit:
            raise LimitError(
                f"{limit}: {limit.per_second} a second is too fine a fraction for Redis, whose "
                "scripts count in doubles; choose a rounder number"
            )
        shared = gcd(self.ticks, MICROSECOND)
        self._per_microsecond = MICROSECOND * self.ticks // shared
        self.per_tick = MICROSECOND // shared

    def duration(self, cost: int) -> tuple[int, int]:
        """Return the time that *cost* takes to refill: microseconds and ticks."""
        whole, ticks = divmod(cost * self.unit, self.ticks)
        return min(whole, LARGEST_CHARGE), ticks

    def instant(self, whole: bytes, ticks: bytes) -> int:
        """Return a reported instant in the ticks of the pure algorithm."""
        return int(whole) * self._per_microsecond + int(ticks) * self.per_tick


class PacedSpec(ComputedSpec):
    """Token bucket, GCRA, leaky bucket: one instant."""

    kind = b"P"

    def __init__(self, limit: PacedLimit) -> None:
        super().__init__(limit)
        self.rate = Rate(limit)
        self.ticks, self.unit = self.rate.ticks, self.rate.unit
        self.span = self.quota * self.unit
        self.suffix = paced_suffix(self.unit, self.ticks, self.quota)
        self._pace = limit.pace

    def _rest(self, cost: int) -> list[bytes | int]:
        span = divmod(self.span, self.ticks)
        return [*span, *self.rate.duration(cost), self.unit, self.ticks, self.suffix]

    def _state(self, text: bytes, now_ns: int) -> int | tuple[int, int]:
        instant = self.rate.instant(*text.split(b","))
        is_in_debt = instant > now_ns * self._pace.ticks_per_ns + self._pace.span
        return (instant, now_ns) if is_in_debt else instant


class QueueSpec(Spec):
    """A queue: the instant at which it is empty, and places that were given up."""

    kind = b"Q"

    def __init__(self, limit: LeakyQueue) -> None:
        super().__init__(limit)
        self._rate = Rate(limit)
        self.algorithm = LeakyQueueAlgorithm(limit, grain_ns=MICROSECOND)
        ticks = self.algorithm.patience // self._rate.per_tick
        self._patience = divmod(ticks, self._rate.ticks)

    def _rest(self, cost: int) -> list[bytes | int]:
        largest, rate = self.algorithm.largest_cost, self._rate
        return [largest, *self._patience, *rate.duration(cost), rate.unit, rate.ticks]

    def counter(self, state: bytes, now_ns: int) -> Counter:
        line = self.line(state.partition(b"|")[0], now_ns)
        return ReportedCounter(self.algorithm, line, {}, now_ns)

    def line(self, text: bytes, now_ns: int) -> Line:
        """Return the queue that *text* is: an instant, and vacancies."""
        ends, *given_up = text.split(b";")
        instant = self._rate.instant
        vacancies = [one.split(b":") for one in given_up]
        return Line(
            instant(*ends.split(b",")),
            tuple([Vacancy(instant(w, f), int(units)) for w, f, units in vacancies]),
            now_ns,
        )


class FixedWindowSpec(ComputedSpec):
    """Fixed window: the start of the window, and the count in it."""

    kind = b"F"

    def __init__(self, limit: FixedWindow) -> None:
        super().__init__(limit)
        self._window = limit.window_ns // MICROSECOND

    def _rest(self, cost: int) -> list[bytes | int]:
        return [self._window]

    def _state(self, text: bytes, now_ns: int) -> tuple[int, int]:
        start, count = map(int, text.split(b","))
        return start * MICROSECOND, count


class SlidingWindowCounterSpec(ComputedSpec):
    """Sliding window counter: the index of the current cell, and the counts of all."""

    kind = b"C"

    def __init__(self, limit: SlidingWindowCounter) -> None:
        super().__init__(limit)
        self._window = limit.window_ns // MICROSECOND
        self._subwindows = limit.subwindows
        if not self._subwindows <= self._window < EXACT // self._subwindows:
            raise LimitError(
                f"{limit}: in Redis a subwindow must be at least a microsecond long, and the "
                "window times their number less than 285 years; choose fewer subwindows"
            )

    def _rest(self, cost: int) -> list[bytes | int]:
        return [self._window, self._subwindows]

    def _state(self, text: bytes, now_ns: int) -> tuple[int, tuple[int, ...]]:
        index, *counts = map(int, text.split(b","))
        return index, tuple(counts)


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
        held = sum([_reported_hold(hold).amount for hold in holds])
        room = max(0, self.quota - int(total) - int(debt)) - held
        return ReportedInstants(room, ends, fits_at, now_ns, int(high) + self._window)


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
        return ReportedInstants(int(room), last, free_at, now_ns)


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
