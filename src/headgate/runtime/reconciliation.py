"""Report usage to a store that is back after an outage.

The usage that still counts in this process is charged there, up to what is left: no caller begins
with a debt because of an outage. Usage that was sent is not sent again, whether or not a reply
came; only what the store surely did not do is.
"""

from __future__ import annotations

import threading
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import StoreError
from headgate.limits import Concurrency, ConstantLimit
from headgate.runtime.outage import count_reported
from headgate.stores.operations import Check, Take, TakeEach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headgate.limits import Limit
    from headgate.runtime.effects import Effects
    from headgate.stores.base import Store


BATCH: Final = 50
"""Counters that are reported at once."""

MAX_COUNTERS: Final = 10_000
"""Counters whose usage is kept; that of further ones is not reported."""


class UnreportedUsage:
    """Usage by counter, of at most *max_counters* counters. Safe to share among threads.

    Slots are not usage: they are not reported.
    """

    __slots__ = ("_by_counter", "_lock", "_max_counters")

    def __init__(self, max_counters: int = MAX_COUNTERS) -> None:
        self._max_counters = max_counters
        self.after_fork()

    def after_fork(self) -> None:
        """Drop the usage, which the parent process reports."""
        self._lock = threading.Lock()
        self._by_counter: dict[tuple[str, str], tuple[Limit, int]] = {}

    def __len__(self) -> int:
        return len(self._by_counter)

    def add(self, checks: Iterable[Check]) -> int:
        """Add the costs of *checks*; return the number of those for which there was no room."""
        dropped = 0
        with self._lock:
            usage = self._by_counter
            for check in checks:
                if not check.cost or isinstance(check.limit, Concurrency | ConstantLimit):
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

    def pop(self, count: int) -> list[Check]:
        """Remove and return the usage of up to *count* counters."""
        with self._lock:
            counters = list(islice(self._by_counter, count))
            popped = [(counter, *self._by_counter.pop(counter)) for counter in counters]
        return [Check(group, key, limit, amount) for (group, key), limit, amount in popped]


def report_batch(
    store: Store, usage: UnreportedUsage, used: Callable[[str, str], int]
) -> Effects[bool]:
    """Report some of *usage* to *store*, as far as *used* says that it still counts here.

    Returns False if the store has failed.
    """
    amounts = [(check, min(check.cost, used(check.group, check.key))) for check in usage.pop(BATCH)]
    checks = [_costing(check, amount) for check, amount in amounts if amount]
    if not checks:
        return True
    try:
        replies = yield from store.effects(_take_each(checks))
    except StoreError as error:
        usage.add(checks if error.is_undone else ())
        return False
    usage.add([check for check, reply in zip(checks, replies, strict=True) if _is_undone(reply)])
    _count(checks, replies)
    rest = _rest(checks, replies)
    if rest:
        try:
            _count(rest, (yield from store.effects(_take_each(rest))))
        except StoreError:
            return False
    return True


def _is_undone(reply: object) -> bool:
    return isinstance(reply, StoreError) and reply.is_undone


def _rest(checks: Sequence[Check], replies: Sequence[Any]) -> list[Check]:
    """The part of the denied *checks* that fits."""
    rest = []
    for check, outcomes in zip(checks, replies, strict=True):
        if isinstance(outcomes, StoreError) or outcomes[0].allowed:
            continue
        if left := outcomes[0].remaining:
            rest.append(_costing(check, left))
    return rest


def _count(checks: Sequence[Check], replies: Sequence[Any]) -> None:
    pairs = zip(checks, replies, strict=True)
    charged = [
        check.cost
        for check, outcomes in pairs
        if not isinstance(outcomes, StoreError) and outcomes[0].allowed
    ]
    if charged:
        count_reported(sum(charged))


def _take_each(checks: Sequence[Check]) -> TakeEach:
    return TakeEach(tuple([Take((check,)) for check in checks]))


def _costing(check: Check, amount: int) -> Check:
    return Check(check.group, check.key, check.limit, amount)
