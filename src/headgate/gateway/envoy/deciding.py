"""Which rule is decided how: as it asks for where Envoy can, else by the service, exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.gateway.envoy.keys import uncountable_in
from headgate.gateway.envoy.matching import unseen_in
from headgate.gateway.envoy.values import Decided
from headgate.limits import Concurrency, LeakyQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.gateway.settings import GatewaySettings
    from headgate.limits import Limit
    from headgate.rules.model import Policy, Rule


def decided(policy: Policy, settings: GatewaySettings) -> tuple[Decided, ...]:
    """How each rule of *policy* that is not off is decided, in their order; but for those by which
    requests take turns, which apps see to."""
    counted = [rule for rule in policy.rules if rule.mode != "off" and rule.fair is None]
    return tuple(_decided(rule, policy, settings) for rule in counted)


def softened(policy: Policy) -> tuple[str, ...]:
    """What rules of *policy* ask for that no gateway does, in sentences."""
    told = []
    for rule in policy.rules:
        if rule.mode == "off":
            continue
        if rule.fair is not None:
            told.append(f"rule {rule.id}: requests take turns in apps only; here it does nothing")
        elif _has(rule, LeakyQueue):
            told.append(f"rule {rule.id}: here nothing is delayed; its queue only counts")
    return tuple(told)


def has_backstop(rule: Rule, policy: Policy, settings: GatewaySettings) -> bool:
    """Whether Envoy keeps callers of *rule*, decided exactly, to its limit without the service: if
    it does not refuse them then, and sees which requests the rule is for, and whose they are."""
    is_closed = rule.on_store_failure == "fail_closed"
    if rule.mode != "enforce" or is_closed or not least_cost(rule):
        return False
    if _has(rule, Concurrency):
        return False
    return not _unknowable(rule, policy, settings)


def least_cost(rule: Rule) -> int:
    """The least that a request may cost under *rule*."""
    if rule.cost.header is not None:
        return 0
    return min([rule.cost.default, *(one.cost for one in rule.cost.endpoints)])


def _decided(rule: Rule, policy: Policy, settings: GatewaySettings) -> Decided:
    asked = rule.decide or settings.decide
    if asked == "exact":
        return Decided(rule.id, asked, asked)
    why = next(_obstacles(rule, policy), "") or _unknowable(rule, policy, settings)
    return Decided(rule.id, "exact" if why else asked, asked, why)


def _obstacles(rule: Rule, policy: Policy) -> Iterator[str]:
    cost = rule.cost
    if rule.mode == "shadow":
        yield "it is in shadow, and only the service tells what it would have decided"
    if _has(rule, LeakyQueue):
        yield "it is a queue, which only the service keeps"
    if rule.floor is not None:
        yield "its limits are lowered under pressure, of which Envoy does not know"
    if _has(rule, Concurrency):
        yield "it limits what goes on at the same time, which Envoy does not count"
    if rule.idempotency is not None:
        yield "Envoy cannot tell requests that are repeated"
    if cost.after is not None:
        yield "what a request costs is known only afterwards"
    if cost.header is not None or cost.endpoints:
        yield "what a request costs varies"
    if cost.default == 0:
        yield "a request costs nothing, so there is nothing to count"
    if any(one.rule == rule.id for one in policy.overrides):
        yield "some of its counters are overridden, of which Envoy does not know"


def _has(rule: Rule, kind: type[Limit]) -> bool:
    """Whether one of the limits of *rule* is of that *kind*."""
    return any(isinstance(limit, kind) for row in rule.limits.values() for limit in row)


def _unknowable(rule: Rule, policy: Policy, settings: GatewaySettings) -> str:
    has_addresses = not any(one.is_unix for one in settings.listen)
    return unseen_in(rule.match, policy.identity) or uncountable_in(
        rule, policy.identity, has_addresses=has_addresses
    )
