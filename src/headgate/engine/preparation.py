"""What of a rule is the same for all requests, made once: its counters, its key, its cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.engine.plan import Queueing, RulePlan, checks_on, groups_of, marker_of
from headgate.engine.softening import Scale, Softening
from headgate.limits import EXACT, Concurrency, LeakyQueue
from headgate.rules.matching import cost_of, normalised_path
from headgate.stores.operations import Check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.engine.overriding import Overrides
    from headgate.identity import Found, Identifier
    from headgate.limits import Accuracy, Limit
    from headgate.rules.model import Rule
    from headgate.rules.request import Request
    from headgate.rules.soft import Priority

REMEMBERED: Final = 1024
"""Of how many endpoints it is remembered what they cost."""

LONGEST_REMEMBERED: Final = 256
"""What longer paths cost is found anew, so that what is remembered stays small."""

_new: Final = object.__new__


class Layout(NamedTuple):
    """The *limits* of a rule for some callers, and the groups of their counters."""

    limits: tuple[Limit, ...]
    groups: tuple[str, ...]
    has_slots: bool
    has_turns: bool


class PreparedRule:
    """How *rule* is asked about requests."""

    __slots__ = (
        "_by_tier",
        "_cost",
        "_costs",
        "_for_all",
        "_key_of",
        "_namespace",
        "_softening",
        "has_slots",
        "rule",
    )

    def __init__(
        self, rule: Rule, identifier: Identifier, namespace: str, scale: Scale | None = None
    ) -> None:
        self.rule = rule
        self._softening = Softening(rule, scale or Scale()) if Softening.concerns(rule) else None
        self._namespace = namespace
        self._key_of = identifier.prepare(rule)
        self._by_tier = {tier: self._layout(limits) for tier, limits in rule.limits.items()}
        self._for_all = self._for_tier(None) if len(self._by_tier) == 1 else None
        by_header, by_endpoint = rule.cost.header is not None, bool(rule.cost.endpoints)
        self._cost = None if by_header or by_endpoint else rule.cost.default
        self._costs: dict[tuple[str, str], int] | None = None if by_header else {}
        self.has_slots = any(layout.has_slots for layout in self._by_tier.values())
        """Whether some callers take a place for a while."""

    def terms(self) -> Iterator[tuple[str, Accuracy]]:
        """How exactly its counters are kept, by group, where that is not exactly, by asking and in
        this region alone; not where there are places, nor for what tells repeated requests."""
        accuracy = self.rule.accuracy
        if self.rule.across_regions:
            accuracy = replace(accuracy, across_regions=True)
        if accuracy == EXACT:
            return
        pairs = [
            pair
            for one in self._by_tier.values()
            for pair in zip(one.groups, one.limits, strict=True)
        ]
        slots = {group for group, limit in pairs if isinstance(limit, Concurrency)}
        for group, _ in pairs:
            if group not in slots:
                yield group, accuracy

    def plan(
        self,
        found: Found,
        cost: int | None,
        overrides: Overrides | None,
        priority: Priority = "default",
    ) -> RulePlan | None:
        """What to ask about the request that *found* is of; None if the rule does not apply.

        *cost* takes the place of what the rule says. *priority* is the class of the request.
        """
        layout = self._for_all
        if layout is None:
            layout = self._for_tier(found["tier"])
            if layout is None:
                return None
        request, rule = found.request, self.rule
        key = self._key_of(request, found)
        if key is None:
            return None
        if cost is None:
            cost = self._cost
            if cost is None:
                cost = self._cost_of(request)
        block = None
        if overrides is not None:
            limits, block = overrides.apply(rule, key, layout.limits)
            layout = layout if limits is layout.limits else self._layout(limits)
        sheds = False
        if self._softening is not None:
            limits, sheds = self._softening.limits(layout.limits, found, priority)
            layout = layout._replace(limits=limits)
            sheds = sheds and block is None  # who is blocked is so whatever the capacity
        limits, groups, has_slots, has_turns = layout
        marker = None
        if rule.idempotency is not None and not has_turns:
            marker = marker_of(rule, found, key, cost, self._namespace)
        if len(groups) > 1 or has_slots:
            checks = checks_on(zip(groups, limits, strict=True), key, cost)
            return RulePlan(rule, key, cost, limits, checks, marker, block, sheds)
        # Both are filled in by hand, as an `__init__` takes longer than all that it does.
        check = _new(Check)
        check.group, check.key, check.limit, check.cost = groups[0], key, limits[0], cost
        plan = _new(RulePlan)
        plan.rule, plan.key, plan.cost, plan.limits = rule, key, cost, limits
        plan.checks, plan.marker, plan.block, plan.sheds = (check,), marker, block, sheds
        return plan

    def softened(self, limits: tuple[Limit, ...], found: Found) -> tuple[Limit, ...]:
        """What *limits* are now for the caller that *found* is, in a request that matters as most
        do."""
        if self._softening is None:
            return limits
        return self._softening.limits(limits, found, "default")[0]

    def queueing(self, found: Found, cost: int | None, priority: Priority) -> Queueing | None:
        """Whose turn a request under a rule with `fair` waits for; None if it does not apply."""
        rule, request = self.rule, found.request
        key = self._key_of(request, found)
        if rule.fair is None or key is None or rule.mode != "enforce":
            return None
        if cost is None:
            cost = self._cost if self._cost is not None else self._cost_of(request)
        weight, weights = 1, rule.fair.weights
        if weights:
            weight = weights.get(found["tier"]) or weights.get(None, 1)
        one = _new(Queueing)
        one.rule, one.key, one.weight, one.priority = rule, key, weight, priority
        one.cost = cost or 1
        return one

    def _cost_of(self, request: Request) -> int:
        """What *request* costs; remembered where only its path and its method matter."""
        known, path = self._costs, request.path
        if known is None or len(path) > LONGEST_REMEMBERED:
            return cost_of(self.rule.cost, request, normalised_path(path))
        place = path, request.method
        cost = known.get(place)
        if cost is None:
            if len(known) >= REMEMBERED:
                known.clear()
            cost = known[place] = cost_of(self.rule.cost, request, normalised_path(path))
        return cost

    def _for_tier(self, tier: str | None) -> Layout | None:
        layout = self._by_tier.get(tier) or self._by_tier.get(None)
        return layout if layout is not None and layout.limits else None

    def _layout(self, limits: tuple[Limit, ...]) -> Layout:
        has_slots = any(isinstance(limit, Concurrency) for limit in limits)
        has_turns = any(isinstance(limit, LeakyQueue) for limit in limits)
        groups = groups_of(self._namespace, self.rule.id, len(limits))
        return Layout(limits, groups, has_slots, has_turns)
