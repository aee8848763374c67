"""The limits of a limiter, compiled: the names of their counters, and plans of its requests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.engine.plan import CompiledRule, Plan, RulePlan, checks_on
from headgate.errors import LimitError, OptionError, UsageError
from headgate.limits import EXACT, Accuracy, Concurrency, LeakyQueue, Limit, parse_limits
from headgate.stores.base import (
    checked_cost,
    checked_key,
    group_name,
    groups_of,
    reject_concurrency,
)
from headgate.stores.operations import Check

if TYPE_CHECKING:
    from headgate.decision import OnFailure
    from headgate.stores.base import Hit, Store

Limits = str | Limit | Iterable[str | Limit]
"""Limits as a caller gives them: a text, a limit, or several of either."""


class HeldPlan(RulePlan):
    """The plan of a limiter's reservation: it is one hold, places in queues included."""

    __slots__ = ()

    @property
    def amounts(self) -> tuple[Check, ...]:
        """All checks: a limiter with slots makes no reservations."""
        return self.checks


class Stack:
    """The limits of a limiter and the groups of their counters, as one rule."""

    __slots__ = ("_by_partition", "groups", "limits", "namespace", "rule")

    def __init__(
        self, limits: tuple[Limit, ...], rule: CompiledRule, namespace: str, groups: tuple[str, ...]
    ) -> None:
        self.limits = limits
        self.rule = rule
        self.namespace = namespace
        self.groups = groups
        self._by_partition: dict[str, Stack] = {}

    @classmethod
    def of(
        cls, limits: tuple[Limit, ...], name: str | None, namespace: str, on_failure: OnFailure
    ) -> Stack:
        """The stack of *limits*. A changed limit keeps its group, which has the limiter's name."""
        if name is None:
            groups = tuple([group_name(namespace, place) for place in range(len(limits))])
        else:
            groups = groups_of(namespace, name, len(limits))
        return cls(limits, CompiledRule(name or "", on_failure=on_failure), namespace, groups)

    @property
    def places(self) -> tuple[tuple[str, Limit], ...]:
        """Each limit and the group of its counters."""
        return tuple(zip(self.groups, self.limits, strict=True))

    @property
    def has_slots(self) -> bool:
        """True if a limit is a `Concurrency`."""
        return any(isinstance(limit, Concurrency) for limit in self.limits)

    @property
    def has_queues(self) -> bool:
        """True if a limit is a `LeakyQueue`."""
        return any(isinstance(limit, LeakyQueue) for limit in self.limits)

    def accuracies(self, accuracy: Accuracy | None) -> dict[str, Accuracy]:
        """The *accuracy* of each group that need not be exact; slots always are."""
        if accuracy is None or accuracy == EXACT:
            return {}
        pairs = self.places
        return {group: accuracy for group, limit in pairs if not isinstance(limit, Concurrency)}

    def rule_plan(self, key: str, cost: int, what: str = "cost") -> RulePlan:
        """The counters of a request of *cost* by *key*, both of which are checked here."""
        key = checked_key(key)
        checked_cost(cost, what)
        return RulePlan(self.rule, key, cost, self.limits, checks_on(self.places, key, cost))

    def plan(self, key: str, cost: int, verb: str = "hit") -> Plan:
        """The plan of a request that *verb* makes."""
        reject_concurrency(self.limits, verb)
        return self.planned(self.rule_plan(key, cost))

    def plan_of_slot(self, key: str, lease: str) -> Plan:
        """The plan of a request for a slot."""
        return self.planned(self.rule_plan(key, 1), lease=lease)

    def plan_of_hold(self, key: str, cost: int) -> Plan:
        """The plan of a reservation."""
        reject_concurrency(self.limits, "reserve")
        one = self.rule_plan(key, cost)
        held = HeldPlan(one.rule, one.key, one.cost, one.limits, one.checks)
        return self.planned(held, is_open=True)

    def plan_of_hits(self, hits: Iterable[Hit]) -> Plan:
        """The plan of *hits*, which name their own keys and limits."""
        checks = _checks_of(hits, self.namespace)
        cost = sum([check.cost for check in checks])
        limits = tuple([check.limit for check in checks])
        plan = self.planned(RulePlan(self.rule, checks[0].key, cost, limits, checks))
        plan.is_plain = False  # its checks have different keys
        return plan

    def rates(self, key: str, amount: int, verb: str) -> RulePlan:
        """The counters that *verb* can charge or refund: those of limits without slots."""
        one = self.rule_plan(key, amount, "amount")
        rates: tuple[Check, ...] = one.rates
        if not rates:
            reject_concurrency(self.limits, verb)
        return replace(one, checks=rates)

    def planned(self, one: RulePlan, *, lease: str | None = None, is_open: bool = False) -> Plan:
        """The plan of one rule."""
        opened = frozenset((self.rule.id,)) if is_open else frozenset[str]()
        return Plan(0, (one,), lease, opened, is_recorded=bool(self.rule.id))

    def within(self, timeout_ns: int | None) -> Stack:
        """The same counters for a caller that waits at most *timeout_ns* for its place in a
        queue."""
        if timeout_ns is None or not self.has_queues:
            return self
        limits = [
            limit.within(timeout_ns) if isinstance(limit, LeakyQueue) else limit
            for limit in self.limits
        ]
        return Stack(tuple(limits), self.rule, self.namespace, self.groups)

    def of_partition(self, partition: str | None) -> Stack:
        """The same counters for the callers of *partition*, or for those without a share."""
        if partition is None:
            return self
        found = self._by_partition.get(partition)
        if found is None:
            known = {name for limit in self.limits for name in _partitions(limit)}
            if partition not in known:
                parts = ", ".join(sorted(known))
                expected = f"one of {parts}" if parts else "none: no limit here has shares"
                raise OptionError(f"the partition is {partition!r}; expected {expected}")
            limits = tuple([_of_partition(limit, partition) for limit in self.limits])
            found = Stack(limits, self.rule, self.namespace, self.groups)
            self._by_partition[partition] = found
        return found


def _partitions(limit: Limit) -> tuple[str, ...]:
    return tuple(name for name, _ in limit.shares) if isinstance(limit, Concurrency) else ()


def _of_partition(limit: Limit, partition: str) -> Limit:
    if isinstance(limit, Concurrency) and partition in _partitions(limit):
        return replace(limit, partition=partition)
    return limit


def read_limits(limits: Limits) -> tuple[Limit, ...]:
    """*limits*, however they were given, as a tuple of at least one."""
    if isinstance(limits, str):
        return parse_limits(limits)
    if isinstance(limits, Limit):
        return (limits,)
    if isinstance(limits, bytes | dict) or not hasattr(limits, "__iter__"):
        raise LimitError(f"the limit is {limits!r}; expected text, a Limit or a list of them")
    several = tuple(limits)
    found = tuple(limit for item in several for limit in _read_item(item))
    if not found:
        raise LimitError("there is no limit; expected at least one, such as '100/minute'")
    return found


def _read_item(item: str | Limit) -> tuple[Limit, ...]:
    if isinstance(item, str | Limit):
        return read_limits(item)
    raise LimitError(f"{item!r} is not a limit; expected text such as '100/minute' or a Limit")


def checked_name(name: str | None, limits: Limits, store: str | Store, *, is_shared: bool) -> None:
    """Raise `OptionError` unless *name* can name a limiter on *store*.

    On a shared store every limiter needs one: limiters share counters only on purpose.
    """
    if name is None and is_shared:
        where = re.sub("//.*@", "//***@", store) if isinstance(store, str) else "store"
        shown = repr(where) if isinstance(store, str) else where
        raise OptionError(
            "a limiter on a shared store needs a name; limiters of one name and namespace share "
            f"their counters: RateLimiter({_shown(limits)}, store={shown}, name='api')"
        )
    if name is not None and (type(name) is not str or not name):
        raise OptionError(f"the name is {name!r}; expected text such as 'login', or None")
    if name is not None and not name.isprintable():
        raise OptionError(f"the name is {name!r}; expected printable text, as metrics show it")


def _shown(limits: Limits) -> str:
    if isinstance(limits, str):
        return repr(limits)
    return repr("; ".join(str(limit) for limit in read_limits(limits)))


def _checks_of(hits: Iterable[Hit], namespace: str) -> tuple[Check, ...]:
    """The checks of *hits*; raises `UsageError` unless they are valid together."""
    checks: list[Check] = []
    limits: dict[tuple[str, str], Limit] = {}
    for n, hit in enumerate(hits):
        limit = getattr(hit, "limit", None)
        if not isinstance(limit, Limit):
            raise UsageError(f"item {n} of hit_all is {hit!r}; expected a Hit(key, limit, cost)")
        group = group_name(namespace, hit.name or limit)
        check = Check(group, hit.key, limit, hit.cost)
        if limits.setdefault((group, hit.key), limit) != limit:
            raise UsageError(f"two limits for the one counter {hit.name!r} of {hit.key!r}")
        checks.append(check)
    if not checks:
        raise UsageError("hit_all needs at least one Hit")
    return tuple(checks)
