"""A policy as plain data: what a reader of JSON would have made of its text.

`read_policy_data(policy_to_data(policy))` is the policy again, but for its revision.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from headgate.decision import OnFailure
from headgate.limits import EXACT, Concurrency, LeakyQueue
from headgate.policy.loader.limits import DEFAULT_TIER
from headgate.policy.loader.overload import weights_by_name
from headgate.policy.loader.policies import VERSION
from headgate.policy.loader.scalars import instant_text
from headgate.policy.model import (
    DEFAULT_SOURCES,
    AddressSource,
    After,
    Cost,
    Match,
    Pressure,
    Source,
)
from headgate.units import plain_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from fractions import Fraction

    from headgate.limits import Accuracy, Limit
    from headgate.policy.model import (
        AdaptiveSlots,
        Fair,
        Idempotency,
        Identity,
        Override,
        Policy,
        PriorityClass,
        Rule,
        Values,
    )


# Queues, slots, turns, classes of requests and pressure as plain data (see `plain`).


Data = dict[str, Any]


def queue_to_data(queue: LeakyQueue) -> Data:
    """A queue in the long form, its rate as text: not every one is a number of digits."""
    data: Data = {"algorithm": queue.algorithm, "rate": rate_text(queue.per_second)}
    data["queue"] = queue.queue
    if queue.max_wait is not None:
        data["max_wait"] = queue.max_wait
    return data


def slots_to_data(slots: Concurrency) -> Data:
    """Slots in the long form."""
    data: Data = {"algorithm": slots.algorithm, "limit": slots.limit, "ttl": slots.ttl}
    if slots.shares:
        data["shares"] = dict(slots.shares)
    if not slots.lends:
        data["lends"] = False
    return data


def fair_to_data(fair: Fair) -> Data:
    """How requests take turns; how long and how many wait is always said."""
    data: Data = {}
    if fair.adaptive is not None:
        data["slots"] = _adaptive(fair.adaptive)
    elif fair.rate is not None:
        data["rate"] = rate_text(fair.rate)
    else:
        data["slots"] = fair.slots
    if fair.weights:
        data["weights"] = weights_by_name(fair.weights)
    data |= {"queue": fair.queue, "max_wait": plain_seconds(fair.max_wait_ns)}
    if fair.reserve:
        data["reserve"] = reserve_to_data(fair.reserve)
    return data


def _adaptive(slots: AdaptiveSlots) -> Data:
    data: Data = {"adaptive": slots.algorithm, "min": slots.least, "max": slots.most}
    if slots.target_ns is not None:
        data["target"] = plain_seconds(slots.target_ns)
    return data


def reserve_to_data(reserve: Mapping[Any, Fraction]) -> Data:
    """What is kept for which class."""
    return {name: percentage(share) for name, share in reserve.items()}


def pressure_to_data(pressure: Pressure) -> Data:
    """When there is pressure, and what is done; what is as usual is left out."""
    data: Data = {}
    if pressure.latency_ns is not None:
        data["latency"] = plain_seconds(pressure.latency_ns)
    if pressure.errors is not None:
        data["errors"] = percentage(pressure.errors)
    if pressure.queue is not None:
        data["queue"] = pressure.queue
    usual = Pressure()
    if pressure.interval_ns != usual.interval_ns:
        data["interval"] = plain_seconds(pressure.interval_ns)
    for name in ("quantile", "backoff", "recovery", "least"):
        if getattr(pressure, name) != getattr(usual, name):
            data[name] = percentage(getattr(pressure, name))
    return data


def rate_text(rate: Fraction) -> str:
    """*rate* in the notation, exactly."""
    each = "" if rate.denominator == 1 else str(rate.denominator)
    return f"{rate.numerator}/{each}s"


def percentage(share: Fraction) -> str:
    """*share* as it is written."""
    percent = share * 100
    return f"{Decimal(percent.numerator) / percent.denominator:f}%"


def policy_to_data(policy: Policy) -> Data:
    """The whole policy, without its revision."""
    data: Data = {
        "version": VERSION,
        "identity": identity_to_data(policy.identity),
        "rules": [{"id": rule.id, **rule_to_data(rule)} for rule in policy.rules],
    }
    if policy.overrides:
        data["overrides"] = [override_to_data(override) for override in policy.overrides]
    if policy.priorities:
        data["priority"] = [_priority(one) for one in policy.priorities]
    if policy.pressure is not None:
        data["pressure"] = pressure_to_data(policy.pressure)
    return data


def _priority(one: PriorityClass) -> Data:
    match = {} if one.match == Match() else {"match": _match(one.match)}
    return {"class": one.priority, **match}


def rule_to_data(rule: Rule) -> Data:
    """One rule, without its id; what is as usual is left out."""
    data: Data = {"description": rule.description} if rule.description else {}
    if rule.match != Match():
        data["match"] = _match(rule.match)
    data["key_by"] = _one_or_all(rule.key_by)
    data |= _terms(rule)
    if rule.cost != Cost():
        data["cost"] = _cost(rule.cost)
    usual = {"mode": "enforce", "headers": "on"}
    data |= {name: getattr(rule, name) for name in usual if getattr(rule, name) != usual[name]}
    if rule.candidate_of is not None:
        data["candidate_of"] = rule.candidate_of
    if rule.on_failure != OnFailure():
        data["on_store_failure"] = _on_store_failure(rule.on_failure)
    if rule.accuracy != EXACT:
        data["accuracy"] = _accuracy(rule.accuracy)
    if rule.idempotency is not None:
        data["idempotency"] = _idempotency(rule.idempotency)
    if rule.across_regions:
        data["across_regions"] = True
    if rule.decide is not None:
        data["decide"] = rule.decide
    return data


def override_to_data(override: Override) -> Data:
    """One override, with the time when it ends in UTC."""
    what: Data = {"block": True} if override.block else {"extra": override.extra}
    until = instant_text(override.until_ns)
    return {"rule": override.rule, "key": override.key, **what, "until": until}


def identity_to_data(identity: Identity) -> Data:
    """How to tell who is asking; all sources, the usual ones too."""
    data: Data = {name: _source(name, source) for name, source in identity.sources.items()}
    if identity.address != AddressSource():
        data["ip"] = _address(identity.address)
    data["fallback"] = identity.fallback
    return data


def _source(name: str, source: Source) -> Data:
    data: Data = {
        kind: getattr(source, kind)
        for kind in ("header", "cookie", "attribute", "lookup", "default")
        if getattr(source, kind) is not None
    }
    if source.lookup is not None:
        data["values"] = dict(source.values)
    if source.secret != DEFAULT_SOURCES.get(name, Source()).secret:
        data["secret"] = source.secret
    return data


def _address(address: AddressSource) -> Data:
    data: Data = {
        "ipv4_prefix": address.ipv4_prefix,
        "ipv6_prefix": address.ipv6_prefix,
        "header": address.header,
    }
    if address.trusted_proxies:
        data["trusted_proxies"] = [str(network) for network in address.trusted_proxies]
    return data


def _match(match: Match) -> Data:
    lists = {
        "endpoint": match.endpoints,
        "method": match.methods,
        "host": match.hosts,
        "tier": match.tiers,
    }
    conditions = {
        "headers": match.headers,
        "cookies": match.cookies,
        "attributes": match.attributes,
    }
    data: Data = {name: _one_or_all(values) for name, values in lists.items() if values}
    for name, wanted in conditions.items():
        if wanted:
            data[name] = {key: _values(values) for key, values in wanted}
    return data


def _values(values: Values) -> object:
    return True if values is None else _one_or_all(values)


def _one_or_all(values: Sequence[str]) -> str | list[str]:
    return values[0] if len(values) == 1 else list(values)


def _terms(rule: Rule) -> Data:
    """What the rule is held to."""
    data: Data = (
        {"limits": _limits(rule)} if rule.fair is None else {"fair": fair_to_data(rule.fair)}
    )
    if rule.share_by is not None:
        data["share_by"] = rule.share_by
    if rule.reserve:
        data["reserve"] = reserve_to_data(rule.reserve)
    if rule.floor is not None:
        data["adaptive"] = {"floor": percentage(rule.floor)}
    return data


def _limits(rule: Rule) -> object:
    if set(rule.limits) == {None}:
        return [_limit(limit) for limit in rule.limits[None]]
    return {
        DEFAULT_TIER if tier is None else tier: [_limit(limit) for limit in limits]
        for tier, limits in rule.limits.items()
    }


def _limit(limit: Limit) -> object:
    """The notation; those that have none in the long form."""
    if isinstance(limit, Concurrency):
        return slots_to_data(limit)
    if isinstance(limit, LeakyQueue):
        return queue_to_data(limit)
    return str(limit)


def _cost(cost: Cost) -> object:
    if cost == Cost(cost.default):
        return cost.default
    data: Data = {"default": cost.default}
    if cost.endpoints:
        data["endpoints"] = {
            f"{one.method} {one.endpoint}" if one.method else one.endpoint: one.cost
            for one in cost.endpoints
        }
    if cost.header is not None:
        data |= {"header": cost.header, "max": cost.most}
    if cost.after is not None:
        data["after"] = _after(cost.after)
    return data


def _after(after: After) -> Data:
    data: Data = {"bytes": True} if after.header is None else {"header": after.header}
    if after.per != After().per:
        data["per"] = after.per
    if after.most is not None:
        data["max"] = after.most
    return data


def _accuracy(accuracy: Accuracy) -> Data:
    data: Data = {}
    if accuracy.max_overshoot is not None:
        data["max_overshoot"] = percentage(accuracy.max_overshoot)
    if accuracy.batch is not None:
        data["batch"] = accuracy.batch
    if accuracy.sync_ns is not None:
        data["sync"] = plain_seconds(accuracy.sync_ns)
    if accuracy.denials_ns is not None:
        data["denials"] = plain_seconds(accuracy.denials_ns) if accuracy.denials_ns else "off"
    if accuracy.split > 1:
        data["split"] = accuracy.split
    return data


def _on_store_failure(failing: OnFailure) -> object:
    if failing == OnFailure(failing.mode):
        return failing.mode
    data: Data = {"mode": failing.mode}
    if failing.share != 1:
        data["share"] = percentage(failing.share)
    if failing.open_ns is not None:
        data |= {"max_fail_open": plain_seconds(failing.open_ns), "then": failing.then}
    return data


def _idempotency(idempotency: Idempotency) -> Data:
    data: Data = {"header": idempotency.header, "ttl": plain_seconds(idempotency.ttl_ns)}
    data["retries"] = idempotency.retries
    if idempotency.fingerprint:
        data["fingerprint"] = list(idempotency.fingerprint)
    return data
