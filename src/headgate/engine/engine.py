"""From a request to a plan: which rules match, whose counters, which limits, what it costs.

An engine is made for one policy and never changes; a new policy has a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headgate.engine.caller import concerns_of
from headgate.engine.plan import NOTHING_OPEN, Plan, RulePlan, plan_rule
from headgate.identity import Identifier
from headgate.rules.matching import Matcher, cost_of, normalised_path
from headgate.rules.matching.caller import CallerMatcher
from headgate.stores.port import checked_cost

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.engine.caller import Concern
    from headgate.identity import Found
    from headgate.rules.model import Policy, Rule
    from headgate.rules.request import Request

Costs = int | Mapping[str, int] | None
"""What a request costs: for all rules, by the id of a rule, or as the rules say."""


class Engine:
    """The rules of *policy*, ready to be applied. Safe to share among threads.

    *salt* is what secrets are hashed with; *namespace* keeps the counters of different policies in
    one store apart.
    """

    __slots__ = (
        "_caller_matcher",
        "_identifier",
        "_matcher",
        "_namespace",
        "counts_endpoints",
        "policy",
    )

    def __init__(self, policy: Policy, *, salt: bytes = b"", namespace: str = "headgate") -> None:
        self.policy = policy
        self._namespace = namespace
        self._identifier = Identifier(policy.identity, salt=salt)
        self._matcher = Matcher(policy)
        for rule in policy.rules:
            self._identifier.prepare(rule)  # not at the first request that it is for
        self.counts_endpoints = any("endpoint" in rule.key_by for rule in policy.rules)
        """Whether it matters which route of an app a request is for."""
        self._caller_matcher: CallerMatcher | None = None

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
        _check_costs(cost)
        found = self._identifier.find(request)
        matched = self._matcher.matching(request, found)
        path = normalised_path(request.path) if matched else ""
        rules = []
        for rule in matched:
            named = cost.get(rule.id) if isinstance(cost, Mapping) else cost
            planned = self._plan_rule(rule, request, found, path, named)
            if planned is not None:
                rules.append(planned)
        has_slots = any(one.has_slots for one in rules)
        open_ = _estimated(rules, cost) if is_estimate else NOTHING_OPEN
        return Plan(self.policy.revision, tuple(rules), lease if has_slots else None, open_)

    def _plan_rule(
        self, rule: Rule, request: Request, found: Found, path: str, cost: int | None
    ) -> RulePlan | None:
        limits = rule.limits_for(found["tier"])
        key = self._identifier.key(rule, request, found) if limits else None
        if key is None:
            return None
        own = cost_of(rule.cost, request, path) if cost is None else cost
        retry = _retry(rule, request, found, path)
        return plan_rule(rule, limits, key, own, self._namespace, retry)


def _check_costs(cost: Costs) -> None:
    if isinstance(cost, Mapping):
        for rule, named in cost.items():
            checked_cost(named, f"the cost under {rule!r}")
    elif cost is not None:
        checked_cost(cost)


def _estimated(rules: Iterable[RulePlan], cost: Costs) -> frozenset[str]:
    """The rules whose cost is an estimate: those it was given for."""
    return frozenset(
        one.rule.id for one in rules if not isinstance(cost, Mapping) or one.rule.id in cost
    )


def _retry(rule: Rule, request: Request, found: Found, path: str) -> str | None:
    """What a request and its repetitions have in common: the caller, what it asks, and its key."""
    given = rule.idempotency and request.header(rule.idempotency.header)
    if not given:
        return None
    caller = tuple(found.get(name) for name in ("api_key", "user_id", "tenant"))
    who = caller if any(caller) else (found.ip,)
    return repr((who, request.method.upper(), path, given.strip()))
