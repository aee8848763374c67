"""Gateways' usage, charged to the counters of exact rules, and the share that gateways may use."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError
from headgate.limits import ConstantLimit, FixedWindow
from headgate.limits.model import PacedLimit
from headgate.service.rlqs.rates import MILLION
from headgate.stores.base import LARGEST_AMOUNT
from headgate.stores.operations import Charge, Refund
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.algorithms import Outcome
    from headgate.service.rlqs.rates import Binding, BucketLimits
    from headgate.service.rlqs.shared import SharedCounter
    from headgate.stores.base import Store
    from headgate.stores.operations import Check, Outcomes


# The share of a limit for gateways if others use its counter too. No I/O.
#
# Gateways' usage is charged to the counters of exact rules, like that of requests checked one by
# one. Those are denied when nothing is left; gateways are not, they continue with the rates they
# have. So their rates follow the state of the counter, and room is left for the others.
#
# A paced counter of capacity C that is short of D units is full again in D / R seconds. Gateways
# get
#
#     R * (C - D) / D       at most R, at least R / 10
#
# which is R when it is half full, and in equilibrium if others use h: R * (C - D) / D = R - h.
# So if others use half of the limit, the counter settles at a third of its capacity, and
# gateways get the other half. (C is at least one second's worth: a charge for one second must fit.)
# A fixed window gives what remains over the time that remains. A sliding window knows the total
# usage; the share that gateways did not use belongs to others and is subtracted.
#
# That applies if there are others. A burst of the gateways themselves leaves the counter short
# as well, and cutting their rates for it would leave the limit unused. So while no other usage is
# detected they lose 3% at most. Together with the reserve of the allocation (5%) the counter still
# fills up, and a new user finds tokens and is detected. (`OtherUsage` compares two looks at the
# counter with the gateways' charges in between.)
#
# R / 10 is the bound on what gateways can lose to others under their tightest rule. Rates are
# divided under that one; the other matching rules are enforced by this alone, with the same
# fraction for all their buckets, and there the bound is R / 1000.


LEAST: Final = Fraction(1, 10)
LEAST_OF_OTHERS: Final = Fraction(1, 1_000)
LEAST_ALONE: Final = Fraction(97, 100)

_RECENT_NS: Final = 20 * SECOND
_MIN_UNITS: Final = 2
_NOTICEABLE: Final = 50
"""Usage of others is noticed above a few units and above the rate divided by this number:
clocks differ a little ..."""
_NOTICEABLE_AMONG_REPLICAS: Final = 10
"""... and usage of gateways on other replicas is known only when they report it."""


def fraction_left(
    binding: Binding, outcome: Outcome, *, charged: int, usage: int, least: Fraction = LEAST
) -> Fraction:
    """The fraction of the rate of *binding* for gateways, from *least* to 1.

    *outcome* is the state of the counter, for a cost of 1, right after *charged* units were charged
    for gateways; they use *usage* millionths of a request per second.
    """
    limit = binding.check.limit
    if isinstance(limit, PacedLimit):
        share = _paced(limit, outcome, charged)
    elif isinstance(limit, FixedWindow):
        whole = Fraction(limit.quota, limit.window_ns)
        left_ns = max(outcome.reset_after_ns, SECOND)
        share = Fraction(outcome.remaining, left_ns) / whole if outcome.reset_after_ns else least
        share = Fraction(1) if outcome.remaining == limit.quota else share
    elif isinstance(limit, ConstantLimit):
        share = Fraction(1)
    else:
        used = Fraction((limit.quota - outcome.remaining) * SECOND, limit.period_ns)
        other_usage = used - Fraction(usage * binding.check.cost, MILLION)
        share = 1 - other_usage / Fraction(limit.quota * SECOND, limit.period_ns)
    return min(max(share, least), Fraction(1))


def _paced(limit: PacedLimit, outcome: Outcome, charged: int) -> Fraction:
    rate = limit.per_second
    # The middle between before and after the charge.
    short = rate * outcome.reset_after_ns / SECOND - Fraction(charged, 2)
    capacity = max(Fraction(limit.quota), rate)
    return (capacity - short) / short if short > 0 else Fraction(1)


@dataclass(slots=True)
class OtherUsage:
    """Detects usage of a paced counter by others than gateways.

    *seen_ns* is the time of the last detection. One look may be wrong while a charge is in flight,
    so two in a row count.
    """

    seen_ns: int | None = None
    _looked_ns: int | None = None
    _short: Fraction = Fraction(0)
    _own: int = 0
    _was_used: bool = False

    def charged(self, units: int) -> None:
        """Record that *units* were charged for gateways, or refunded if negative."""
        self._own += units

    def look(self, limit: PacedLimit, outcome: Outcome, now_ns: int, *, elsewhere: int) -> None:
        """Compare the counter with the last look; *elsewhere* is the most that is charged for
        gateways on other replicas, in millionths of a unit per second."""
        rate = limit.per_second
        short = rate * outcome.reset_after_ns / SECOND
        if self._looked_ns is not None:
            seconds = Fraction(max(now_ns - self._looked_ns, 0), SECOND)
            expected = max(self._short - rate * seconds, Fraction(0)) + self._own
            unknown = short - expected - seconds * elsewhere / MILLION
            noticeable = _NOTICEABLE_AMONG_REPLICAS if elsewhere else _NOTICEABLE
            is_used = unknown > _MIN_UNITS + rate * seconds / noticeable
            if is_used and self._was_used:
                self.seen_ns = now_ns
            self._was_used = is_used
        self._looked_ns, self._short, self._own = now_ns, short, 0

    def is_recent(self, now_ns: int) -> bool:
        """True if other usage was detected recently."""
        return self.seen_ns is not None and now_ns - self.seen_ns <= _RECENT_NS


_MEMORY_NS: Final = 15 * SECOND
"""Time after which the state of a counter is no longer used."""
_SMOOTHING_NS: Final = 4 * SECOND
"""Time over which the state of a counter is smoothed, so that rates do not follow noise."""
_FINEST: Final = 10_000
_MOST_KNOWN: Final = 65_536

Counter = tuple[str, str]
"""The group and key of a counter."""


class Charges:
    """The charges to *store*. A failed charge is not repeated: the store may have executed it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._left: dict[Counter, tuple[Fraction, int]] = {}
        self._now_ns = 0
        self._usage: dict[Counter, int] = {}
        self._elsewhere: dict[Counter, int] = {}
        self._other_usage: dict[Counter, OtherUsage] = {}

    async def charge_ahead(self, counters: Iterable[SharedCounter], now_ns: int) -> None:
        """Charge the usage that is expected since the last call."""
        self._now_ns = now_ns
        amounts: list[tuple[BucketLimits, int]] = []
        usage: dict[Counter, int] = {}
        elsewhere: dict[Counter, int] = {}
        for counter in list(counters):
            shares = list(counter.shares.values())
            for share in shares:
                given = 0 if share.assigned is None else share.assigned.millionths
                amounts.append((share.limits, share.estimate.expected(now_ns, given)))
                for binding in share.limits.bindings[1:]:
                    place = (binding.check.group, binding.check.key)
                    usage[place] = usage.get(place, 0) + share.estimate.usage
            if shares:
                first = shares[0].limits.bindings[0].check
                usage[first.group, first.key] = counter.usage
                elsewhere[first.group, first.key] = counter.elsewhere * first.cost
        self._usage, self._elsewhere = usage, elsewhere
        await asyncio.gather(*(self._charge_ahead(*one) for one in _summed(amounts)))

    async def charge_reported(self, reported: Iterable[tuple[BucketLimits, int]]) -> None:
        """Charge what was used beyond the charge ahead, or refund what was not used.

        A charge is at most the capacity of a counter: older usage has been replenished since.
        """
        await asyncio.gather(*(self._correct(*one) for one in _summed(reported)))

    def left(self, counter: SharedCounter, now_ns: int) -> Fraction:
        """The fraction of *counter* for gateways."""
        least = Fraction(1)
        for share in counter.shares.values():
            for binding in share.limits.bindings:
                left, at_ns = self._left.get(
                    (binding.check.group, binding.check.key), (Fraction(1), now_ns)
                )
                if now_ns - at_ns <= _MEMORY_NS:
                    least = min(least, left)
        return least

    async def _charge_ahead(self, limits: BucketLimits, amount: int) -> None:
        """Charge *amount* requests and record what is left."""
        exact = limits.bindings
        checks = tuple(_times(one.check, amount) for one in exact)
        outcomes = await self._run_operation(Charge(checks))
        self._record_own(checks, 1)
        for binding, check, outcome in zip(exact, checks, outcomes, strict=False):
            least = LEAST_OF_OTHERS
            if binding is limits.bindings[0]:
                least = LEAST if self._has_other_usage(check, outcome) else LEAST_ALONE
            self._record_left(binding, check, outcome, least)

    async def _correct(self, limits: BucketLimits, amount: int) -> None:
        """Charge *amount* requests, or refund them if it is negative."""
        checks = tuple(_times(one.check, abs(amount)) for one in limits.bindings)
        if amount > 0:
            checks = tuple(replace(one, cost=min(one.cost, one.limit.quota)) for one in checks)
        await self._run_operation(Charge(checks) if amount > 0 else Refund(checks))
        self._record_own(checks, 1 if amount > 0 else -1)

    def _record_own(self, checks: Iterable[Check], sign: int) -> None:
        for check in checks:
            other_usage = self._other_usage.get((check.group, check.key))
            if other_usage is not None:
                other_usage.charged(sign * check.cost)

    async def _run_operation(self, operation: Charge | Refund) -> Outcomes:
        """Run *operation*; nothing if it has no checks or the store fails."""
        if not operation.checks:
            return ()
        try:
            return await self._store.arun(operation)
        except StoreError:
            return ()

    def _record_left(
        self, binding: Binding, check: Check, outcome: Outcome, least: Fraction
    ) -> None:
        place = (check.group, check.key)
        left = fraction_left(
            binding, outcome, charged=check.cost, usage=self._usage.get(place, 0), least=least
        )
        if len(self._left) >= _MOST_KNOWN and place not in self._left:
            forgotten = next(iter(self._left))
            del self._left[forgotten]
            self._other_usage.pop(forgotten, None)
        before, at_ns = self._left.get(place, (Fraction(1), self._now_ns))
        weight = min(Fraction(self._now_ns - at_ns, _SMOOTHING_NS), Fraction(1))
        smoothed = (before + (left - before) * weight).limit_denominator(_FINEST)
        self._left[place] = (smoothed, self._now_ns)

    def _has_other_usage(self, check: Check, outcome: Outcome) -> bool:
        """True if others than gateways use the counter of *check*; always true for windows,
        where it is not known."""
        if not isinstance(check.limit, PacedLimit):
            return True
        place = (check.group, check.key)
        other_usage = self._other_usage.setdefault(place, OtherUsage())
        elsewhere = self._elsewhere.get(place, 0)
        other_usage.look(check.limit, outcome, self._now_ns, elsewhere=elsewhere)
        return other_usage.is_recent(self._now_ns)


def _summed(amounts: Iterable[tuple[BucketLimits, int]]) -> list[tuple[BucketLimits, int]]:
    """The sums of *amounts* for the same counters, without those of 0."""
    sums: dict[object, tuple[BucketLimits, int]] = {}
    for limits, amount in amounts:
        if limits.is_shared:
            _, before = sums.get(limits.charged, (limits, 0))
            sums[limits.charged] = (limits, before + amount)
    return [one for one in sums.values() if one[1]]


def _times(check: Check, amount: int) -> Check:
    """Multiply the cost of *check* by *amount*."""
    return replace(check, cost=min(check.cost * amount, LARGEST_AMOUNT))
