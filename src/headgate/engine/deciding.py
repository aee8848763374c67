"""What both shells of a runner have in common: what is decided in this process, without waiting.

That is what the store decides at once, and what this process decides itself while the store is
gone.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from headgate.engine.holds import Held, charged_rules, turns_of
from headgate.engine.verdict import (
    repeated,
    verdict_of,
    verdict_on_each,
    verdict_on_one,
    verdict_unasked,
    verdict_without_store,
)
from headgate.errors import StoreError
from headgate.runtime.fallback import HERE, Asked, fallback_of
from headgate.stores.base import concluded
from headgate.stores.factory import adopt_terms, guard_of
from headgate.stores.operations import CancelQueued, Check, ReleaseSlot, RenewSlot, Take, source_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headgate.decision import Decision
    from headgate.engine.holds import Holding, Owed
    from headgate.engine.plan import Plan, RulePlan
    from headgate.engine.verdict import Verdict
    from headgate.limits import Limit
    from headgate.stores.base import AsyncStore, Hitter, Store, Terms
    from headgate.stores.operations import Outcomes


# The quick way of a store that has one, for requests that only one limit is for.


MOST: Final = 4096
"""How many are kept: policies change, and limits may depend on the caller."""


class ShortCuts:
    """What `Store.hitter` gave, by counter and limit, asked for once."""

    __slots__ = ("_known", "_lately")

    def __init__(self) -> None:
        self._known: dict[tuple[str, Limit], Hitter | None] = {}
        # By the identity of the limit, which is kept with it: to hash one takes longer than a hit.
        self._lately: dict[tuple[str, int], tuple[Limit, Hitter | None]] = {}

    def to(self, store: Store | AsyncStore, check: Check) -> Hitter | None:
        """The short cut of *store* for *check*; None if it has none."""
        found = self._lately.get((check.group, id(check.limit)))
        return self._find(store, check) if found is None else found[1]

    def _find(self, store: Store | AsyncStore, check: Check) -> Hitter | None:
        place = check.group, check.limit
        if max(len(self._known), len(self._lately)) >= MOST:
            self._known.clear()
            self._lately.clear()
        if place not in self._known:
            self._known[place] = store.hitter((place,))
        hitter = self._known[place]
        self._lately[check.group, id(check.limit)] = check.limit, hitter
        return hitter


if TYPE_CHECKING:
    Heard = tuple[Holding, Outcomes | StoreError, frozenset[str]]
    """A holding, what came of it, and which of its rules had seen the request before."""


class Deciding:
    """What decides while *store* is gone; and the quick ways of that."""

    def __init__(self, store: Store | AsyncStore) -> None:
        self.fallback = fallback_of(store, getattr(store, "clock", None), guard_of(store))
        """The counters of this process: whoever else decides without the store uses them too."""
        self._served = store
        self._short_cuts = ShortCuts()

    def adopt(self, terms: Terms) -> None:
        """From now on have the counters of a policy kept as *terms* say."""
        adopt_terms(self._served, self, terms)
        self._short_cuts = ShortCuts()  # they may lead elsewhere now

    def _without_store(
        self, plan: Plan, error: StoreError, *, consume: bool, is_owed: bool = True
    ) -> Verdict:
        """The store could not decide: each rule does what it says for that, in this process.

        All or nothing, as ever: if a rule refuses, the others are only looked at.
        """
        asked = [_asked(one) for one in plan.deciding]
        decisions = self.fallback.decide(
            asked, error, consume=consume, lease=plan.lease, is_owed=is_owed
        )
        by_rule = {one.rule.id: said for one, said in zip(plan.deciding, decisions, strict=True)}
        verdict = verdict_without_store(plan, by_rule)
        if not consume or not verdict.allowed or plan.lease is None:
            return verdict
        slots = [check for one in plan.deciding for check in _asked(one, one.slots).shared]
        return replace(
            verdict, local_slots=ReleaseSlot(tuple(slots), plan.lease) if slots else None
        )

    def _decide_on(self, store: Store, plan: Plan, *, consume: bool) -> Verdict:
        """Ask *store*, which does not mind that it blocks."""
        if consume and plan.is_plain:
            verdict = self._decide_quickly(store, plan)
            if verdict is None:
                verdict = self._take_quickly(store, plan)
            if verdict is not None:
                return verdict
        unasked = verdict_unasked(plan)
        if unasked is not None:
            return unasked
        try:
            replies = store.run(plan.operation(consume=consume))
            seen = repeated(plan, replies)
            if seen:
                others = store.run(plan.again(seen, consume=consume))
                replies = (*others, *replies[1:])
            verdict = verdict_of(plan, replies, consumed=consume, without=seen)
        except StoreError as error:
            return self._without_store(plan, error, consume=consume)
        if self.fallback.wants_word:
            self.fallback.succeed()
        return verdict

    def _decide_quickly(self, store: Store | AsyncStore, plan: Plan) -> Verdict | None:
        """The verdict, if the short cut of *store* can give it."""
        check = plan.only_check
        hit = None if check is None else self._short_cuts.to(store, check)
        if check is None or hit is None:
            return None
        try:
            decision = hit(check.key, check.cost)
        except StoreError as error:
            return self._without_store(plan, error, consume=True)
        if self.fallback.wants_word:
            self.fallback.succeed()
        return verdict_on_one(plan, decision)

    def _take_quickly(self, store: Store, plan: Plan) -> Verdict | None:
        """The verdict on several limits, if *store* can give it quickly."""
        try:
            taken: Iterable[Decision] | None = ()
            if plan.deciding:
                checks = [check for one in plan.deciding for check in one.checks]
                taken = store.take_quickly(checks)
            if taken is None:
                return None
            if plan.shadows:
                taken = _with_shadows(store, plan, taken)
            verdict = verdict_on_each(plan, taken)
        except StoreError as error:
            return self._without_store(plan, error, consume=True)
        if self.fallback.wants_word:
            self.fallback.succeed()
        return verdict

    def _take_at_once(self, store: AsyncStore, plan: Plan) -> Verdict | None:
        """The verdict on several limits, if *store* can give it without being waited for."""
        if not plan.is_plain or plan.shadows or not plan.deciding:
            return None
        try:
            taken = store.take_quickly([check for one in plan.deciding for check in one.checks])
        except StoreError as error:
            return self._without_store(plan, error, consume=True)
        return None if taken is None else verdict_on_each(plan, taken)

    def _reserved(
        self, plan: Plan, name: str, heard: Iterable[Heard]
    ) -> tuple[Verdict, Held | None]:
        """The verdict, and what is held under *name*, from what was *heard* of each holding."""
        replies: list[Outcomes | StoreError] = []
        left: list[RulePlan] = []
        seen: frozenset[str] = frozenset()
        for one, reply, repeated_by in heard:
            seen |= repeated_by
            if seen.issuperset(each.rule.id for each in one.rules):
                continue
            replies.append(reply)
            if not isinstance(reply, StoreError) and all(each.allowed for each in reply):
                left += one.left_open
        try:
            verdict = verdict_of(plan, replies, without=seen)
        except StoreError as error:
            verdict = self._without_reservation(plan, error)
            left = plan.left_open
        return verdict, Held(name, tuple(left)) if left else None

    def _without_reservation(self, plan: Plan, error: StoreError) -> Verdict:
        """As `_without_store`. What is to be settled afterwards the store is told then."""
        verdict = self._without_store(plan, error, consume=True, is_owed=False)
        if verdict.allowed:
            for one in plan.deciding:
                if one.rule.id not in plan.open:
                    self.fallback.owe(_asked(one), error)
        return verdict

    def _release_here(self, verdict: Verdict) -> None:
        if verdict.local_slots is not None:
            self.fallback.local.run(verdict.local_slots)

    def _renew_here(self, verdict: Verdict) -> bool:
        slots = verdict.local_slots
        return slots is None or self.fallback.local.run(RenewSlot(slots.checks, slots.lease))

    def _vacate_here(self, verdict: Verdict) -> None:
        for one, check, turn_ns in turns_of(verdict, charged_rules(verdict, HERE)):
            shared = _asked(one, (check,)).shared
            self.fallback.local.run(CancelQueued(tuple(shared), (turn_ns,)))

    def _refund_here(self, verdict: Verdict) -> None:
        settled = {} if verdict.held is None else verdict.held.corrected or {}
        for one in charged_rules(verdict, HERE):
            amount = settled.get(one.rule.id, one.cost)
            if amount:
                self.fallback.give_back(_costing(one, amount, one.amounts))

    def _charge_here(self, owed: Owed, error: StoreError) -> Owed:
        """Charge in this process, where they are decided now, the rules that are not closed; of
        what is *owed* that is left, which nobody is told."""
        left = []
        for one, more in owed:
            asked = _costing(one, more)
            if not more or not asked.checks:
                continue
            if self.fallback.charge(asked, error).source == "fail_closed":
                left.append((one, more))
        return left

    def _correct_here(
        self, verdict: Verdict, amounts: Mapping[str, int], error: StoreError | None
    ) -> None:
        """What was decided here by an estimate was charged here at once; make it right. If the
        store could not be told because of *error*, it will be told with all the rest."""
        held = verdict.held
        if held is None or held.corrected is not None:
            return
        held.corrected = amounts
        here = held.decided_in(verdict, HERE)
        for one in here:
            amount = amounts[one.rule.id]
            self.fallback.correct(_asked(one, one.amounts), amount - one.cost)
            if error is not None:
                self.fallback.owe(_costing(one, amount, one.amounts), error)
        if error is not None and error.is_undone:
            held.owed = frozenset(one.rule.id for one in here)


def _asked(one: RulePlan, checks: tuple[Check, ...] | None = None) -> Asked:
    return Asked(one.checks if checks is None else checks, one.rule.on_failure)


def _costing(one: RulePlan, amount: int, checks: tuple[Check, ...] | None = None) -> Asked:
    rates = one.rates if checks is None else checks
    return _asked(one, tuple([Check(c.group, c.key, c.limit, amount) for c in rates]))


def _with_shadows(store: Store, plan: Plan, taken: Iterable[Decision]) -> Iterator[Decision]:
    """The decision of each check in the order of the rules: *taken* is what those that decide came
    to; each shadow is a take of its own."""
    left = iter(taken)
    for one in plan.rules:
        if one.rule.mode == "enforce":
            yield from islice(left, len(one.checks))
            continue
        quick = store.take_quickly(one.checks)
        if quick is None:
            outcomes = store.run(Take(one.checks))
            for check, outcome in zip(one.checks, outcomes, strict=True):
                yield concluded(check.key, check.limit, outcome, source_of(outcome))
        else:
            yield from quick
