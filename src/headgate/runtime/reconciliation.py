"""Report usage to a store that is back after an outage.

The usage that still counts in this process is charged there, as far as the limit has room: no
caller gets a debt because of an outage. Usage whose reply was lost is not sent again. Usage is sent
again only if the store certainly did not charge it.
"""

from __future__ import annotations

import threading
from itertools import islice
from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError
from headgate.limits import Concurrency, ConstantLimit
from headgate.runtime.outage import REPORTED
from headgate.stores.operations import Check, Take, TakeEach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headgate.limits import Limit
    from headgate.runtime.effects import Effects
    from headgate.stores.base import Store
    from headgate.stores.operations import Outcomes


BATCH: Final = 50
"""Counters that are reported at once."""

MAX_COUNTERS: Final = 10_000
"""Counters whose usage is kept; that of further ones is not reported."""


def is_usage(check: Check) -> bool:
    """True if *check* charges something that is to be reported: slots are not."""
    return check.cost > 0 and not isinstance(check.limit, Concurrency | ConstantLimit)


class UnreportedUsage:
    """Usage by counter, of at most *max_counters* counters. Safe to share among threads."""

    __slots__ = ("_by_counter", "_lock", "_max_counters", "_urgent")

    def __init__(self, max_counters: int = MAX_COUNTERS) -> None:
        self._max_counters = max_counters
        self.after_fork()

    def after_fork(self) -> None:
        """Drop the usage, which the parent process reports."""
        self._lock = threading.Lock()
        self._by_counter: dict[tuple[str, str], tuple[Limit, int]] = {}
        self._urgent: dict[tuple[str, str], None] = {}

    def __len__(self) -> int:
        return len(self._by_counter)

    def add(self, checks: Iterable[Check]) -> int:
        """Add the costs of *checks*; return the number of those for which there was no room."""
        dropped = 0
        with self._lock:
            usage = self._by_counter
            for check in checks:
                if not is_usage(check):
                    continue
                counter = check.group, check.key
                known = usage.get(counter)
                if known is None and len(usage) >= self._max_counters:
                    dropped += 1
                    continue
                usage[counter] = check.limit, check.cost + (0 if known is None else known[1])
        return dropped

    def subtract(self, checks: Iterable[Check]) -> None:
        """Subtract the costs of *checks*, which were refunded here."""
        with self._lock:
            for check in checks:
                counter = check.group, check.key
                limit, amount = self._by_counter.get(counter, (check.limit, 0))
                if amount > check.cost:
                    self._by_counter[counter] = limit, amount - check.cost
                else:
                    self._by_counter.pop(counter, None)

    def drop(self, checks: Iterable[Check]) -> None:
        """Drop the usage of the counters of *checks*, which were reset."""
        with self._lock:
            for check in checks:
                self._by_counter.pop((check.group, check.key), None)

    @property
    def has_urgent(self) -> bool:
        """True if some usage was put first."""
        return bool(self._urgent)

    def hurry(self, checks: Iterable[Check]) -> bool:
        """Report the counters of *checks* first, because the store decides on them again; True if
        this changes the order."""
        counters = [(check.group, check.key) for check in checks]
        with self._lock:
            hurried = [
                one for one in counters if one in self._by_counter and one not in self._urgent
            ]
            self._urgent.update(dict.fromkeys(hurried))
        return bool(hurried)

    def pop(self, count: int) -> list[Check]:
        """Remove and return the usage of up to *count* counters: those put first alone, if any."""
        with self._lock:
            counters = list(islice(self._urgent or self._by_counter, count))
            popped = [
                (counter, *self._by_counter.pop(counter))
                for counter in counters
                if counter in self._by_counter
            ]
            for counter in counters:
                self._urgent.pop(counter, None)
        return [Check(group, key, limit, amount) for (group, key), limit, amount in popped]


def report_batch(
    store: Store, usage: UnreportedUsage, used: Callable[[str, str], int]
) -> Effects[bool]:
    """Report some of *usage* to *store*, as far as *used* says that it still counts here.

    Returns False if the store has failed.
    """
    amounts = [(check, min(check.cost, used(check.group, check.key))) for check in usage.pop(BATCH)]
    checks = [check.with_cost(amount) for check, amount in amounts if amount]
    if not checks:
        return True
    try:
        replies = yield from store.effects(_take_each(checks))
    except StoreError as error:
        usage.add(checks if error.is_undone else ())
        return False
    _count(checks, replies)
    undone, rest = [], []
    for check, reply in zip(checks, replies, strict=True):
        if isinstance(reply, StoreError):
            undone += [check] if reply.is_undone else []
        elif not reply[0].allowed and (left := reply[0].remaining):
            rest.append(check.with_cost(left))  # the part of it that fits
    usage.add(undone)
    if rest:
        try:
            _count(rest, (yield from store.effects(_take_each(rest))))
        except StoreError:
            return False
    return True


def _count(checks: Sequence[Check], replies: Sequence[Outcomes | StoreError]) -> None:
    for check, reply in zip(checks, replies, strict=True):
        if not isinstance(reply, StoreError) and reply[0].allowed:
            REPORTED.add(check.cost)


def _take_each(checks: Sequence[Check]) -> TakeEach:
    return TakeEach(tuple([Take((check,)) for check in checks]))
