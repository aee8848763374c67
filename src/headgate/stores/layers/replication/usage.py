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
    from collections.abc import Collection, Iterator, Sequence

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
"""Usage that has waited for longer could not be reported because of a failure."""

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
    spared: int = 0
    """The part that the region was spared, see `RegionUsage.acknowledge`: it is not reported."""
    since: int = 0
    """The time since which the region does not know all."""

    @property
    def unreported(self) -> int:
        """The part that the region does not know."""
        return self.amount - self.spared - self.acknowledged

    def refund(self, amount: int) -> int:
        """Subtract *amount* as far as it has not been reported; returns the rest."""
        taken = min(amount, max(self.amount - self.sent, 0))
        self.amount -= taken
        return amount - taken


class Reported(NamedTuple):
    """A total in a report. If *is_late*, the report has a piece of what waited for long."""

    total: Total
    amount: int
    is_late: bool


@dataclass(frozen=True, slots=True)
class Report:
    """A report to one region: the operation for its store, and the totals in it."""

    operation: MergeUsage
    totals: tuple[Reported, ...]
    made_ns: int


class RegionUsage:
    """The usage of this node, *origin*, and what one other region does not know of it.

    Of *groups* alone; None: of all. Usage that could not be reported for `LATE_NS` is reported in
    pieces, until the region's counter denies for longer than *max_debt_ns*; it is spared the rest.
    Safe to share among threads.
    """

    def __init__(
        self,
        origin: str,
        *,
        max_keys: int,
        groups: Collection[str] | None = None,
        max_debt_ns: int | None = None,
    ) -> None:
        self._max_keys = max_keys
        self._max_debt_ns = max_debt_ns
        self._count_dropped = METRICS.counter(
            "region_keys_dropped", "Counters whose usage was not reported in full."
        ).add
        self._count_spared = METRICS.counter(
            "region_units_spared", "Units that were not reported to a region in debt."
        ).add
        self.share(groups)
        self.after_fork(origin)

    def after_fork(self, origin: str) -> None:
        """Start without usage, as *origin*: the parent process reports its own."""
        self._lock = threading.Lock()
        self.origin = origin
        self.dropped = 0
        """Totals that were removed, or have ended, before the region knew them."""
        self.spared = 0
        """Units that the region was spared."""
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

    def share(self, groups: Collection[str] | None) -> None:
        """Count the usage of *groups* from now on; None: of all."""
        self._groups = None if groups is None else frozenset(groups)

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

    def reports(self, clock: Clock) -> Iterator[Report]:
        """The next reports, of `MOST_COUNTERS` at most; call `acknowledge` for each that has
        arrived. Each is made when it is needed: requests, or an event loop, wait meanwhile."""
        counters = min(self.pending, MOST_COUNTERS)
        for _ in range(-(-counters // MOST_CHECKS)):
            yield from self.next_reports(clock())

    def next_reports(self, now_ns: int) -> list[Report]:
        """The next reports, of `MOST_CHECKS` counters.

        The next call starts with other counters, whether or not these arrive: one that fails must
        not hold up the rest. Windows that have ended are left out.
        """
        together: dict[tuple[int, int, int], list[Total]] = {}
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
                    label = window.length_ns, window.number, total.generation
                    together.setdefault(label, []).append(total)
            return [self._report(label, totals, now_ns) for label, totals in together.items()]

    def acknowledge(self, report: Report, outcomes: Outcomes) -> None:
        """Record that the region has merged *report*; *outcomes* are those of a cost of 1 there."""
        with self._lock:
            for (total, amount, is_late), outcome in zip(report.totals, outcomes, strict=True):
                total.acknowledged = max(total.acknowledged, amount)
                if is_late and self._is_in_debt(outcome.retry_after_ns):
                    rest = max(total.unreported, 0)
                    self.spared += rest
                    self._count_spared(rest)
                    total.spared += rest
                if total in self._pending and total.unreported <= 0:
                    del self._pending[total]
                elif not is_late:
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

    def _report(self, label: tuple[int, int, int], totals: list[Total], now_ns: int) -> Report:
        checks, reported = [], []
        for total in totals:
            amount = total.amount - total.spared
            is_late = self._max_debt_ns is not None and now_ns - total.since > LATE_NS
            if is_late:
                amount = min(amount, total.acknowledged + _piece(total.limit))
            total.sent = max(total.sent, amount + total.spared)
            checks.append(Check(total.window.group, total.key, total.limit, amount))
            reported.append(Reported(total, amount, is_late))
        length_ns, number, generation = label
        origin = f"{self.origin}/{length_ns // SECOND}.{generation}"
        merge = MergeUsage(tuple(checks), origin, number, 2 * length_ns + SLACK_NS)
        return Report(merge, tuple(reported), now_ns)

    def _is_in_debt(self, retry_after_ns: int | None) -> bool:
        limit = self._max_debt_ns
        return limit is not None and (retry_after_ns is None or retry_after_ns > limit)

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


def _piece(limit: Limit) -> int:
    """The most that one late report adds: an eighth of a quota, or what refills in a second if that
    is more, so that reports are faster than use."""
    return max(limit.quota // 8, -(-limit.quota * SECOND // limit.period_ns))


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
