"""On what terms a bucket is: what the rules in force say of requests with its attributes. No I/O.

A bucket's keys and values are attributes of its requests, as the entries of a descriptor are; they
are sorted by key, for a bucket has no order. Headgate's own gateway names the rule that a bucket is
of (see `rules.envoy.gateway`): that one alone counts, and the rest is read as a descriptor is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.rules.envoy.attributes import attributes_of
from headgate.rules.envoy.gateway import GATEWAY_DOMAIN, RULE
from headgate.rules.request import Request
from headgate.service.requested import request_of
from headgate.service.rlqs.allowance import bindings

if TYPE_CHECKING:
    from headgate.engine.engine import Engine
    from headgate.engine.plan import Plan
    from headgate.service.rlqs.allowance import Binding
    from headgate.service.rlqs.assignment import BucketId


@dataclass(frozen=True, slots=True)
class Terms:
    """What limits a bucket: the tightest of *bindings* comes first. Without any all may pass;
    if it *is_closed*, nothing may."""

    bindings: tuple[Binding, ...] = ()
    is_closed: bool = False

    @property
    def is_shared(self) -> bool:
        """Whether gateways get parts of something."""
        return bool(self.bindings) and not self.is_closed

    @property
    def charged(self) -> tuple[tuple[str, str, int], ...]:
        """The counters that are charged, and what a request costs there."""
        bound = self.bindings if self.is_shared else ()
        return tuple((one.check.group, one.check.key, one.check.cost) for one in bound)

    @property
    def places(self) -> tuple[tuple[str, str, int], ...]:
        """All counters, and what a request costs there."""
        checks = [one.check for one in self.bindings]
        return tuple((one.group, one.key, one.cost) for one in checks)

    @property
    def ledger(self) -> str:
        """The name of the ledger: that of the tightest counter."""
        check = self.bindings[0].check
        return f"{len(check.group)}:{check.group}:{check.key}"


def terms_of(engine: Engine, domain: str, bucket: BucketId) -> Terms:
    """The terms of *bucket* in *domain*."""
    plan = _plan(engine, domain, bucket)
    found = bindings(plan)
    never_fits = any(one.allowance.burst < 1 for one in found)
    return Terms(found, is_closed=plan.is_refused or never_fits)


def _plan(engine: Engine, domain: str, bucket: BucketId) -> Plan:
    rule = dict(bucket).get(RULE) if domain == GATEWAY_DOMAIN else None
    if rule is None:
        return engine.plan(Request(attributes=attributes_of(domain, bucket)))
    entries = tuple(entry for entry in bucket if entry[0] != RULE)
    return engine.plan_of(rule, request_of(domain, entries))
