"""Costs that are known only afterwards: hold the amounts, and settle them later. No I/O.

The estimates of the deciding rules are one `Hold`, or two if some of them are charged when they
expire and others not; fixed costs, slots and places in queues are one `Take` after it. Each is all
or nothing, and if a later one denies, those before are given back; so together they are too. Each
shadow rule has a hold of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headgate.engine.plan import RulePlan, advance, marks_of
from headgate.engine.verdict import charged, is_here, is_in_store
from headgate.errors import SettledError
from headgate.limits import LeakyQueue
from headgate.stores.base import checked_cost
from headgate.stores.operations import (
    CancelQueued,
    Charge,
    Check,
    Hold,
    Refund,
    ReleaseSlot,
    Settle,
    Take,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from headgate.engine.plan import Plan, Stages
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

    def do(self, what: str) -> None:
        """Raise `SettledError` with the text *what* if it was done before."""
        try:
            self._chances.pop()
        except IndexError:
            raise SettledError(what) from None

    def undo(self) -> None:
        """Allow another attempt, as this one has failed."""
        self._chances.append(True)


@dataclass(slots=True)
class Held:
    """Amounts that are held under *name* for *rules*, to be settled once.

    *settled* has the amounts by rule that the store knows; *corrected* those of rules that this
    process has decided itself; *unreported* the rules that it reports to the store later.
    """

    name: str
    rules: tuple[RulePlan, ...]
    once: Once = field(default_factory=Once, repr=False, compare=False)
    settled: Mapping[str, int] | None = field(default=None, repr=False, compare=False)
    corrected: Mapping[str, int] | None = field(default=None, repr=False, compare=False)
    unreported: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    @property
    def ids(self) -> list[str]:
        """The ids of the rules."""
        return [one.rule.id for one in self.rules]

    @property
    def is_empty(self) -> bool:
        """True if the cost was 0, so that the store does not know the hold."""
        return not any(one.cost for one in self.rules)

    def amounts(self, actual: Mapping[str, int]) -> dict[str, int]:
        """The amount of each rule: that of *actual*, by id, or what was held. A candidate has the
        amount of the rule that it may replace."""
        for rule, amount in actual.items():
            checked_cost(amount, f"the actual cost under {rule!r}")
        return {
            one.rule.id: actual.get(one.rule.id, actual.get(one.rule.candidate_of or "", one.cost))
            for one in self.rules
        }

    def settle(self, amounts: Mapping[str, int], without: Collection[str] = ()) -> Settle:
        """The operation that settles each rule, except those in *without*, for its amount. A hold
        that has expired is charged all the same; if it was when it expired, that is corrected."""
        rules = [one for one in self.rules if one.rule.id not in without]
        return Settle(_checks(rules, amounts), self.name, charge_lapsed=True)

    def decided_here(self, verdict: Verdict) -> list[RulePlan]:
        """The rules that this process decided, as the store was gone."""
        found = {one.rule.id for one in verdict.enforced if is_here(one.decision.source)}
        return [one for one in self.rules if one.rule.id in found]

    @property
    def give_back(self) -> Settle:
        """The operation that cancels the hold."""
        return self.settle(dict.fromkeys(self.ids, 0))

    def end(self) -> Settle | Refund | None:
        """The operation that gives everything back, settled or not; the hold ends with it."""
        if not self.once.is_done:
            self.once.do("it was settled meanwhile")
            return self.give_back
        if not self.settled or not any(self.settled.values()):
            return None
        return Refund(_checks(self.rules, self.settled))


@dataclass(frozen=True, slots=True)
class Holding:
    """The hold under *name* of one take of a *plan*, that of *rules*."""

    plan: Plan
    rules: tuple[RulePlan, ...]
    name: str
    stages: Stages = field(default_factory=dict)
    """The stages of a repeated request."""

    @property
    def left_open(self) -> tuple[RulePlan, ...]:
        """The rules that are to be settled afterwards, in the order of `holds`."""
        found = [one for one in self.rules if one.rule.id in self.plan.open and one.amounts]
        return tuple(sorted(found, key=lambda one: one.rule.charges_expired))

    def holds(self, ttl_ns: int) -> list[Hold]:
        """The first operations: of what vanishes when it expires, and of what is charged then."""
        found = []
        for charges in (False, True):
            rules = [one for one in self.left_open if one.rule.charges_expired is charges]
            if rules:
                checks = tuple([check for one in rules for check in one.amounts])
                found.append(Hold(checks, self.name, ttl_ns, charges_expired=charges))
        return found

    def take(self, *, consume: bool) -> Take | None:
        """The next operation; None if everything is held."""
        checks = [check for one in self._paying for check in self._taken(one)]
        checks += marks_of(self.rules, self.stages)
        lease = self.plan.lease if consume else None
        return Take(tuple(checks), consume=consume, lease=lease) if checks else None

    def advance(self, taken: Outcomes) -> bool:
        """True if a counter of repeated requests denied the take: it is to be made again."""
        return advance(self.rules, self.stages, taken)

    def look(self) -> Take:
        """The peek for the figures of what is held no longer."""
        return Take(self._held, consume=False)

    def undo(self) -> list[Settle | ReleaseSlot]:
        """The operations that give back what was held, and slots that may have been taken."""
        held = Held(self.name, self.left_open)
        steps: list[Settle | ReleaseSlot] = []
        if held.rules:
            steps.append(held.give_back)
        leaving = self.plan.leaving(self.rules)
        return steps if leaving is None else [*steps, leaving]

    def outcomes(self, held: Outcomes, taken: Outcomes) -> Outcomes:
        """The outcome of each check, in their order."""
        by_check = {id(check): one for check, one in zip(self._held, held, strict=True)}
        others = iter(taken)
        checks = [check for one in self._paying for check in one.checks]
        return tuple([by_check.get(id(check)) or next(others) for check in checks])

    @property
    def _held(self) -> tuple[Check, ...]:
        return tuple([check for one in self.left_open for check in one.amounts])

    @property
    def _paying(self) -> list[RulePlan]:
        """The rules under which it is not a free retry."""
        return [one for one in self.rules if self.stages.get(one.rule.id) != "retry"]

    def _taken(self, one: RulePlan) -> tuple[Check, ...]:
        """The checks of a rule that are not held: all, if its cost is known."""
        if one.rule.id not in self.plan.open:
            return one.checks
        held = one.amounts
        return tuple([check for check in one.checks if check not in held])


def holdings(plan: Plan, name: str) -> Iterator[Holding]:
    """The takes of *plan*: that of the rules that decide, if there are any, then each shadow."""
    if plan.deciding:
        yield Holding(plan, plan.deciding, name)
    for one in plan.shadows:
        yield Holding(plan, (one,), name)


def _checks(rules: Iterable[RulePlan], amounts: Mapping[str, int]) -> tuple[Check, ...]:
    return tuple([check.with_cost(amounts[one.rule.id]) for one in rules for check in one.amounts])


ExtraCosts = Sequence[tuple[RulePlan, int]]
"""Rules, and how much more each is to be charged."""


def charged_after(rules: Iterable[RulePlan]) -> tuple[RulePlan, ...]:
    """The rules among *rules* that charge the cost of a request at its end."""
    return tuple([one for one in rules if one.rule.charges_after])


def allowing(rules: Iterable[RulePlan], verdict: Verdict) -> Iterator[RulePlan]:
    """The rules among *rules* that have allowed the request of *verdict*.

    If it is allowed, all that decide have; a shadow rule has if it would have. A rule that has seen
    the request before allowed it then, and what it costs this time is charged too.
    """
    denying = {one.rule.id for one in verdict.would_deny}
    for one in rules if verdict.allowed else ():
        if one.rule.id not in denying:
            yield one


def charge_of(costs: ExtraCosts) -> Charge | None:
    """The operation that charges *costs*, as debt if need be; None if it is nothing."""
    checks = [check.with_cost(more) for one, more in costs if more > 0 for check in one.rates]
    return Charge(tuple(checks)) if checks else None


def refund_of(verdict: Verdict) -> Refund | None:
    """The operation that refunds all that the rules of *verdict* charged in the store.

    The markers of repeated requests go too: a retry has to pay. If it was a free retry itself, it
    does not count as one. Slots are released, holds are settled, and places in queues are given up
    (`cancellation_of`).
    """
    held = () if verdict.held is None else verdict.held.ids
    planned = [one for one, _ in charged(verdict, is_in_store) if one.rule.id not in held]
    checks = [check for one in planned for check in one.amounts if check.cost]
    checks += [one.marker.once for one in planned if one.marker is not None]
    if verdict.allowed:
        pairs = zip(verdict.plan.rules, verdict.decisions, strict=True)
        free = [one.marker for one, decision in pairs if decision is None]
        checks += [marker.retries for marker in free if marker is not None]
    return Refund(tuple(checks)) if checks else None


def cancellation_of(verdict: Verdict) -> CancelQueued | None:
    """The operation that gives up the places of a request in queues; None if it has none."""
    found = list(places_of(verdict, is_in_store))
    if not found:
        return None
    return CancelQueued(
        tuple([check for _, check, _ in found]), tuple([place_ns for _, _, place_ns in found])
    )


def places_of(
    verdict: Verdict, is_meant: Callable[[str], bool]
) -> Iterator[tuple[RulePlan, Check, int]]:
    """The places of a request in queues that rules *is_meant* of granted: rule, queue and time."""
    for one, granted in charged(verdict, is_meant):
        for check, decision in zip(one.checks, granted.limits, strict=True):
            if isinstance(check.limit, LeakyQueue) and decision.place_ns:
                yield one, check, decision.place_ns
