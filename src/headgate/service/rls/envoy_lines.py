"""Descriptors under the configuration of envoyproxy/ratelimit, with its semantics.

The same as there: a limit in a call replaces the configured one with its modes; `replaces`;
`unlimited`; a limit of 0 denies all; shadow and quota modes; an explicit 0 is denied only when more
than the limit was used. Different by default: a denied call charges nothing (see `Charging`), and
usage beyond the limit counts in the windows that follow.
"""

from __future__ import annotations

import re
from binascii import crc32
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from headgate.decision import OnFailure
from headgate.engine.calls import Part
from headgate.engine.plan import CompiledRule, RulePlan
from headgate.limits import FixedWindow
from headgate.policy.envoy_config.config import UNIT_SECONDS, counter_name, without_replaced
from headgate.service.rls.descriptors import Line, amount_of
from headgate.stores.base import group_name
from headgate.stores.operations import Check

if TYPE_CHECKING:
    from headgate.engine.calls import Role
    from headgate.engine.plan import Mode
    from headgate.policy.envoy_config.config import EnvoyConfig, Found, Unit
    from headgate.service.rls.descriptors import Amounts
    from headgate.service.rls.requests import Call, Descriptor, Limit, OnStoreFailure

GROUP: Final = "!envoy"
"""The prefix of groups of counters that belong to no rule; no id of a rule has it."""

GROUPS: Final = 256
"""The number of such groups. The domain and the keys of a descriptor select one, so that a counter
stays when its limit changes."""

OWN_LIMIT: Final = "(call)"
"""The label in metrics of limits that are part of a call: a caller could invent any number."""

_ON_FAILURE: Final[dict[OnStoreFailure, OnFailure]] = {
    "error": OnFailure(raises=True),
    "fail_open": OnFailure("fail_open"),
    "fail_closed": OnFailure("fail_closed"),
}
_UNFIT: Final = re.compile("[^ -~]")
_LONGEST_TITLE: Final = 100


class EnvoyLines:
    """The lines of calls whose domain is configured."""

    def __init__(
        self, amounts: Amounts, *, namespace: str, on_store_failure: OnStoreFailure
    ) -> None:
        self._amounts = amounts
        self._namespace = namespace
        self._on_failure = _ON_FAILURE[on_store_failure]

    def lines(self, config: EnvoyConfig, call: Call) -> tuple[Line, ...]:
        """The line of each descriptor of *call* under *config*."""
        found = [
            config.lookup(call.domain, one.entries) if one.limit is None else None
            for one in call.descriptors
        ]
        pairs = zip(call.descriptors, without_replaced(found), strict=True)
        return tuple([self._line(call, one, limit) for one, limit in pairs])

    def part_of_call(self, domain: str, descriptor: Descriptor, limit: Limit, hits: int) -> Part:
        """The part of a limit in a call: the descriptor itself is the counter."""
        keys = tuple([key for key, _ in descriptor.entries])
        title = _title(".".join((domain, *keys)))
        verb = self._amounts.verb(descriptor, ("call", domain, *keys))
        rule = _rule(OWN_LIMIT, "enforce", self._on_failure)
        group = _group(self._namespace, domain, keys)
        counter = counter_name(domain, descriptor.entries)
        planned = _planned(rule, group, counter, limit.requests, limit.unit, hits)
        return Part(planned, verb, "decides", "", title, None if planned.checks else limit.unit)

    def _line(self, call: Call, one: Descriptor, found: Found | None) -> Line:
        amount = amount_of(one, call.hits)
        hits = 1 if amount is None else amount
        if one.limit is not None:
            part = self.part_of_call(call.domain, one, one.limit, hits)
            return Line((part._replace(allows_full=True),))
        if found is None:
            return Line()
        limit, unit = found.limit, found.limit.unit
        if unit is None:
            return Line(is_unlimited=True)
        steps = tuple([step.name for step in found.way])
        name = limit.name or ""
        title = _title(name or ".".join((found.domain, *steps)))
        group = _group(self._namespace, found.domain, tuple([key for key, _ in one.entries]))
        rule = _rule(title, "shadow" if found.shadow_mode else "enforce", self._on_failure)
        planned = _planned(rule, group, found.key, limit.requests_per_unit, unit, hits)
        verb = self._amounts.verb(one, ("limit", found.domain, *steps))
        closed = None if planned.checks else unit
        role: Role = "quota" if found.quota_mode else "decides"
        role = "shadow" if found.shadow_mode else role
        part = Part(planned, verb, role, name, title, closed, allows_full=True)
        return Line((part,), metadata=found.metadata)


@lru_cache(maxsize=4096)
def _group(namespace: str, domain: str, keys: tuple[str, ...]) -> str:
    digest = crc32(counter_name(domain, [(key, "") for key in keys]).encode("utf-8", "replace"))
    return group_name(namespace, f"{GROUP}{digest % GROUPS:02x}")


@lru_cache(maxsize=4096)
def _rule(name: str, mode: Mode, on_failure: OnFailure) -> CompiledRule:
    return CompiledRule(name, mode, on_failure=on_failure)


def _planned(
    rule: CompiledRule, group: str, key: str, requests: int, unit: Unit, hits: int
) -> RulePlan:
    if not requests:
        return closed_plan(rule, unit)
    window = window_of(requests, unit)
    return RulePlan(rule, key, hits, (window,), (Check(group, key, window, hits),))


def closed_plan(rule: CompiledRule, unit: Unit) -> RulePlan:
    """The plan of a limit of 0 in a *unit*, which has no counter."""
    return RulePlan(rule, "", 0, (window_of(1, unit),), ())


@lru_cache(maxsize=4096)
def window_of(requests: int, unit: Unit) -> FixedWindow:
    """The limit of *requests* (at least 1) in a *unit*."""
    return FixedWindow(requests, UNIT_SECONDS[unit])


@lru_cache(maxsize=4096)
def _title(text: str) -> str:
    """*text* as a header can carry it."""
    return _UNFIT.sub("?", text)[:_LONGEST_TITLE]
