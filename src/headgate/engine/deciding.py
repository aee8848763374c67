"""What both shells of a runner have in common: what is decided in this process, without waiting.

That is what the store decides at once, and what this process decides itself while the store is
gone.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from headgate.engine.afterwards import charge_of
from headgate.engine.conclusion import (
    repeated,
    verdict_of,
    verdict_on_each,
    verdict_on_one,
    verdict_unasked,
    verdict_without_store,
)
from headgate.engine.holding import Held
from headgate.engine.short_cuts import ShortCuts
from headgate.engine.undoing import refund_of
from headgate.errors import StoreError
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import Take
from headgate.stores.port import conclude, concluded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headgate.clock import Clock
    from headgate.decisions import Decision
    from headgate.engine.afterwards import Owed
    from headgate.engine.holding import Holding
    from headgate.engine.plan import Plan, RulePlan
    from headgate.engine.verdict import Verdict
    from headgate.stores.operations import Outcomes
    from headgate.stores.port import AsyncStore, Store

    Heard = tuple[Holding, Outcomes | StoreError, frozenset[str]]
    """A holding, what came of it, and which of its rules had seen the request before."""


class Deciding:
    """The store of this process, for rules that are `local` while the other one is gone; and the
    quick ways of that other one."""

    def __init__(self, clock: Clock | None) -> None:
        self.local = MemoryStore(clock=clock)
        """The counters of this process: whoever else decides without the store uses them too."""
        self._short_cuts = ShortCuts()

    def _without_store(self, plan: Plan, *, consume: bool) -> Verdict:
        """The store could not decide: rules that are `local` are decided here, in full.

        All or nothing, as ever: if another rule refuses, they are only looked at.
        """
        locals_ = [one for one in plan.deciding if one.rule.on_store_failure == "local"]
        is_open = all(one.rule.on_store_failure != "fail_closed" for one in plan.deciding)
        local: dict[str, Decision] = {}
        checks = tuple(check for one in locals_ for check in one.checks)
        if checks:
            take = Take(checks, consume=consume and is_open, lease=plan.lease)
            told = self.local.run(take)
            outcomes = iter(told)
            for one in locals_:
                own = tuple(next(outcomes) for _ in one.checks)
                local[one.rule.id] = conclude(one.checks, own, source="local")
        verdict = verdict_without_store(plan, local)
        if not consume or not verdict.allowed:
            return verdict
        return replace(verdict, local_slots=plan.leaving(locals_))

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
            return verdict_of(plan, replies, consumed=consume, without=seen)
        except StoreError:
            return self._without_store(plan, consume=consume)

    def _decide_quickly(self, store: Store | AsyncStore, plan: Plan) -> Verdict | None:
        """The verdict, if the short cut of *store* can give it."""
        check = plan.only_check
        hit = None if check is None else self._short_cuts.to(store, check)
        if check is None or hit is None:
            return None
        try:
            return verdict_on_one(plan, hit(check.key, check.cost))
        except StoreError:
            return self._without_store(plan, consume=True)

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
            return verdict_on_each(plan, taken)
        except StoreError:
            return self._without_store(plan, consume=True)

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
        except StoreError:
            verdict = self._without_store(plan, consume=True)
            left = plan.left_open
        return verdict, Held(name, tuple(left)) if left else None

    def _release_here(self, verdict: Verdict) -> None:
        if verdict.local_slots is not None:
            self.local.run(verdict.local_slots)

    def _refund_here(self, verdict: Verdict) -> None:
        here = refund_of(verdict, "local")
        if here is not None:
            self.local.run(here)

    def _charge_here(self, owed: Owed) -> Owed:
        """Charge in this process, where they are decided now, the rules that are `local`; of what
        is *owed* that is left, which nobody is told."""
        charge = charge_of([each for each in owed if each[0].rule.on_store_failure == "local"])
        if charge is not None:
            self.local.run(charge)
        return [each for each in owed if each[0].rule.on_store_failure != "local"]

    def _correct_here(self, verdict: Verdict, amounts: Mapping[str, int]) -> None:
        """What was decided here by an estimate was charged here at once."""
        held = verdict.held
        here = {one.rule.id for one in verdict.enforced if one.decision.source == "local"}
        if here and held is not None and not held.is_corrected:
            held.is_corrected = True
            for step in held.correction(amounts, here):
                self.local.run(step)


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
                yield concluded(check.key, check.limit, outcome)
        else:
            yield from quick
