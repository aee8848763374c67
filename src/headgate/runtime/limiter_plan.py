"""What the limiters ask of a store, and what they make of its replies: all of it without I/O.

`RateLimiter` and `AsyncRateLimiter` differ only in how they run an operation. What the operation
is, is planned here; what came of it is concluded in `stores.base`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from headgate.decision import Decision, OnFailure, PartialHit
from headgate.errors import LimitError, OptionError, StoreError, UsageError
from headgate.limits import EXACT, Accuracy, Concurrency, LeakyQueue, Limit, parse_limits
from headgate.runtime.fallback import HERE, Asked
from headgate.stores.base import (
    checked_cost,
    checked_key,
    conclude,
    group_name,
    groups_of,
    refuse_concurrency,
    refuse_partial,
)
from headgate.stores.operations import (
    CancelQueued,
    Check,
    Hold,
    Refund,
    Take,
    TakeEach,
    TakeUpTo,
)
from headgate.units import DAY, MILLISECOND, SECOND, duration_ns, seconds_at_least

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headgate.runtime.fallback import Fallback
    from headgate.stores.base import Prepared, Store
    from headgate.stores.operations import Charge, Outcomes
    from headgate.units import Seconds


Limits = str | Limit | Iterable[str | Limit]
"""Limits as a caller gives them: a text, a limit, or several of either."""


@dataclass(frozen=True, slots=True)
class Stack:
    """The limits of a limiter, and the names of their counters."""

    namespace: str
    limits: tuple[Limit, ...]
    on_failure: OnFailure
    name: str | None = None
    _by_part: dict[str, Stack] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What `of_part` has made: there are few parts, and a slot is asked for often."""

    @property
    def places(self) -> tuple[tuple[str, Limit], ...]:
        """Each limit and the group of its counters. A changed limit keeps its group."""
        count = len(self.limits)
        if self.name is None:
            groups = tuple([group_name(self.namespace, place) for place in range(count)])
        else:
            groups = groups_of(self.namespace, self.name, count)
        return tuple(zip(groups, self.limits, strict=True))

    def terms(self, accuracy: Accuracy | None) -> dict[str, Accuracy]:
        """The same by group, for those limits that need not be kept exactly; None: all are."""
        if accuracy is None or accuracy == EXACT:
            return {}
        return {
            group: accuracy for group, limit in self.places if not isinstance(limit, Concurrency)
        }

    @property
    def has_slots(self) -> bool:
        return any(isinstance(limit, Concurrency) for limit in self.limits)

    @property
    def has_queues(self) -> bool:
        return any(isinstance(limit, LeakyQueue) for limit in self.limits)

    def within(self, timeout_ns: int | None) -> Stack:
        """The same counters for one who waits no longer than *timeout_ns* for its turn in a queue.
        What it was told can be given up by either."""
        if timeout_ns is None or not self.has_queues:
            return self
        limits = [
            limit.within(timeout_ns) if isinstance(limit, LeakyQueue) else limit
            for limit in self.limits
        ]
        return replace(self, limits=tuple(limits))

    def checks(self, key: str, cost: int, what: str = "cost") -> tuple[Check, ...]:
        """What a request of *cost* by *key* has to pass."""
        key = checked_key(key)
        checked_cost(cost, what)
        return tuple(Check(group, key, limit, cost) for group, limit in self.places)

    def take(self, key: str, cost: int, verb: str = "hit") -> Take:
        refuse_concurrency(self.limits, verb)
        return Take(self.checks(key, cost))

    def take_up_to(self, key: str, cost: int) -> TakeUpTo:
        refuse_partial(self.limits, "hit_up_to")
        return TakeUpTo(self.checks(key, cost))

    def take_each(self, asked: Iterable[str | tuple[str, int]]) -> TakeEach:
        if isinstance(asked, str):
            raise UsageError(f"hit_many takes a list of (key, cost); for {asked!r} alone use hit")
        takes = []
        for n, item in enumerate(asked):
            match item:
                case str():
                    takes.append(self.take(item, 1, "hit_many"))
                case (key, cost):
                    takes.append(self.take(key, cost, "hit_many"))
                case _:
                    raise UsageError(f"item {n} of hit_many is {item!r}; expected (key, cost)")
        return TakeEach(tuple(takes))

    def is_worth_a_wait(self, cost: int) -> bool:
        """Whether *cost* is one that can be refused now and admitted later."""
        return 0 < cost <= min(limit.largest_cost for limit in self.limits)

    def hold(self, key: str, cost: int, name: str, ttl: Seconds) -> Hold:
        refuse_concurrency(self.limits, "reserve")
        return Hold(self.checks(key, cost), name, duration_ns(ttl, "ttl"))

    def enter(self, key: str, lease: str) -> Take:
        self.require_slots()
        return Take(self.checks(key, 1), lease=lease)

    def rates(self, key: str, amount: int, verb: str) -> tuple[Check, ...]:
        """The checks of those limits that have no slots: what *verb* concerns."""
        checks = self.checks(key, amount, "amount")
        rates = tuple(check for check in checks if not isinstance(check.limit, Concurrency))
        if not rates:
            refuse_concurrency(self.limits, verb)
        return rates

    def slots(self, key: str) -> tuple[Check, ...]:
        """The checks of those limits that have slots."""
        return tuple(c for c in self.checks(key, 1) if isinstance(c.limit, Concurrency))

    def of_part(self, partition: str | None) -> Stack:
        """The same as *partition* of the callers asks it; those without a share if it is None."""
        if partition is None:
            return self
        found = self._by_part.get(partition)
        if found is None:
            known = {name for limit in self.limits for name in _parts(limit)}
            if partition not in known:
                parts = ", ".join(sorted(known))
                expected = f"one of {parts}" if parts else "none: no limit here has shares"
                raise OptionError(f"the partition is {partition!r}; expected {expected}")
            found = replace(self, limits=tuple(_of_part(each, partition) for each in self.limits))
            self._by_part[partition] = found
        return found

    @property
    def shortest_lease_ns(self) -> int:
        """How long a slot lasts that is not renewed."""
        return min(limit.ttl_ns for limit in self.limits if isinstance(limit, Concurrency))

    def require_slots(self) -> None:
        if not self.has_slots:
            raise UsageError("slot needs a Concurrency limit; this limiter has none: use hit")


def _parts(limit: Limit) -> tuple[str, ...]:
    return tuple(name for name, _ in limit.shares) if isinstance(limit, Concurrency) else ()


def _of_part(limit: Limit, partition: str) -> Limit:
    if isinstance(limit, Concurrency) and partition in _parts(limit):
        return replace(limit, partition=partition)
    return limit


def read_limits(limits: Limits) -> tuple[Limit, ...]:
    """*limits*, however they were given, as a tuple of at least one."""
    if isinstance(limits, str):
        return parse_limits(limits)
    if isinstance(limits, Limit):
        return (limits,)
    if isinstance(limits, bytes | dict) or not hasattr(limits, "__iter__"):
        raise LimitError(f"the limit is {limits!r}; expected text, a Limit or a list of them")
    several = tuple(limits)
    found = tuple(limit for item in several for limit in _read_item(item))
    if not found:
        raise LimitError("there is no limit; expected at least one, such as '100/minute'")
    return found


def _read_item(item: str | Limit) -> tuple[Limit, ...]:
    if isinstance(item, str | Limit):
        return read_limits(item)
    raise LimitError(f"{item!r} is not a limit; expected text such as '100/minute' or a Limit")


LONGEST_TIMEOUT: Final = 366 * 86_400
"""Whoever is ready to wait for more than a year, in seconds, is ready to wait for ever."""


def deadline_ns(timeout: float | None, now: int) -> int | None:
    """When *timeout* seconds from *now* are over; None if never."""
    if timeout is None:
        return None
    if type(timeout) not in (int, float) or not timeout >= 0:
        raise OptionError(f"timeout is {timeout!r}; expected seconds from 0, or None to wait on")
    return None if timeout > LONGEST_TIMEOUT else now + round(timeout * SECOND)


def nap(wait_ns: int) -> float:
    """How many seconds to sleep for *wait_ns*; no longer than a day, and then ask again."""
    return min(seconds_at_least(wait_ns), 86_400.0)


def naps(delay_ns: int) -> Iterator[float]:
    """How many seconds to sleep, one after the other, for *delay_ns*: a day at most."""
    while delay_ns > 0:
        yield seconds_at_least(min(delay_ns, DAY))
        delay_ns -= DAY


def soonest_ns(refusal: Decision) -> int:
    """In how many nanoseconds, at the soonest, what was refused could go on.

    Where a queue refused, whoever comes when it has room waits for a turn on top.
    """
    soonest = 0
    for part in refusal.limits:
        wait_ns = part.delay_ns if part.allowed else part.retry_after_ns or 0
        if isinstance(part.limit, LeakyQueue) and not part.allowed:
            wait_ns += part.limit.patience_ns
        soonest = max(soonest, wait_ns)
    return max(soonest, refusal.retry_after_ns or 0)


def refused_in_line(decision: Decision) -> Decision:
    """The refusal of a caller whose time was up while others were still before it in line.

    *decision* is a look at the counter then. Should the counter have room, it is for the others.
    """
    if not decision.allowed:
        return decision
    return Decision(
        decision.key,
        decision.limit,
        allowed=False,
        remaining=0,
        retry_after_ns=MILLISECOND,
        reset_after_ns=decision.reset_after_ns,
        source=decision.source,
        parts=decision.limits if len(decision.limits) > 1 else (),
    )


def checked_name(name: str | None, limits: Limits, store: str | Store, *, is_shared: bool) -> None:
    """Raise `OptionError` unless *name* can name a limiter on *store*.

    On a shared store every limiter needs one: limiters share counters only on purpose.
    """
    if name is None and is_shared:
        where = re.sub("//.*@", "//***@", store) if isinstance(store, str) else "store"
        shown = repr(where) if isinstance(store, str) else where
        raise OptionError(
            "a limiter on a shared store needs a name; limiters of one name and namespace share "
            f"their counters: RateLimiter({_shown(limits)}, store={shown}, name='api')"
        )
    if name is not None and (type(name) is not str or not name):
        raise OptionError(f"the name is {name!r}; expected text such as 'login', or None")


def _shown(limits: Limits) -> str:
    if isinstance(limits, str):
        return repr(limits)
    return repr("; ".join(str(limit) for limit in read_limits(limits)))


def prepared_stack(store: Store, stack: Stack) -> Prepared | None:
    """The prepared takes of *stack*; None if it has slots, which a hit does not take."""
    return None if stack.has_slots else store.prepare(stack.places)


def decide_now_of(store: Store, prepared: Prepared | None) -> Callable[[str, int], Decision] | None:
    """The decisions of *prepared* that need no reply; None unless *store* has them and cannot
    fail."""
    return None if prepared is None or store.may_fail else prepared.decide


# What both limiters make of a reply, or of its absence: all of it without I/O.


if TYPE_CHECKING:
    Deciding = Take | Hold | Charge | Refund


class Concluding:
    """A limiter, as far as it does not matter whether it blocks."""

    _stack: Stack
    _fallback: Fallback

    def _conclude(self, operation: Deciding, reply: Outcomes | StoreError) -> Decision:
        if isinstance(reply, StoreError):  # of several takes one may have failed alone
            return self._without_store(operation, reply)
        if self._fallback.wants_word:
            self._fallback.succeed()
        return conclude(operation.checks, reply)

    def _without_store(self, operation: Deciding, error: StoreError) -> Decision:
        return self._fallback.answer(operation, self._stack.on_failure, error)

    def _conclude_part(self, operation: TakeUpTo, reply: tuple[int, Outcomes]) -> PartialHit:
        granted, outcomes = reply
        if self._fallback.wants_word:
            self._fallback.succeed()
        return PartialHit(granted, conclude(operation.checks, outcomes))

    def _part_without_store(self, operation: TakeUpTo, error: StoreError) -> PartialHit:
        return self._fallback.take_up_to(self._asked(operation.checks), error)

    def _asked(self, checks: tuple[Check, ...]) -> Asked:
        return Asked(checks, self._stack.on_failure)

    def _giving_back(self, key: str, cost: int, granted: Decision) -> list[Refund | CancelQueued]:
        """What the store is to be told when nothing comes of what it *granted*: turns that have not
        come are given up, all else is refunded. What this process granted is given back at once."""
        steps: list[Refund | CancelQueued] = list(self._vacating(key, cost, granted))
        checks = [c for c in self._stack.checks(key, cost) if not isinstance(c.limit, LeakyQueue)]
        if granted.source in HERE:
            self._fallback.give_back(self._asked(tuple(checks)))
        elif checks:
            steps.append(Refund(tuple(checks)))
        return steps

    def _vacating(self, key: str, cost: int, granted: Decision) -> list[CancelQueued]:
        """The same for turns alone; an empty list if there are none that the store knows of."""
        if not granted.delay_ns:
            return []
        parts = zip(self._stack.checks(key, cost), granted.limits, strict=True)
        turns = [(check, part.turn_ns) for check, part in parts if part.turn_ns]
        checks, turns_ns = tuple([c for c, _ in turns]), tuple([turn for _, turn in turns])
        if granted.source not in HERE:
            return [CancelQueued(checks, turns_ns)]
        self._fallback.vacate(self._asked(checks), turns_ns)
        return []
