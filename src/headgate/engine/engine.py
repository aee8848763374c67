"""From a request to a plan: which rules match, whose counters, which limits, what it costs.

An engine is made for one policy and never changes; a new policy has a new one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headgate.engine.caller import concerns_of
from headgate.engine.overriding import Overrides
from headgate.engine.plan import NOTHING_OPEN, Plan
from headgate.engine.preparation import PreparedRule
from headgate.identity import Identifier
from headgate.rules.matching import Matcher
from headgate.rules.matching.caller import CallerMatcher
from headgate.rules.matching.priorities import Classifier
from headgate.rules.soft import BY_PRIORITY
from headgate.stores.port import checked_cost

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.clock import Clock
    from headgate.engine.caller import Concern
    from headgate.engine.plan import RulePlan
    from headgate.engine.softening import Scale
    from headgate.identity import Found
    from headgate.rules.model import Policy, Rule
    from headgate.rules.request import Request
    from headgate.rules.soft import Priority
    from headgate.stores.port import Terms

Costs = int | Mapping[str, int] | None
"""What a request costs: for all rules, by the id of a rule, or as the rules say."""


class Engine:
    """The rules of *policy*, ready to be applied. Safe to share among threads.

    *salt* is what secrets are hashed with; *namespace* keeps the counters of different policies in
    one store apart. *clock* tells when overrides end: the system's if none is given. *scale* is
    what pressure has brought limits down to.
    """

    __slots__ = (
        "_caller_matcher",
        "_classifier",
        "_identifier",
        "_matcher",
        "_namespace",
        "_overrides",
        "_plans_by_class",
        "_prepared",
        "charges_after",
        "counts_endpoints",
        "has_slots",
        "policy",
        "terms",
    )

    def __init__(
        self,
        policy: Policy,
        *,
        salt: bytes = b"",
        namespace: str = "headgate",
        clock: Clock | None = None,
        scale: Scale | None = None,
    ) -> None:
        self.policy = policy
        self._namespace = namespace
        self._identifier = Identifier(policy.identity, salt=salt)
        self._matcher = Matcher(policy)
        prepared = [PreparedRule(rule, self._identifier, namespace, scale) for rule in policy.rules]
        self._classifier = Classifier(policy.priorities) if policy.priorities else None
        self._plans_by_class = bool(policy.priorities) and any(map(_goes_by_class, policy.rules))
        self._prepared = {one.rule.id: one for one in prepared}
        self.has_slots = any(one.has_slots for one in prepared)
        """Whether requests may take places for a while, for which they need a lease."""
        self.counts_endpoints = any("endpoint" in rule.key_by for rule in policy.rules)
        """Whether it matters which route of an app a request is for."""
        self.charges_after = any(rule.cost.after is not None for rule in policy.rules)
        """Whether some requests cost more when they are over than they took to enter."""
        self.terms: Terms = {group: how for one in prepared for group, how in one.terms()}
        """How exactly the counters of those rules are kept that say so, by group."""
        self._caller_matcher: CallerMatcher | None = None
        self._overrides: Overrides | None = None
        if policy.overrides:
            self._overrides = Overrides(policy, clock or time.time_ns)

    @property
    def identifier(self) -> Identifier:
        return self._identifier

    def matching(self, request: Request) -> tuple[Rule, ...]:
        """The rules that match, those that do not apply to the caller included."""
        return self._matcher.matching(request, self._identifier.find(request))

    def concerning(self, request: Request) -> tuple[Concern, ...]:
        """All that limits the caller who made *request*, whatever it asks: see `concerns_of`."""
        if self._caller_matcher is None:  # made for those who ask; by two threads at worst
            self._caller_matcher = CallerMatcher(self.policy.rules)
        return concerns_of(
            request,
            matcher=self._caller_matcher,
            identifier=self._identifier,
            namespace=self._namespace,
            overrides=self._overrides,
            soften=lambda rule, limits, found: self._prepared[rule.id].softened(limits, found),
        )

    def plan(
        self,
        request: Request,
        *,
        cost: Costs = None,
        lease: str | None = None,
        is_estimate: bool = False,
    ) -> Plan:
        """What is to be asked about *request*.

        *cost* takes the place of what the rules say, for all or by the id of a rule. *lease* names
        the slots that the request will take under concurrency limits. A cost that *is_estimate* is
        to be held, and settled later.
        """
        if cost is not None:
            _check_costs(cost)
        found = self._identifier.find(request)
        prepared, overrides = self._prepared, self._overrides
        priority: Priority = "default"
        if self._plans_by_class:
            priority = self._class_of(found)
        rules, queues = [], []
        has_slots = False
        for rule in self._matcher.matching(request, found):
            one = prepared[rule.id]
            own = cost if cost is None or isinstance(cost, int) else _named(cost, rule)
            if rule.fair is not None:
                queues.append(one.queueing(found, own, priority))
                continue
            planned = one.plan(found, own, overrides, priority)
            if planned is not None:
                rules.append(planned)
                has_slots = has_slots or (one.has_slots and planned.has_slots)
        open_ = _estimated(rules, cost) if is_estimate else NOTHING_OPEN
        lease = lease if has_slots else None
        if queues:
            turns = tuple([one for one in queues if one is not None])
            return Plan(self.policy.revision, tuple(rules), lease, open_, turns)
        return Plan(self.policy.revision, tuple(rules), lease, open_)

    def priority_of(self, request: Request) -> Priority:
        """How much *request* matters."""
        return self._class_of(self._identifier.find(request))

    def _class_of(self, found: Found) -> Priority:
        return "default" if self._classifier is None else self._classifier.of(found.request, found)

    def plan_of(self, rule_id: str, request: Request, cost: int | None = None) -> Plan:
        """What is to be asked about *request* under one rule, without asking whether it matches.

        For a gateway that has seen to that. *cost* takes the place of what the rule says. The plan
        is empty if there is no such rule, it is off, or it does not apply to the caller; and it has
        no lease, so no places can be taken with it.
        """
        if cost is not None:
            checked_cost(cost)
        one = self._prepared.get(rule_id)
        planned = None
        if one is not None and one.rule.mode != "off":
            found = self._identifier.find(request)
            priority = self._class_of(found) if self._plans_by_class else "default"
            planned = one.plan(found, cost, self._overrides, priority)
        return Plan(self.policy.revision, () if planned is None else (planned,))


def _goes_by_class(rule: Rule) -> bool:
    """Whether it matters under *rule* how much a request matters."""
    return bool(rule.reserve) or rule.fair is not None or rule.share_by == BY_PRIORITY


def _check_costs(cost: Costs) -> None:
    if isinstance(cost, Mapping):
        for rule, named in cost.items():
            checked_cost(named, f"the cost under {rule!r}")
    elif cost is not None:
        checked_cost(cost)


def _named(costs: Mapping[str, int], rule: Rule) -> int | None:
    """What *costs* says of *rule*; of a candidate what it says of the rule that it is tried
    beside, whose place it would have."""
    found = costs.get(rule.id)
    return costs.get(rule.candidate_of or "") if found is None else found


def _estimated(rules: Iterable[RulePlan], cost: Costs) -> frozenset[str]:
    """The rules whose cost is an estimate: those it was given for."""
    return frozenset(
        one.rule.id
        for one in rules
        if not isinstance(cost, Mapping) or _named(cost, one.rule) is not None
    )
