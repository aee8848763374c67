"""What gateways use, charged to the counters of exact rules; and what those say is left."""

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
    from collections.abc import Iterable, Sequence

    from headgate.algorithms import Outcome
    from headgate.service.rlqs.rates import Binding, Terms
    from headgate.service.rlqs.shared import SharedCounter
    from headgate.stores.base import Store
    from headgate.stores.operations import Check, Outcomes


# How much of a limit is left for gateways when others use its counter too. No I/O.
#
# Gateways' use is charged to the counters of exact rules, as that of requests checked one by one
# is. Those are refused when nothing is left, gateways are not: they go on with the rates they have.
# So their rates follow what the counter says, and room is left for the others.
#
# A paced counter of capacity C that is short of D units is as new in D / R seconds. Gateways get
#
#     R * (C - D) / D       at most R, at least R / 10
#
# which is R when it is half full, and at rest where others use h: R * (C - D) / D = R - h. So with
# others that use half of the limit the counter rests at a third of its capacity, and gateways get
# the other half. (C is at least what a second brings: what is charged at once must fit.) A fixed
# window gives what remains over the time that remains. A sliding window tells what was used in all;
# what gateways did not use of that was others', and is taken off.
#
# That is for others that are there. A burst that gateways had themselves leaves the counter short
# as well, and if they were cut for that, the limit would go unused. So while nobody else is seen to
# use it, they lose a tenth at most: then the counter fills up again all the same, and who comes
# finds something, and is seen. (`Others` tells from two looks at the counter, and what was charged
# between them for gateways, what somebody else must have used.)
#
# R / 10 is the bound on what gateways can lose to others under the rule that binds them most. Rates
# are divided under that one; the other rules that match are kept by this alone, all buckets that
# they are for losing the same part, and there the bound is R / 1000.


LEAST: Final = Fraction(1, 10)
LEAST_OF_OTHERS: Final = Fraction(1, 1_000)
LEAST_ALONE: Final = Fraction(9, 10)

_LATELY_NS: Final = 20 * SECOND
_A_FEW: Final = 2
_NOTICEABLE: Final = 50
"""What others use is noticed if it is more than a few units, and more than one part of the rate in
so many: clocks differ by a little ..."""
_NOTICEABLE_AMONG_REPLICAS: Final = 10
"""... and what gateways of other replicas use is known only when they report it."""


def part_left(
    binding: Binding, outcome: Outcome, *, charged: int, usage: int, least: Fraction = LEAST
) -> Fraction:
    """The part of the rate of *binding* that is for gateways, from *least* to 1.

    *outcome* is what the counter said, for a cost of 1, right after *charged* units were charged
    for gateways; they use *usage* millionths of a request a second.
    """
    limit = binding.check.limit
    if isinstance(limit, PacedLimit):
        part = _paced(limit, outcome, charged)
    elif isinstance(limit, FixedWindow):
        whole = Fraction(limit.quota, limit.window_ns)
        left_ns = max(outcome.reset_after_ns, SECOND)
        part = Fraction(outcome.remaining, left_ns) / whole if outcome.reset_after_ns else least
        part = Fraction(1) if outcome.remaining == limit.quota else part
    elif isinstance(limit, ConstantLimit):
        part = Fraction(1)
    else:
        used = Fraction((limit.quota - outcome.remaining) * SECOND, limit.period_ns)
        others = used - Fraction(usage * binding.check.cost, MILLION)
        part = 1 - others / Fraction(limit.quota * SECOND, limit.period_ns)
    return min(max(part, least), Fraction(1))


def _paced(limit: PacedLimit, outcome: Outcome, charged: int) -> Fraction:
    rate = limit.per_second
    # In the middle between before and after the charge.
    short = rate * outcome.reset_after_ns / SECOND - Fraction(charged, 2)
    capacity = max(Fraction(limit.quota), rate)
    return (capacity - short) / short if short > 0 else Fraction(1)


@dataclass(slots=True)
class Others:
    """Whether anybody but gateways uses a paced counter; it is looked at as time passes.

    *seen_ns* is when somebody was seen last. One look may err, when a charge is under way: two in
    a row count.
    """

    seen_ns: int | None = None
    _looked_ns: int | None = None
    _short: Fraction = Fraction(0)
    _own: int = 0
    _was_used: bool = False

    def charged(self, units: int) -> None:
        """Note that *units* were charged for gateways, or given back if negative."""
        self._own += units

    def look(self, limit: PacedLimit, outcome: Outcome, now_ns: int, *, elsewhere: int) -> None:
        """Look at what the counter says; *elsewhere* is what gateways of other replicas use, in
        millionths of a unit a second."""
        rate = limit.per_second
        short = rate * outcome.reset_after_ns / SECOND
        if self._looked_ns is not None:
            seconds = Fraction(max(now_ns - self._looked_ns, 0), SECOND)
            expected = max(self._short - rate * seconds, Fraction(0)) + self._own
            unknown = short - expected - seconds * elsewhere / MILLION
            noticeable = _NOTICEABLE_AMONG_REPLICAS if elsewhere else _NOTICEABLE
            is_used = unknown > _A_FEW + rate * seconds / noticeable
            if is_used and self._was_used:
                self.seen_ns = now_ns
            self._was_used = is_used
        self._looked_ns, self._short, self._own = now_ns, short, 0

    def are_there(self, now_ns: int) -> bool:
        """Whether somebody was seen lately."""
        return self.seen_ns is not None and now_ns - self.seen_ns <= _LATELY_NS


_MEMORY_NS: Final = 15 * SECOND
"""What a counter said that long ago says nothing any more."""
_SMOOTHING_NS: Final = 4 * SECOND
"""Over how long what a counter says is evened out: rates change for reasons, not for moments."""
_FINEST: Final = 10_000
_MOST_KNOWN: Final = 65_536

Counter = tuple[str, str]
"""A counter by its group and its key."""


class Charging:
    """Charges *store*. What it cannot be told is not told again: it may have heard."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._left: dict[Counter, tuple[Fraction, int]] = {}
        self._now_ns = 0
        self._usage: dict[Counter, int] = {}
        self._elsewhere: dict[Counter, int] = {}
        self._others: dict[Counter, Others] = {}

    async def charge_ahead(self, counters: Iterable[SharedCounter], now_ns: int) -> None:
        """Charge what gateways are expected to have used since the last time."""
        self._now_ns = now_ns
        amounts = _Amounts()
        usage: dict[Counter, int] = {}
        elsewhere: dict[Counter, int] = {}
        for counter in list(counters):
            for part in counter.parts.values():
                given = 0 if part.told is None else part.told.millionths
                amounts.add(part.terms, part.tally.expected(now_ns, given))
                for binding in part.terms.bindings[1:]:
                    place = (binding.check.group, binding.check.key)
                    usage[place] = usage.get(place, 0) + part.tally.usage
            for part in counter.parts.values():
                first = part.terms.bindings[0].check
                usage[first.group, first.key] = counter.usage
                own = sum(one.tally.usage for one in counter.parts.values())
                elsewhere[first.group, first.key] = max(counter.usage - own, 0) * first.cost
                break
        self._usage, self._elsewhere = usage, elsewhere
        await asyncio.gather(*(self._charge_ahead(*one) for one in amounts.all))

    async def charge_reported(self, reported: Sequence[tuple[Terms, int]]) -> None:
        """Charge what was used beyond what was charged ahead; give back what was not.

        That is at most what a counter can hold: what was used before that has come back meanwhile.
        """
        amounts = _Amounts()
        for terms, amount in reported:
            if terms.is_shared:
                amounts.add(terms, amount)
        await asyncio.gather(
            *(
                self._charge(terms, amount) if amount > 0 else self._give_back(terms, -amount)
                for terms, amount in amounts.all
            )
        )

    def left(self, counter: SharedCounter, now_ns: int) -> Fraction:
        """The part of *counter* that is for gateways."""
        least = Fraction(1)
        for part in counter.parts.values():
            for binding in part.terms.bindings:
                left, at_ns = self._left.get(
                    (binding.check.group, binding.check.key), (Fraction(1), now_ns)
                )
                if now_ns - at_ns <= _MEMORY_NS:
                    least = min(least, left)
        return least

    async def _charge_ahead(self, terms: Terms, amount: int) -> None:
        """Charge *amount* requests, and note what is left."""
        exact = terms.bindings
        checks = tuple(_times(one.check, amount) for one in exact)
        outcomes = await self._told(Charge(checks))
        self._note_own(checks, 1)
        for binding, check, outcome in zip(exact, checks, outcomes, strict=False):
            least = LEAST_OF_OTHERS
            if binding is terms.bindings[0]:
                least = LEAST if self._has_others(check, outcome) else LEAST_ALONE
            self._note(binding, check, outcome, least)

    async def _charge(self, terms: Terms, amount: int) -> None:
        checks = [_times(one.check, amount) for one in terms.bindings]
        held = [replace(one, cost=min(one.cost, one.limit.quota)) for one in checks]
        await self._told(Charge(tuple(held)))
        self._note_own(held, 1)

    async def _give_back(self, terms: Terms, amount: int) -> None:
        checks = tuple(_times(one.check, amount) for one in terms.bindings)
        await self._told(Refund(checks))
        self._note_own(checks, -1)

    def _note_own(self, checks: Iterable[Check], sign: int) -> None:
        for check in checks:
            others = self._others.get((check.group, check.key))
            if others is not None:
                others.charged(sign * check.cost)

    async def _told(self, operation: Charge | Refund) -> Outcomes:
        """What the store says to *operation*; nothing if there is nothing to tell it, or it is
        gone."""
        if not operation.checks:
            return ()
        try:
            return await self._store.arun(operation)
        except StoreError:
            return ()

    def _note(self, binding: Binding, check: Check, outcome: Outcome, least: Fraction) -> None:
        place = (check.group, check.key)
        left = part_left(
            binding, outcome, charged=check.cost, usage=self._usage.get(place, 0), least=least
        )
        if len(self._left) >= _MOST_KNOWN and place not in self._left:
            forgotten = next(iter(self._left))
            del self._left[forgotten]
            self._others.pop(forgotten, None)
        before, at_ns = self._left.get(place, (Fraction(1), self._now_ns))
        weight = min(Fraction(self._now_ns - at_ns, _SMOOTHING_NS), Fraction(1))
        smoothed = (before + (left - before) * weight).limit_denominator(_FINEST)
        self._left[place] = (smoothed, self._now_ns)

    def _has_others(self, check: Check, outcome: Outcome) -> bool:
        """Whether anybody but gateways uses the counter of *check*, which said *outcome*; of
        windows that is not known."""
        if not isinstance(check.limit, PacedLimit):
            return True
        place = (check.group, check.key)
        others = self._others.setdefault(place, Others())
        elsewhere = self._elsewhere.get(place, 0)
        others.look(check.limit, outcome, self._now_ns, elsewhere=elsewhere)
        return others.are_there(self._now_ns)


class _Amounts:
    """Amounts for the same counters, added up."""

    def __init__(self) -> None:
        self._by_place: dict[object, tuple[Terms, int]] = {}

    def add(self, terms: Terms, amount: int) -> None:
        if amount:
            places = terms.places
            _, before = self._by_place.get(places, (terms, 0))
            self._by_place[places] = (terms, before + amount)

    @property
    def all(self) -> list[tuple[Terms, int]]:
        return [(terms, amount) for terms, amount in self._by_place.values() if amount]


def _times(check: Check, amount: int) -> Check:
    """*check* for so many requests."""
    return replace(check, cost=min(check.cost * amount, LARGEST_AMOUNT))
