"""The common part of both runners: prepared takes, and decisions while the store is gone."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from headgate.engine.holds import Held, charged_rules, turns_of
from headgate.engine.verdict import (
    repeated,
    verdict_of,
    verdict_on_each,
    verdict_unasked,
    verdict_without_store,
)
from headgate.errors import StoreError
from headgate.runtime.fallback import HERE, Asked, fallback_of
from headgate.stores.base import concluded
from headgate.stores.factory import health_of, set_accuracies
from headgate.stores.operations import CancelQueued, Check, ReleaseSlot, RenewSlot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headgate.decision import Decision
    from headgate.engine.holds import Holding, Owed
    from headgate.engine.plan import Plan, RulePlan
    from headgate.engine.verdict import Verdict
    from headgate.stores.base import Accuracies, Place, Prepared, Store
    from headgate.stores.operations import Outcomes


MOST: Final = 4096
"""Prepared takes that are kept: policies change, and limits may depend on the caller."""


class PreparedTakes:
    """The prepared takes of *store*, by their groups and limits."""

    __slots__ = ("_known", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store
        # By the identity of the limits, which are kept too: to hash one takes longer than a hit.
        self._known: dict[tuple[tuple[str, int], ...], tuple[list[Place], Prepared]] = {}

    def of(self, checks: Sequence[Check]) -> Prepared:
        """The prepared take for checks like *checks*."""
        places = tuple([(check.group, id(check.limit)) for check in checks])
        found = self._known.get(places)
        if found is None:
            if len(self._known) >= MOST:
                self._known.clear()
            kept = [(check.group, check.limit) for check in checks]
            found = self._known[places] = kept, self._store.prepare(kept)
        return found[1]

    def take(self, checks: Sequence[Check]) -> list[Decision]:
        """Take *checks*, all or nothing; the decision of each. May block."""
        keys, costs = [check.key for check in checks], [check.cost for check in checks]
        return decisions_of(checks, self.of(checks).take(keys, costs))

    async def atake(self, checks: Sequence[Check]) -> list[Decision]:
        """Take *checks* in an event loop."""
        keys, costs = [check.key for check in checks], [check.cost for check in checks]
        answer = self.of(checks).atake(keys, costs)
        outcomes = answer if isinstance(answer, tuple) else await answer
        return decisions_of(checks, outcomes)


def decisions_of(checks: Sequence[Check], outcomes: Outcomes) -> list[Decision]:
    """The decision that each outcome is."""
    pairs = zip(checks, outcomes, strict=True)
    return [concluded(check.key, check.limit, outcome) for check, outcome in pairs]


if TYPE_CHECKING:
    Heard = tuple[Holding, Outcomes | StoreError, frozenset[str]]
    """A holding, what came of it, and which of its rules had seen the request before."""


class Deciding:
    """What decides while *store* is gone; and the quick ways of that."""

    def __init__(self, store: Store) -> None:
        self.fallback = fallback_of(store, store.clock, health_of(store))
        """The counters of this process: whoever else decides without the store uses them too."""
        self._served = store
        self._takes = PreparedTakes(store)

    def adopt(self, terms: Accuracies) -> None:
        """From now on have the counters of a policy kept as *terms* say."""
        set_accuracies(self._served, self, terms)

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
        """Decide by *store*, which may block."""
        if consume and plan.is_plain and not (plan.shadows and store.waits):
            return self._decide_plainly(plan)
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
        return self._succeeded(verdict)

    def _decide_plainly(self, plan: Plan) -> Verdict:
        """The verdict of a plan without holds, slots and repetitions, by prepared takes."""
        try:
            taken = self._takes.take(plan.deciding_checks) if plan.deciding else []
            if plan.shadows:
                shadows = [self._takes.take(one.checks) for one in plan.shadows]
                taken = _with_shadows(plan, taken, shadows)
        except StoreError as error:
            return self._without_store(plan, error, consume=True)
        return self._succeeded(verdict_on_each(plan, taken))

    async def _adecide_plainly(self, plan: Plan) -> Verdict:
        """Do what `_decide_plainly` does, in an event loop and without shadow rules."""
        try:
            taken = await self._takes.atake(plan.deciding_checks)
        except StoreError as error:
            return self._without_store(plan, error, consume=True)
        return self._succeeded(verdict_on_each(plan, taken))

    def _succeeded(self, verdict: Verdict) -> Verdict:
        if self.fallback.wants_word:
            self.fallback.succeed()
        return verdict

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


def _with_shadows(
    plan: Plan, taken: Iterable[Decision], shadows: Iterable[list[Decision]]
) -> list[Decision]:
    """All decisions in the order of the rules; *taken* are of those that decide."""
    left, beside = iter(taken), iter(shadows)
    decisions: list[Decision] = []
    for one in plan.rules:
        if one.rule.mode == "enforce":
            decisions += islice(left, len(one.checks))
        else:
            decisions += next(beside)
    return decisions
