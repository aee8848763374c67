"""What a shaper was told, and what it asks: all of it without I/O."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.limits import LeakyQueue, parse_rate
from headgate.limits.queues import LONGEST_QUEUE
from headgate.plan import deadline_ns
from headgate.stores.operations import Check
from headgate.stores.port import checked_cost, checked_key, group_name
from headgate.units import SECOND, duration_ns, exact_rate

if TYPE_CHECKING:
    from headgate.decisions import Decision, OnFailure
    from headgate.units import Rate, Seconds

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
