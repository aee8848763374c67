"""Costs that are known only afterwards: hold the amounts, and settle them later. No I/O.

What the deciding rules charge by an estimate is one `Hold`; what they charge in any case, places
under concurrency limits and turns in queues are one `Take` after it. Each is all or nothing, and if
the second refuses, the first is given back; so together they are too. Each rule in shadow has a
hold of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headgate.errors import SettledError
from headgate.stores.operations import Check, Hold, Leave, Refund, Settle, Take
from headgate.stores.port import checked_cost

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from headgate.engine.plan import Plan, RulePlan
    from headgate.engine.verdict import Verdict
    from headgate.stores.operations import Outcomes


class Once:
    """Something that may be done once; by one thread, if several try."""

    __slots__ = ("_chances",)

    def __init__(self) -> None:
        self._chances = [True]

    @property
    def is_done(self) -> bool:
        return not self._chances

    def begin(self) -> bool:
        """Whether it is to be done now, as it was not before."""
        try:
            self._chances.pop()
        except IndexError:
            return False
        return True

    def do(self, what: str) -> None:
        """Raise `SettledError` that says *what* if it was done before."""
        if not self.begin():
            raise SettledError(what)

    def undo(self) -> None:
        """It could not be done after all, and may be tried again."""
        self._chances.append(True)


@dataclass(slots=True)
class Held:
    """What is set aside under *name* for *rules*, to be settled once.

    *settled* is what it was settled for, by rule, as far as the store was told; *corrected* the
    same of what this process had decided itself; *owed* those rules of which it tells the store
    later, by itself.
    """

    name: str
    rules: tuple[RulePlan, ...]
    once: Once = field(default_factory=Once, repr=False, compare=False)
    settled: Mapping[str, int] | None = field(default=None, repr=False, compare=False)
    corrected: Mapping[str, int] | None = field(default=None, repr=False, compare=False)
    owed: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    @property
    def ids(self) -> list[str]:
        """The ids of the rules."""
        return [one.rule.id for one in self.rules]

    @property
    def is_empty(self) -> bool:
        """Whether nothing was asked for, so that the store knows nothing of it."""
        return not any(one.cost for one in self.rules)

    def amounts(self, said: Mapping[str, int]) -> dict[str, int]:
        """What each rule is settled for: what is *said*, by id, or what was held. A candidate is
        for what is said of the rule that it is tried beside."""
        for rule, amount in said.items():
            checked_cost(amount, f"the actual cost under {rule!r}")
        return {
            one.rule.id: said.get(one.rule.id, said.get(one.rule.candidate_of or "", one.cost))
            for one in self.rules
        }

    def settle(self, amounts: Mapping[str, int], without: Collection[str] = ()) -> Settle:
        """What settles each rule, but for those in *without*, for its amount. A hold that has
        lapsed is charged all the same."""
        rules = [one for one in self.rules if one.rule.id not in without]
        return Settle(_checks(rules, amounts), self.name, charge_lapsed=True)

    def decided_in(self, verdict: Verdict, sources: frozenset[str]) -> list[RulePlan]:
        """Those of the rules that decided by one of *sources*."""
        found = {one.rule.id for one in verdict.enforced if one.decision.source in sources}
        return [one for one in self.rules if one.rule.id in found]

    @property
    def give_back(self) -> Settle:
        """What undoes it."""
        return self.settle(dict.fromkeys(self.ids, 0))

    def end(self) -> Settle | Refund | None:
        """What gives everything back, settled or not; it cannot be settled after that."""
        if not self.once.is_done:
            self.once.do("it was settled meanwhile")
            return self.give_back
        if not self.settled or not any(self.settled.values()):
            return None
        return Refund(_checks(self.rules, self.settled))


@dataclass(frozen=True, slots=True)
class Holding:
    """How one take of a *plan*, that of *rules*, is held under *name*."""

    plan: Plan
    rules: tuple[RulePlan, ...]
    name: str

    @property
    def left_open(self) -> tuple[RulePlan, ...]:
        """The rules that are to be settled afterwards."""
        return tuple(one for one in self.rules if one.rule.id in self.plan.open and one.amounts)

    def hold(self, ttl_ns: int) -> Hold | None:
        """What to ask first; None if nothing is to be held."""
        checks = tuple(check for one in self.left_open for check in one.amounts)
        return Hold(checks, self.name, ttl_ns) if checks else None

    def take(self, *, consume: bool) -> Take | None:
        """What to ask next; None if everything is held."""
        checks = [check for one in self.rules for check in self._taken(one)]
        markers = [one.marker for one in self.rules if one.marker is not None]
        lease = self.plan.lease if consume else None
        return Take((*checks, *markers), consume=consume, lease=lease) if checks else None

    def seen(self, taken: Outcomes) -> frozenset[str]:
        """The ids of the rules that have been charged for the request before."""
        marked = [one for one in self.rules if one.marker is not None]
        outcomes = taken[len(taken) - len(marked) :]
        pairs = zip(marked, outcomes, strict=True)
        return frozenset(one.rule.id for one, outcome in pairs if not outcome.allowed)

    def without(self, seen: Collection[str]) -> Holding:
        """The same for the rules that have not."""
        left = tuple(one for one in self.rules if one.rule.id not in seen)
        return replace(self, rules=left)

    def look(self) -> Take:
        """What to ask for the figures of what is held no longer."""
        return Take(tuple(check for one in self.left_open for check in one.amounts), consume=False)

    def undo(self) -> list[Settle | Leave]:
        """What gives back what was held, and what may have been taken, if nobody knows."""
        held = Held(self.name, self.left_open)
        steps: list[Settle | Leave] = []
        if held.rules:
            steps.append(held.give_back)
        leaving = self.plan.leaving(self.rules)
        return steps if leaving is None else [*steps, leaving]

    def outcomes(self, held: Outcomes, taken: Outcomes) -> Outcomes:
        """What each check came to, in their order."""
        first, second = iter(held), iter(taken)
        found = []
        for one in self.rules:
            others = self._taken(one)
            found += [next(second) if check in others else next(first) for check in one.checks]
        return tuple(found)

    def _taken(self, one: RulePlan) -> tuple[Check, ...]:
        """What of a rule is not held: of one whose amount is known everything."""
        if one.rule.id not in self.plan.open:
            return one.checks
        held = one.amounts
        return tuple(check for check in one.checks if check not in held)


def holdings(plan: Plan, name: str) -> Iterator[Holding]:
    """The takes of *plan*: that of the rules that decide, if there are any, then each shadow."""
    if plan.deciding:
        yield Holding(plan, plan.deciding, name)
    for one in plan.shadows:
        yield Holding(plan, (one,), name)


def _checks(rules: Iterable[RulePlan], amounts: Mapping[str, int]) -> tuple[Check, ...]:
    return tuple(
        Check(check.group, check.key, check.limit, amounts[one.rule.id])
        for one in rules
        for check in one.amounts
    )
