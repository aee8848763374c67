"""The usage of one node per counter and window, and what another region knows of it.

For each counter and window of time there is one total that only grows: the usage of this node in
that window. A report has the total, not what was added to it, so a region may receive it late,
twice or in any order, and the next report makes up for one that was lost. A refund is subtracted
only as far as it has not been reported.

Memory is bounded. When there are *max_keys* totals, those that the region knows make room first, of
them the smallest, and then those with the least unreported usage. A total that was forgotten must
not start from 0 under the same name, as the region would ignore it until it is as large as before:
what is counted after that belongs to a new *generation*, a part of the origin's name.

No I/O, no clock: time comes in as nanoseconds of one clock.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from headgate.errors import StoreError
from headgate.observability import METRICS
from headgate.stores.operations import (
    Charge,
    Check,
    GrantLease,
    LeaseGrant,
    MergeUsage,
    Operation,
    Outcomes,
    Refund,
    Settle,
    Take,
    TakeEach,
    TakeUpTo,
)
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from fractions import Fraction

    from headgate.clock import Clock
    from headgate.limits import Limit
    from headgate.stores.base import Place


# ---- windows ----------------------------------------------------------------------------------
#
# Usage older than the time that a limit takes to refill does not count any more. So a node counts
# in windows of that length, and reports a window until the next one has ended too. Lengths are
# whole seconds of three binary digits, at most a quarter longer than needed: similar limits share a
# report. A node numbers its windows by its own clock, and they are compared with each other alone:
# clocks of different nodes may differ.


SLACK_NS: Final = 30 * SECOND
"""The time for which a store remembers a window after its last report: some arrive late."""


def window_length_ns(limit: Limit) -> int:
    """The length of the windows in which usage under *limit* is counted."""
    seconds = -(-limit.period_ns // SECOND)
    shift = max(seconds.bit_length() - 3, 0)
    return (-(-seconds >> shift) << shift) * SECOND


MOST_CHECKS: Final = 64
"""Counters in one report, which take a server a millisecond or two: its other callers wait, and so
do callers that count here while it is made."""

MOST_COUNTERS: Final = 32 * MOST_CHECKS
"""Counters that are reported to a region before there is a pause."""

LATE_NS: Final = 2 * SECOND
"""Usage that has waited for longer is late too: it did not fit in the first reports after a
failure."""

MOST_LIMITS: Final = 1_024
"""Limits whose window lengths are cached: policies change."""

LOOKED_AT: Final = 256
"""Totals that are looked at when room is needed; at most half of them are removed."""


class Window:
    """The totals of one group in one window, by key. Windows of one length have *number*s."""

    __slots__ = ("group", "length_ns", "number", "totals")

    def __init__(self, length_ns: int, number: int, group: str) -> None:
        self.length_ns = length_ns
        self.number = number
        self.group = group
        self.totals: dict[str, Total] = {}

    def has_ended(self, now_ns: int) -> bool:
        """True if its usage needs no report any more."""
        return now_ns // self.length_ns > self.number + 1


@dataclass(slots=True, eq=False)
class Total:
    """The usage of one counter by this node in one window."""

    window: Window
    key: str
    limit: Limit
    generation: int
    amount: int = 0
    sent: int = 0
    """The most that any report had, whether or not it arrived."""
    acknowledged: int = 0
    since: int = 0
    """The time since which the region does not know all."""

    @property
    def unreported(self) -> int:
        """The part that the region does not know."""
        return self.amount - self.acknowledged

    def refund(self, amount: int) -> int:
        """Subtract *amount* as far as it has not been reported; returns the rest."""
        taken = min(amount, max(self.amount - self.sent, 0))
        self.amount -= taken
        return amount - taken


class Reported(NamedTuple):
    """A total, and the amount of it that is in a report."""

    total: Total
    amount: int


class Label(NamedTuple):
    """The totals that share a report have one label."""

    length_ns: int
    number: int
    generation: int
    max_debt: Fraction | None


@dataclass(frozen=True, slots=True)
class Report:
    """A report to one region: the operation for its store, and the totals in it."""

    operation: MergeUsage
    totals: tuple[Reported, ...]
    made_ns: int


class RegionUsage:
    """The usage of this node, *origin*, and what one other region does not know of it.

    Of *groups* alone; None: of all. Usage that is late because of a failure makes no larger debt
    there than *max_debt*, a share of the limit, or what `share` says of its group; None: any. Safe
    to share among threads.
    """

    def __init__(
        self,
        origin: str,
        *,
        max_keys: int,
        groups: Collection[str] | None = None,
        max_debt: Fraction | None = None,
    ) -> None:
        self._max_keys = max_keys
        self._max_debt = max_debt
        self._count_dropped = METRICS.counter(
            "region_keys_dropped", "Counters whose usage was not reported in full."
        ).add
        self.share(groups)
        self.after_fork(origin)

    def after_fork(self, origin: str) -> None:
        """Start without usage, as *origin*: the parent process reports its own."""
        self._lock = threading.Lock()
        self.origin = origin
        self.dropped = 0
        """Totals that were removed, or have ended, before the region knew them."""
        self._generation = 0
        self._latest_ns = 0
        self._count = 0
        self._windows: dict[tuple[int, int, str], Window] = {}
        self._pending: dict[Total, None] = {}
        # By the identity of limits, which are kept: hashing one takes longer than the rest.
        self._lengths: dict[int, tuple[Limit, int]] = {}

    def __len__(self) -> int:
        """The number of totals."""
        return self._count

    def share(
        self, groups: Collection[str] | None, max_debts: Mapping[str, Fraction] | None = None
    ) -> None:
        """Count the usage of *groups* from now on; None: of all. *max_debts* is by group."""
        self._groups = None if groups is None else frozenset(groups)
        self._max_debts = max_debts or {}

    def record(self, operation: Operation[Any], reply: Any, now_ns: int) -> bool:
        """Count the usage by *operation*; the result as of `record_take`."""
        used = [(check, amount) for check, amount in usage_of(operation, reply) if amount]
        places = [(check.group, check.limit) for check, _ in used]
        keys, amounts = [check.key for check, _ in used], [amount for _, amount in used]
        return bool(used) and self.record_take(places, keys, amounts, now_ns)

    def record_take(
        self, places: Sequence[Place], keys: Sequence[str], costs: Sequence[int], now_ns: int
    ) -> bool:
        """Count the *costs* of *keys* in *places*; negative ones are refunds.

        True if a report is needed that was not needed before.
        """
        is_new = False
        with self._lock:
            for (group, limit), key, cost in zip(places, keys, costs, strict=True):
                is_new |= self._add(group, key, limit, cost, now_ns)
        return is_new

    def _add(self, group: str, key: str, limit: Limit, amount: int, now_ns: int) -> bool:
        is_shared = self._groups is None or group in self._groups
        if not amount or not is_shared or not limit.is_divisible:
            return False
        length_ns = self._length_ns(limit)
        number = self._now(now_ns) // length_ns
        if amount < 0:
            self._refund(length_ns, number, group, key, -amount)
            return False
        total = self._find((length_ns, number, group), key)
        if total is None:
            total = self._new_total((length_ns, number, group), key, limit)
        total.limit = limit
        total.amount += amount
        if total in self._pending:
            return False
        self._pending[total] = None
        total.since = self._latest_ns
        return True

    @property
    def pending(self) -> int:
        """The number of counters of which the region does not know all."""
        return len(self._pending)

    def lag_ns(self, now_ns: int) -> int:
        """The age of the oldest usage that the region does not know."""
        with self._lock:
            oldest = min((total.since for total in self._pending), default=now_ns)
        return max(now_ns - oldest, 0)

    def reports(self, clock: Clock, *, is_late: bool = False) -> Iterator[Report]:
        """The next reports, of `MOST_COUNTERS` at most; call `acknowledge` for each that has
        arrived. Each is made when it is needed: requests, or an event loop, wait meanwhile."""
        counters = min(self.pending, MOST_COUNTERS)
        for _ in range(-(-counters // MOST_CHECKS)):
            yield from self.next_reports(clock(), is_late=is_late)

    def next_reports(self, now_ns: int, *, is_late: bool = False) -> list[Report]:
        """The next reports, of `MOST_CHECKS` counters; all *is_late* if the last one has failed.

        The next call starts with other counters, whether or not these arrive: one that fails must
        not hold up the rest. Windows that have ended are left out.
        """
        together: dict[Label, list[Total]] = {}
        with self._lock:
            now_ns, pending = self._now(now_ns), self._pending
            self._sweep(now_ns)
            for total in list(islice(pending, MOST_CHECKS)):
                del pending[total]
                if total.unreported <= 0:
                    continue
                pending[total] = None
                window = total.window
                if not window.has_ended(now_ns):
                    debt = None
                    if is_late or now_ns - total.since > LATE_NS:
                        debt = self._max_debts.get(window.group, self._max_debt)
                    label = Label(window.length_ns, window.number, total.generation, debt)
                    together.setdefault(label, []).append(total)
            return [self._report(label, totals, now_ns) for label, totals in together.items()]

    def acknowledge(self, report: Report) -> None:
        """Record that the region has merged *report*."""
        with self._lock:
            for total, amount in report.totals:
                total.acknowledged = max(total.acknowledged, amount)
                if total in self._pending and total.unreported <= 0:
                    del self._pending[total]
                else:
                    total.since = report.made_ns

    def _sweep(self, now_ns: int) -> None:
        """Remove totals of windows that have ended, up to `LOOKED_AT` of them."""
        for place, window in list(self._windows.items()):
            if window.has_ended(now_ns):
                for key in list(islice(window.totals, LOOKED_AT)):
                    self._forget(window.totals.pop(key))
                if window.totals:
                    return
                del self._windows[place]

    def _now(self, now_ns: int) -> int:
        """The latest time: a clock that steps back must not repeat the numbers of windows."""
        self._latest_ns = max(self._latest_ns, now_ns)
        return self._latest_ns

    def _length_ns(self, limit: Limit) -> int:
        known = self._lengths.get(id(limit))
        if known is not None:
            return known[1]
        if len(self._lengths) >= MOST_LIMITS:
            self._lengths.clear()
        length_ns = window_length_ns(limit)
        self._lengths[id(limit)] = limit, length_ns
        return length_ns

    def _refund(self, length_ns: int, number: int, group: str, key: str, amount: int) -> None:
        """Refund in this window, and the rest in the one before: the charge may have been there."""
        for n in (number, number - 1):
            total = self._find((length_ns, n, group), key)
            if total is not None and amount:
                amount = total.refund(amount)

    def _find(self, place: tuple[int, int, str], key: str) -> Total | None:
        window = self._windows.get(place)
        return None if window is None else window.totals.get(key)

    def _new_total(self, place: tuple[int, int, str], key: str, limit: Limit) -> Total:
        if self._count >= self._max_keys:
            self._make_room()
        self._count += 1
        window = self._windows.get(place) or self._windows.setdefault(place, Window(*place))
        total = window.totals[key] = Total(window, key, limit, self._generation)
        return total

    def _report(self, label: Label, totals: list[Total], now_ns: int) -> Report:
        checks, reported = [], []
        for total in totals:
            total.sent = max(total.sent, total.amount)
            checks.append(Check(total.window.group, total.key, total.limit, total.amount))
            reported.append(Reported(total, total.amount))
        length_ns, number, generation, max_debt = label
        origin = f"{self.origin}/{length_ns // SECOND}.{generation}"
        ttl_ns = 2 * length_ns + SLACK_NS
        merge = MergeUsage(tuple(checks), origin, number, ttl_ns, max_debt)
        return Report(merge, tuple(reported), now_ns)

    def _make_room(self) -> None:
        """Remove totals that the region knows, the smallest first, or else those with the least
        unreported usage, of the oldest ones."""
        self._generation += 1
        looked_at = list(islice(self._oldest(), min(LOOKED_AT, self._max_keys)))
        looked_at.sort(key=_worth)
        most = max(len(looked_at) // 2, 1)
        for n, total in enumerate(looked_at):
            totals = total.window.totals
            del totals[total.key]
            if n < most:
                self._forget(total)
            else:
                totals[total.key] = total  # others are looked at the next time

    def _oldest(self) -> Iterator[Total]:
        for window in sorted(
            self._windows.values(), key=lambda one: one.length_ns * (one.number + 1)
        ):
            yield from window.totals.values()

    def _forget(self, total: Total) -> None:
        """Forget *total*, which has been removed from its window."""
        self._count -= 1
        if total in self._pending:
            del self._pending[total]
            if total.unreported > 0:
                self.dropped += 1
                self._count_dropped()


def _worth(total: Total) -> tuple[int, int]:
    """The usage that the region does not know, and all of it: a counter in much use would soon be
    back, under a new name each time, and a store remembers a limited number of names."""
    return max(total.unreported, 0), total.amount


# ---- the usage of an operation ----------------------------------------------------------------


def usage_of(operation: Operation[Any], reply: Any) -> Iterator[tuple[Check, int]]:
    """The usage of each counter by *operation* with this *reply*; negative for refunds.

    A hold counts when it is settled. A lease that is charged in advance counts when it is granted,
    less the units that are returned with it; one that is not, when its usage is reported. The usage
    of other regions does not count here.
    """
    match operation:
        case TakeEach(takes):
            for take, outcomes in zip(takes, reply, strict=True):
                if not isinstance(outcomes, StoreError):
                    yield from usage_of(take, cast("Outcomes", outcomes))
        case GrantLease(check):
            yield check, _granted(operation, reply)
        case TakeUpTo(checks):
            granted, _ = reply
            yield from [(check, granted) for check in checks]
        case Take(checks) | Charge(checks) | Settle(checks) | Refund(checks):
            if _is_carried_out(operation, reply):
                sign = -1 if isinstance(operation, Refund) else 1
                yield from [(check, sign * check.cost) for check in checks]
        case _:
            return


def _is_carried_out(operation: Take | Charge | Settle | Refund, reply: Any) -> bool:
    if isinstance(operation, Take):
        return operation.consume and all(outcome.allowed for outcome in reply)
    return not isinstance(operation, Settle) or bool(reply) or operation.charge_lapsed


def _granted(request: GrantLease, grant: LeaseGrant) -> int:
    taken = request.check.cost if grant.outcome.allowed else 0
    if request.is_charged:
        # Units that are returned were never used, whether or not the store took them back.
        return taken + grant.amount - request.unused
    return taken + max(request.used - request.reported, 0)
