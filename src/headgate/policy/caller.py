"""All that limits a caller, whatever it asks for: to be shown, not to be charged. No I/O.

Some counters are one for each endpoint or each method. What such a rule has left for a caller is
one figure only where the rule is for one endpoint and one method; elsewhere there is none to tell.

The plans are for a cost of 1, to be asked without consuming. What remains and when all is back are
the same for every cost then; but only a cost of 1 is refused when nothing is left, and so finds out
when there will be something again. (A cost of 0 is never refused and never waits.)
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
    from collections.abc import Callable, Mapping

    from headgate.engine.plan import RulePlan
    from headgate.limits import Limit
    from headgate.policy.compiled import Overrides
    from headgate.policy.identity import Found, Identifier
    from headgate.policy.matcher import CallerMatcher
    from headgate.policy.model import Rule

    Soften = Callable[[Rule, tuple[Limit, ...], Found], tuple[Limit, ...]]

_ONE_UNIT: Final = 1
_BY_ROUTE: Final = f"attribute:{ROUTE}"


@dataclass(frozen=True, slots=True)
class Concern:
    """A rule that limits a caller, and the *limits* that it has for it.

    *plan* is how to look at its counter; None if it has several for this caller, by what is asked.
    What overrides say of single counters is in both, but for those several.
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
    soften: Soften | None = None,
) -> tuple[Concern, ...]:
    """The rules for some request of the caller who made *request*, in the order of the policy.

    The path and the method of *request* do not matter. Rules that are off or in shadow, or do not
    apply to the caller, are not among them; those whose `headers` are not to be shown are. *soften*
    says what becomes of limits under pressure, and by the share of the caller.
    """
    found = identifier.find(request)
    concerns = []
    for rule in matcher.matching(request, found):
        limits = rule.limits_for(found["tier"])
        asked = _asked(rule, request) if limits else None
        key = identifier.key(rule, asked or request, found) if limits else None
        if key is None:
            continue
        block = None
        if overrides is not None and asked:
            limits, block = overrides.apply(rule, key, limits)
        if soften is not None:
            limits = soften(rule, limits, found)
        plan = (
            plan_rule(compiled_rule(rule), limits, key, _ONE_UNIT, namespace, block=block)
            if asked
            else None
        )
        concerns.append(Concern(rule, limits, plan))
    return tuple(concerns)


def _asked(rule: Rule, request: Request) -> Request | None:
    """A request of the same caller that *rule* is for, as far as its key tells them apart; None if
    it tells several apart."""
    if "method" in rule.key_by:
        method = only_method(rule.match)
        if method is None:
            return None
        request = _like(request, method=method)
    if _BY_ROUTE in rule.key_by:
        return None
    if "endpoint" in rule.key_by:
        endpoint = only_endpoint(rule.match)
        if endpoint is None:
            return None
        # As a route, it takes the place of the path and of the route of the request itself.
        request = _like(request, attributes={**request.attributes, ROUTE: endpoint})
    return request


def _like(
    request: Request,
    *,
    method: str | None = None,
    attributes: Mapping[str, str] | None = None,
) -> Request:
    """A plain request like *request*, which may be of a kind that cannot be copied."""
    return Request(
        method or request.method,
        request.path,
        request.host,
        request.headers,
        request.peer,
        request.attributes if attributes is None else attributes,
    )
