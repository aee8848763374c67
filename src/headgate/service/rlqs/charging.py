"""What gateways use, charged to the counters of exact rules; and what those say is left."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError
from headgate.limits.model import PacedLimit
from headgate.service.rlqs.pressure import (
    LEAST,
    LEAST_ALONE,
    LEAST_OF_OTHERS,
    Others,
    part_left,
)
from headgate.stores.operations import Charge, Refund
from headgate.stores.port import LARGEST_AMOUNT
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.algorithms import Outcome
    from headgate.service.rlqs.allowance import Binding
    from headgate.service.rlqs.shared import SharedCounter
    from headgate.service.rlqs.terms import Terms
    from headgate.stores.operations import Check, Outcomes
    from headgate.stores.port import AsyncStore

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

    def __init__(self, store: AsyncStore) -> None:
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
            return await self._store.run(operation)
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
