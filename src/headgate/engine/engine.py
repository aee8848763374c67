"""From a request to a plan: which rules match, whose counters, which limits, what it costs.

An engine is made for one policy and never changes; a new policy has a new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.engine.plan import Plan, RulePlan, plan_rule
from headgate.identity import Identifier
from headgate.limits import Concurrency
from headgate.rules.matching import Matcher, cost_of, normalised_path
from headgate.stores.port import checked_cost

if TYPE_CHECKING:
    from headgate.identity import Found
    from headgate.rules.model import Policy, Rule
    from headgate.rules.request import Request


class Engine:
    """The rules of *policy*, ready to be applied. Safe to share among threads.

    *salt* is what secrets are hashed with; *namespace* keeps the counters of different policies in
    one store apart.
    """

    __slots__ = ("_identifier", "_matcher", "_namespace", "policy")

    def __init__(self, policy: Policy, *, salt: bytes = b"", namespace: str = "headgate") -> None:
        self.policy = policy
        self._namespace = namespace
        self._identifier = Identifier(policy.identity, salt=salt)
        self._matcher = Matcher(policy)

    @property
    def identifier(self) -> Identifier:
        return self._identifier

    def matching(self, request: Request) -> tuple[Rule, ...]:
        """The rules that match, those that do not apply to the caller included."""
        return self._matcher.matching(request, self._identifier.find(request))

    def plan(self, request: Request, *, cost: int | None = None, lease: str | None = None) -> Plan:
        """What is to be asked about *request*.

        *cost* takes the place of what the rules say. *lease* names the slots that the request will
        take under concurrency limits.
        """
        if cost is not None:
            checked_cost(cost)
        found = self._identifier.find(request)
        matched = self._matcher.matching(request, found)
        path = normalised_path(request.path) if matched else ""
        rules = []
        for rule in matched:
            planned = self._plan_rule(rule, request, found, path, cost)
            if planned is not None:
                rules.append(planned)
        has_slots = any(isinstance(limit, Concurrency) for one in rules for limit in one.limits)
        return Plan(self.policy.revision, tuple(rules), lease if has_slots else None)

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


def _retry(rule: Rule, request: Request, found: Found, path: str) -> str | None:
    """What a request and its repetitions have in common: the caller, what it asks, and its key."""
    given = rule.idempotency and request.header(rule.idempotency.header)
    if not given:
        return None
    caller = tuple(found.get(name) for name in ("api_key", "user_id", "tenant"))
    who = caller if any(caller) else (found.ip,)
    return repr((who, request.method.upper(), path, given.strip()))
