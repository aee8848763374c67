"""The rules that limit a caller, for any request: for display, without charging. No I/O.

Some rules have a counter for each endpoint or method. Such a rule has one figure for a caller only
if it is for one endpoint and one method.

The plans are peeks with a cost of 1. `remaining` and `reset_after` are the same for every cost; but
only a cost of 1 is denied when nothing is left, and so has a `retry_after`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.engine.plan import plan_rule
from headgate.engine.request import Request
from headgate.policy.matcher import only_endpoint, only_method
from headgate.policy.model import compiled_rule
from headgate.policy.path import ROUTE

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.engine.plan import RulePlan
    from headgate.limits import Limit
    from headgate.policy.compiled import Overrides
    from headgate.policy.identity import Found, Identifier
    from headgate.policy.matcher import CallerMatcher
    from headgate.policy.model import Rule

    Adjust = Callable[[Rule, tuple[Limit, ...], Found], tuple[Limit, ...]]

_ONE_UNIT: Final = 1
_BY_ROUTE: Final = f"attribute:{ROUTE}"


@dataclass(frozen=True, slots=True)
class Concern:
    """A rule that limits a caller, and the *limits* that it has for it.

    *plan* is the peek at its counter; None if it has several for this caller. Overrides of a single
    counter are in both.
    """

    rule: Rule
    limits: tuple[Limit, ...]
    plan: RulePlan | None


def concerns_of(
    request: Request,
    *,
    matcher: CallerMatcher,
    identifier: Identifier,
    namespace: str,
    overrides: Overrides | None = None,
    adjust: Adjust | None = None,
) -> tuple[Concern, ...]:
    """The rules for some request of the caller of *request*, in the order of the policy.

    The path and the method of *request* do not matter. Rules that are off or in shadow, or do not
    apply to the caller, are left out; those with hidden `headers` are not. *adjust* adjusts limits
    to the pressure and to the share of the caller.
    """
    found = identifier.find(request)
    concerns = []
    for rule in matcher.matching(request, found):
        limits = rule.limits_for(found["tier"])
        sample = _request_under(rule, request) if limits else None
        key = identifier.key(rule, sample or request, found) if limits else None
        if key is None:
            continue
        block = None
        if overrides is not None and sample:
            limits, block = overrides.apply(rule, key, limits)
        if adjust is not None:
            limits = adjust(rule, limits, found)
        plan = (
            plan_rule(compiled_rule(rule), limits, key, _ONE_UNIT, namespace, block=block)
            if sample
            else None
        )
        concerns.append(Concern(rule, limits, plan))
    return tuple(concerns)


def _request_under(rule: Rule, request: Request) -> Request | None:
    """A request of the same caller under *rule*; None if several would have different keys."""
    method: str | None = request.method
    endpoint: str | None = ""
    if "method" in rule.key_by:
        method = only_method(rule.match)
    if "endpoint" in rule.key_by:
        endpoint = only_endpoint(rule.match)
    if method is None or endpoint is None or _BY_ROUTE in rule.key_by:
        return None
    # As a route, the endpoint takes the place of the path and of the route of the request itself.
    attributes = {**request.attributes, ROUTE: endpoint} if endpoint else request.attributes
    host, headers, peer = request.host, request.headers, request.peer
    return Request(method, request.path, host, headers, peer, attributes)
