"""Limit types: frozen values, validated on construction, equal by value.

A number that a caller may give in several forms (a window as seconds or `timedelta`, a rate as int,
float or `Fraction`) is brought to one form, so that equal limits compare equal and hash alike
however they were written.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final, Self, cast

from headgate.errors import LimitError
from headgate.units import (
    CENTURY,
    DAY,
    HOUR,
    MICROSECOND,
    MILLISECOND,
    MINUTE,
    SECOND,
    WEEK,
    Rate,
    Seconds,
    duration_ns,
    exact_rate,
    plain_rate,
    plain_seconds,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# A steady rate in exact integers.
#
# At three units a second one unit takes 333,333,333.33... nanoseconds. Rounding would drift, so
# time is counted in *ticks*: with the rate in lowest terms as `p` units every `q` nanoseconds, a
# nanosecond is `p` ticks and a unit is `q` ticks.


@dataclass(frozen=True, slots=True)
class Pace:
    """A quota that refills steadily, in whole ticks."""

    quota: int
    ticks_per_ns: int
    ticks_per_unit: int
    span: int
    """Ticks from fully used to fresh: `quota * ticks_per_unit`."""

    @classmethod
    def of(cls, quota: int, per_second: Fraction) -> Pace:
        per_ns = per_second / SECOND
        return cls(quota, per_ns.numerator, per_ns.denominator, quota * per_ns.denominator)

    @property
    def refill_ns(self) -> int:
        """Nanoseconds, rounded up, from fully used to fresh."""
        return self.to_ns(self.span)

    def to_ns(self, ticks: int) -> int:
        """*ticks* in nanoseconds, rounded up; 0 for a negative number."""
        return -(-ticks // self.ticks_per_ns) if ticks > 0 else 0


# The shares of a concurrency limit: slots that are guaranteed to parts of the callers.


Shares = tuple[tuple[str, int], ...]
"""The parts of the callers, and the number of slots that each is guaranteed."""

MOST_SHARES: Final = 32
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


def check_shares(limit: int, shares: object, partition: str | None) -> None:
    """Raise `LimitError` unless *shares* name distinct parts, add up to at most *limit* and include
    *partition* if one is given."""
    if not isinstance(shares, tuple) or not shares:
        raise LimitError(f"shares are {shares!r}; expected such as (('gold', 10), ('free', 2))")
    if len(shares) > MOST_SHARES:
        raise LimitError(f"there are {len(shares)} shares; expected at most {MOST_SHARES}")
    total = 0
    for one in shares:
        if not _is_share(one):
            raise LimitError(f"a share is {one!r}; expected a name and its slots, at least 1")
        total += one[1]
    names = [name for name, _ in shares]
    if len(set(names)) < len(names):
        raise LimitError(f"a part has two shares among {', '.join(names)}")
    if total > limit:
        raise LimitError(f"the shares are {total} slots together; the limit has only {limit}")
    if partition is not None and partition not in names:
        raise LimitError(f"the partition is {partition!r}; expected one of {', '.join(names)}")


def _is_share(one: object) -> bool:
    if not isinstance(one, tuple) or len(one) != 2:
        return False
    name, slots = one
    is_name = isinstance(name, str) and _NAME.fullmatch(name) is not None
    return is_name and type(slots) is int and slots >= 1


LARGEST_QUOTA: Final = 10**15 - 1
"""The largest quota: the largest number that a `RateLimit` header field can carry."""

FINEST_RATE: Final = (10**15, 10**24)
"""The largest numerator and denominator of a rate per microsecond that all stores can hold."""


class Limit(ABC):
    """An algorithm and its parameters. The set of subclasses is closed."""

    __slots__ = ()
    algorithm: ClassVar[str]
    """The algorithm's name in the text notation and in rules."""
    is_divisible: ClassVar[bool] = True
    """True if a part of the limit can be counted elsewhere: leased, split, replicated, assigned to
    a gateway. Slots and places in a queue come from the store alone; a limit without a counter has
    no parts."""

    @property
    @abstractmethod
    def quota(self) -> int:
        """The units that are available when nothing is used."""

    @property
    def largest_cost(self) -> int:
        """The largest cost that can ever be allowed."""
        return self.quota

    @property
    @abstractmethod
    def period_ns(self) -> int:
        """Nanoseconds, rounded up, until a fully used limit is fresh again."""


class PacedLimit(Limit):
    """A quota that refills at a steady rate. Subclasses differ in the names of their fields."""

    __slots__ = ()
    quota_field: ClassVar[str]
    rate_field: ClassVar[str]

    @classmethod
    def of(cls, quota: int, per_second: Rate) -> Self:
        """Return the limit of this type with *quota* units that refills at *per_second*."""
        make: Callable[..., Self] = cls
        return make(**{cls.quota_field: quota, cls.rate_field: per_second})

    def __post_init__(self) -> None:
        check_whole(self.quota, self.quota_field)
        rate = checked_rate(getattr(self, self.rate_field), self.rate_field, self.quota)
        object.__setattr__(self, self.rate_field, rate)

    @property
    def quota(self) -> int:
        return cast("int", getattr(self, self.quota_field))

    @property
    def per_second(self) -> Fraction:
        """The exact refill rate, in units a second."""
        return exact_rate(getattr(self, self.rate_field), self.rate_field)

    @property
    def pace(self) -> Pace:
        """The limit in exact integers, for the arithmetic."""
        return Pace.of(self.quota, self.per_second)

    @property
    def period_ns(self) -> int:
        return self.pace.refill_ns

    def __str__(self) -> str:
        name = "" if self.algorithm == "token_bucket" else f" {self.algorithm}"
        return f"{rate_text(self.per_second, self.quota)}{name}"


@dataclass(frozen=True, slots=True)
class TokenBucket(PacedLimit):
    """A bucket of *capacity* tokens that refills at *refill_rate* tokens a second."""

    capacity: int
    refill_rate: Rate
    algorithm: ClassVar[str] = "token_bucket"
    quota_field: ClassVar[str] = "capacity"
    rate_field: ClassVar[str] = "refill_rate"


@dataclass(frozen=True, slots=True)
class GCRA(PacedLimit):
    """The generic cell rate algorithm: *rate* a second, up to *burst* at once after a pause.

    `GCRA(rate=10, burst=50)` allows exactly the sequences that `TokenBucket(50, 10)` allows.
    """

    rate: Rate
    burst: int
    algorithm: ClassVar[str] = "gcra"
    quota_field: ClassVar[str] = "burst"
    rate_field: ClassVar[str] = "rate"


@dataclass(frozen=True, slots=True)
class LeakyBucket(PacedLimit):
    """A bucket of *capacity* that leaks *leak_rate* units a second: the meter, not the queue."""

    capacity: int
    leak_rate: Rate
    algorithm: ClassVar[str] = "leaky_bucket"
    quota_field: ClassVar[str] = "capacity"
    rate_field: ClassVar[str] = "leak_rate"


@dataclass(frozen=True, slots=True)
class WindowedLimit(Limit):
    """A quota per window of time."""

    limit: int
    window: Seconds

    def __post_init__(self) -> None:
        check_whole(self.limit, "limit")
        object.__setattr__(self, "window", plain_seconds(duration_ns(self.window, "window")))

    @property
    def quota(self) -> int:
        return self.limit

    @property
    def window_ns(self) -> int:
        return duration_ns(self.window, "window")

    @property
    def period_ns(self) -> int:
        return self.window_ns

    def __str__(self) -> str:
        return f"{self.limit}/{_duration_text(self.window_ns)} {self.algorithm}"


@dataclass(frozen=True, slots=True)
class FixedWindow(WindowedLimit):
    """*limit* in each window; windows are aligned to the epoch."""

    algorithm: ClassVar[str] = "fixed_window"


@dataclass(frozen=True, slots=True)
class SlidingWindowLog(WindowedLimit):
    """*limit* in any window, exactly: each allowed request is remembered for one window."""

    algorithm: ClassVar[str] = "sliding_window_log"


@dataclass(frozen=True, slots=True)
class SlidingWindowCounter(WindowedLimit):
    """*limit* in any window, estimated from counts per sub-window; more of them are more exact."""

    subwindows: int = 1
    algorithm: ClassVar[str] = "sliding_window_counter"

    def __post_init__(self) -> None:
        WindowedLimit.__post_init__(self)
        check_whole(self.subwindows, "subwindows", most=1_000)

    def __str__(self) -> str:
        text = WindowedLimit.__str__(self)
        return text if self.subwindows == 1 else f"{text} subwindows {self.subwindows}"


@dataclass(frozen=True, slots=True)
class Concurrency(Limit):
    """At most *limit* at the same time; a slot that is never released is free after *ttl*.

    *shares* guarantee some of the slots to parts of the callers, by name; *partition* is the part
    of the caller, None for callers without a share. Slots that no share guarantees are for all.
    If it *lends*, idle guaranteed slots are for all too: a part that is denied one of its own
    is remembered for a moment, and the next released slots are left to it; slots that it releases
    itself are kept for it for a moment.
    """

    limit: int
    ttl: Seconds
    shares: Shares = ()
    partition: str | None = None
    lends: bool = True
    algorithm: ClassVar[str] = "concurrency"
    is_divisible: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_whole(self.limit, "limit")
        object.__setattr__(self, "ttl", plain_seconds(duration_ns(self.ttl, "ttl")))
        if self.shares or self.partition is not None or not self.lends:
            check_shares(self.limit, self.shares, self.partition)

    @property
    def quota(self) -> int:
        return self.limit

    @property
    def ttl_ns(self) -> int:
        return duration_ns(self.ttl, "ttl")

    @property
    def period_ns(self) -> int:
        return self.ttl_ns

    def __str__(self) -> str:
        text = _duration_text(self.ttl_ns)
        return f"{self.limit} concurrent, ttl {text if text[0].isdigit() else '1' + text}"


LONGEST_QUEUE: Final = 1_000_000
"""The most units that may be waiting."""


@dataclass(frozen=True, slots=True)
class LeakyQueue(Limit):
    """A queue that drains at *rate* units a second, in the order of arrival.

    A request is *delayed* until everything before it has drained, so requests leave evenly spaced.
    A request that would wait behind more than *queue* units, or for longer than *max_wait* seconds,
    is denied. With a queue of 0 no request waits: it only spaces them.

    A cost drains at the same rate: the next request waits for all of it. A queue that is short
    enough takes any cost that drains within a hundred years.
    """

    rate: Rate
    queue: int
    max_wait: Seconds | None = None
    algorithm: ClassVar[str] = "leaky_queue"
    is_divisible: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_whole(self.queue, "queue", least=0, most=LONGEST_QUEUE)
        object.__setattr__(self, "rate", checked_rate(self.rate, "rate", self.queue + 1))
        if self.max_wait is not None and self.max_wait != 0:
            wait = plain_seconds(duration_ns(self.max_wait, "max_wait"))
            object.__setattr__(self, "max_wait", wait)

    @property
    def per_second(self) -> Fraction:
        return exact_rate(self.rate, "rate")

    @property
    def pace(self) -> Pace:
        """The drain rate in exact integers, for the arithmetic."""
        return Pace.of(self.queue + 1, self.per_second)

    @property
    def patient(self) -> LeakyQueue:
        """The same queue without *max_wait*. The counter is kept under it: the state of a queue
        does not depend on how long a caller is willing to wait."""
        return self if self.max_wait is None else _with_max_wait(self, None)

    def within(self, timeout_ns: int | None) -> LeakyQueue:
        """Return the same queue with a *max_wait* of at most *timeout_ns*, in microseconds."""
        if timeout_ns is None:
            return self
        return _with_max_wait(self, max(timeout_ns // MICROSECOND, 0))

    @property
    def patience(self) -> int:
        """The longest wait of an allowed request, in ticks of the pace."""
        pace = self.pace
        longest = self.queue * pace.ticks_per_unit
        if self.max_wait is None:
            return longest
        most_ns = duration_ns(self.max_wait, "max_wait") if self.max_wait else 0
        return min(longest, most_ns * pace.ticks_per_ns)

    @property
    def patience_ns(self) -> int:
        """The longest wait of an allowed request, in nanoseconds, rounded up."""
        return self.pace.to_ns(self.patience)

    @property
    def quota(self) -> int:
        """The single units that an empty queue takes at once: one leaves, the others wait."""
        return self.patience // self.pace.ticks_per_unit + 1

    @property
    def largest_cost(self) -> int:
        """The largest cost that drains within a hundred years."""
        return min(LARGEST_QUOTA, int(self.per_second * CENTURY / SECOND))

    @property
    def period_ns(self) -> int:
        pace = self.pace
        return pace.to_ns(self.patience + pace.ticks_per_unit)

    def __str__(self) -> str:
        rate = rate_text(self.per_second, self.per_second.numerator)
        wait = "" if self.max_wait is None else f" for at most {self.max_wait} s"
        return f"{rate} in a queue of {self.queue}{wait}"


@lru_cache(maxsize=1024)
def _with_max_wait(limit: LeakyQueue, microseconds: int | None) -> LeakyQueue:
    """Return *limit* without a longest wait, or with one of at most *microseconds*."""
    if microseconds is None:
        return replace(limit, max_wait=None)
    if microseconds * MICROSECOND >= limit.patience_ns:
        return limit
    return replace(limit, max_wait=Fraction(microseconds * MICROSECOND, SECOND))


class ConstantLimit(Limit):
    """A limit without a counter: its answer never changes, whatever is charged."""

    __slots__ = ()
    is_divisible: ClassVar[bool] = False

    @property
    def period_ns(self) -> int:
        return SECOND


@dataclass(frozen=True, slots=True)
class DenyAll(ConstantLimit):
    """Deny everything: `0/minute`, and 0 in any other period."""

    algorithm: ClassVar[str] = "deny_all"

    @property
    def quota(self) -> int:
        return 0

    def __str__(self) -> str:
        return "0/s"


@dataclass(frozen=True, slots=True)
class Unlimited(ConstantLimit):
    """Allow everything: `unlimited`."""

    algorithm: ClassVar[str] = "unlimited"

    @property
    def quota(self) -> int:
        return LARGEST_QUOTA

    def __str__(self) -> str:
        return "unlimited"


def check_whole(value: object, what: str, *, least: int = 1, most: int = LARGEST_QUOTA) -> None:
    """Raise `LimitError` unless *value* is a whole number from *least* to *most*."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise LimitError(f"{what} is {value!r}; expected a whole number from {least} to {most}")
    if not least <= value <= most:
        raise LimitError(f"{what} is {value}; it must be from {least} to {most}")


def checked_rate(value: Rate, what: str, quota: int) -> Rate:
    """Return *value* in its plainest form.

    Raises `LimitError` if a store cannot keep it, or if *quota* takes over a century to refill.
    """
    rate = exact_rate(value, what)
    if quota / rate * SECOND > CENTURY:
        raise LimitError(f"{what} is {value!r}: {quota} would take more than a hundred years")
    if rate > LARGEST_QUOTA:
        raise LimitError(f"{what} is {value!r}; it must be at most {LARGEST_QUOTA} a second")
    per_microsecond = rate * MICROSECOND / SECOND
    most, finest = FINEST_RATE
    if per_microsecond.numerator > most or per_microsecond.denominator > finest:
        raise LimitError(f"{what} is {value!r}, too fine a fraction; expected a rounder number")
    return plain_rate(rate)


_UNITS = ((WEEK, "w"), (DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s"), (MILLISECOND, "ms"))


def _duration_text(nanoseconds: int) -> str:
    for size, name in _UNITS:
        count, rest = divmod(nanoseconds, size)
        if not rest:
            return name if count == 1 else f"{count}{name}"
    return f"{nanoseconds // MICROSECOND / 1_000!r}ms"


def rate_text(rate: Fraction, quota: int) -> str:
    """Return *rate* and *quota* in the notation, the way a person would write them."""
    period = Fraction(quota) / rate * SECOND
    if period in dict(_UNITS) or (rate.denominator > 1 and _is_whole_milliseconds(period)):
        return f"{quota}/{_duration_text(period.numerator)}"
    burst = "" if rate.numerator == quota else f" burst {quota}"
    return f"{rate.numerator}/{_duration_text(rate.denominator * SECOND)}{burst}"


def _is_whole_milliseconds(period: Fraction) -> bool:
    return period.denominator == 1 and period.numerator % MILLISECOND == 0
