"""A turn that was given in advance, for those who see for themselves that they come on time."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.fork import watch_forks
from headgate.limits import LeakyQueue, parse_rate
from headgate.limits.queues import LONGEST_QUEUE
from headgate.observability import MEASURES
from headgate.runtime.waiting_lines import deadline_ns
from headgate.stores.base import checked_cost, checked_key, group_name
from headgate.stores.operations import Check
from headgate.units import SECOND, duration_ns, exact_rate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.decision import Decision, OnFailure
    from headgate.units import Rate, Seconds


class Booked:
    """What both kinds of bookings tell: true if there is a turn."""

    __slots__ = ("at_ns", "cost", "decision", "is_open")

    def __init__(self, decision: Decision, cost: int, at_ns: int) -> None:
        self.decision = decision
        """What came of asking."""
        self.cost = cost
        self.at_ns = at_ns
        """`at` in nanoseconds."""
        self.is_open = decision.allowed
        """Whether it has not been given up."""

    @property
    def key(self) -> str:
        """Whose queue it is in."""
        return self.decision.key

    @property
    def delay(self) -> float:
        """Seconds from when it was booked until the turn."""
        return self.decision.delay

    @property
    def at(self) -> float:
        """When the turn is, in seconds since the epoch on the clock of this process."""
        return self.at_ns / SECOND

    @property
    def retry_after(self) -> float | None:
        """If there is no turn: seconds until there would be one; None if never."""
        return self.decision.retry_after

    def __bool__(self) -> bool:
        return self.decision.allowed

    def __repr__(self) -> str:
        if not self:
            return f"{type(self).__name__}({self.key!r}, refused, retry_after={self.retry_after})"
        state = "" if self.is_open else ", given up"
        return f"{type(self).__name__}({self.key!r}, at={self.at}, delay={self.delay}{state})"

    def _close(self) -> bool:
        """Whether there is something to give up, for the first who asks."""
        was_open, self.is_open = self.is_open, False
        return was_open


class Booking(Booked):
    """A turn at a known time. Nobody waits for it: whoever holds it comes when it is `at`."""

    __slots__ = ("_give_up",)

    def __init__(
        self, decision: Decision, cost: int, at_ns: int, give_up: Callable[[], bool]
    ) -> None:
        super().__init__(decision, cost, at_ns)
        self._give_up = give_up

    def cancel(self) -> bool:
        """Give the turn up; whether that was in time to be of use to others."""
        return self._close() and self._give_up()


class AsyncBooking(Booked):
    """As `Booking`, for an event loop."""

    __slots__ = ("_give_up",)

    def __init__(
        self, decision: Decision, cost: int, at_ns: int, give_up: Callable[[], Awaitable[bool]]
    ) -> None:
        super().__init__(decision, cost, at_ns)
        self._give_up = give_up

    async def cancel(self) -> bool:
        """Give the turn up; whether that was in time to be of use to others."""
        return self._close() and await self._give_up()


# What operators see of shapers: how many were delayed, and how many wait.


_TEXT: Final = "Requests to shapers: gone at once, told to wait, or refused."
_AT_ONCE: Final = MEASURES.counter("shaped", _TEXT, outcome="at_once")
_DELAYED: Final = MEASURES.counter("shaped", _TEXT, outcome="delayed")
_REFUSED: Final = MEASURES.counter("shaped", _TEXT, outcome="refused")
_GIVEN_UP: Final = MEASURES.counter("shaped_given_up", "Turns that were given up before they came.")


class Waiting:
    """How many wait in this process: callers of shapers, and requests under a rule with `shape`."""

    def __init__(self) -> None:
        self.after_fork()
        MEASURES.gauge("shaper_waiting", "Callers that wait for their turn.", self.now)
        watch_forks(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    def now(self) -> float:
        return self._count

    def __enter__(self) -> None:
        self.add(1)

    def __exit__(self, *_: object) -> None:
        self.add(-1)

    def add(self, more: int) -> None:
        with self._lock:
            self._count += more


WAITING: Final = Waiting()


def count_asked(decision: Decision) -> None:
    """Somebody asked for a turn."""
    if not decision.allowed:
        _REFUSED.add()
    elif decision.delay_ns:
        _DELAYED.add()
    else:
        _AT_ONCE.add()


def count_given_up() -> None:
    """A turn was given up."""
    _GIVEN_UP.add()


# What a shaper was told, and what it asks: all of it without I/O.


QUEUE: Final = 100
"""How many units may wait, if nothing is said of it."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The queue of a shaper, and the names of its counters."""

    limit: LeakyQueue
    namespace: str
    on_failure: OnFailure

    def check(self, key: str, cost: int, timeout_ns: int | None = None) -> Check:
        """What a request of *cost* by *key*, which can wait for *timeout_ns*, has to pass."""
        group = group_name(self.namespace, "shaper")
        return Check(group, key, self.narrowed(timeout_ns), cost)

    def narrowed(self, timeout_ns: int | None) -> LeakyQueue:
        """The limit for those who wait no longer than *timeout_ns*: of the same counters."""
        return self.limit.within(timeout_ns)

    def units(self, wait_ns: int) -> int:
        """How many units have their turn later than now, if whoever comes waits for *wait_ns*."""
        return max(ceil(wait_ns * self.limit.per_second / SECOND) - 1, 0)


def read_queue(
    rate: str | Rate | LeakyQueue, queue: int | None, max_wait: Seconds | None
) -> LeakyQueue:
    """The queue that the first options of a shaper describe."""
    if isinstance(rate, LeakyQueue):
        if queue is not None or max_wait is not None:
            raise OptionError(f"{rate!r} says its queue and max_wait itself: do not give them too")
        return rate
    per_second = parse_rate(rate) if isinstance(rate, str) else rate
    if queue is None:
        queue = QUEUE if max_wait is None else _longest(per_second, max_wait)
    return LeakyQueue(per_second, queue, max_wait)


def _longest(rate: Rate, max_wait: Seconds) -> int:
    """As many as can be worked off in *max_wait*."""
    if not max_wait:
        return 0
    units = exact_rate(rate, "rate") * duration_ns(max_wait, "max_wait") / SECOND
    return min(ceil(units), LONGEST_QUEUE)


def checked_request(key: str, cost: int) -> str:
    """*key*, if it and *cost* make sense."""
    checked_cost(cost)
    return checked_key(key)


def timeout_in_ns(timeout: float | None) -> int | None:
    """*timeout* seconds in nanoseconds; None for those who have no deadline of their own."""
    return deadline_ns(timeout, 0)


def expected_wait_ns(look: Decision) -> int:
    """How long the next one would have to wait, by a *look* of cost 1, were it ready to."""
    return look.delay_ns if look.allowed else look.reset_after_ns
