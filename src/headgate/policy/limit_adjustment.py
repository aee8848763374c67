"""Limits of a rule adjusted to a request: to its class, to the caller's share, and to pressure.

Each combination of the three that occurs is computed once. There are few of them.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final, TypeGuard

from headgate.limits import Concurrency
from headgate.limits.scaling import scaled
from headgate.policy.model import BY_PRIORITY, ceiling

if TYPE_CHECKING:
    from headgate.engine.plan import Priority
    from headgate.limits import Limit
    from headgate.policy.identity import Found
    from headgate.policy.model import Rule

    Limits = tuple[Limit, ...]

FULL: Final = Fraction(1)

MAX_COMBINATIONS: Final = 4096
"""Combinations in the cache: overrides add limits."""


class Scale:
    """The factor of limits while there is pressure; the monitor of pressure sets it."""

    __slots__ = ("_factor", "version")

    def __init__(self) -> None:
        self._factor = FULL
        self.version = 0
        """A number that grows with each change of the factor: plans depend on it."""

    @property
    def factor(self) -> Fraction:
        """The factor: 1 without pressure."""
        return self._factor

    @factor.setter
    def factor(self, factor: Fraction) -> None:
        if factor != self._factor:
            self._factor = factor
            self.version += 1


class LimitAdjustment:
    """The limits of *rule* where they depend on more than the caller's tier."""

    __slots__ = ("_known", "_parts", "_rule", "_scale")

    def __init__(self, rule: Rule, scale: Scale) -> None:
        self._rule = rule
        self._scale = scale
        slots = [one for many in rule.limits.values() for one in many if _has_slots(one)]
        self._parts = frozenset(name for one in slots for name, _ in one.shares)
        # By the identity of the limits, which are kept with it: to hash them takes long.
        self._known: dict[tuple[int, Priority, str | None, Fraction], tuple[Limits, Limits]] = {}

    @staticmethod
    def concerns(rule: Rule) -> bool:
        """True if the limits of *rule* depend on any of that."""
        return bool(rule.reserve) or rule.share_by is not None or rule.floor is not None

    def limits(self, limits: Limits, found: Found, priority: Priority) -> tuple[Limits, bool]:
        """The *limits* for the request of *found*; and true if a denial is for lack of capacity,
        not because the caller has used its quota."""
        rule = self._rule
        factor = FULL
        if rule.floor is not None and self._scale.factor < FULL:
            factor = min(max(self._scale.factor, rule.floor), FULL)
        part = rule.share_by
        if part is not None:
            part = priority if part == BY_PRIORITY else found.get(part)
            part = part if part in self._parts else None
        if part is None and factor == FULL and not rule.reserve:
            return limits, False
        combination = id(limits), priority if rule.reserve else "default", part, factor
        known = self._known.get(combination)
        if known is None:
            if len(self._known) >= MAX_COMBINATIONS:
                self._known.clear()
            adjusted = tuple(self._adjusted(limit, priority, part, factor) for limit in limits)
            known = self._known[combination] = limits, adjusted
        return known[1], bool(rule.reserve) or factor < FULL

    def _adjusted(
        self, limit: Limit, priority: Priority, part: str | None, factor: Fraction
    ) -> Limit:
        limit = scaled(limit, factor)
        if not _has_slots(limit):
            return limit
        if part is not None and part in dict(limit.shares):
            limit = replace(limit, partition=part)
        if not self._rule.reserve:
            return limit
        guaranteed = sum(slots for _, slots in limit.shares)
        most = ceiling(limit.limit, self._rule.reserve, priority)
        return replace(limit, limit=max(most, guaranteed))


def _has_slots(limit: Limit) -> TypeGuard[Concurrency]:
    return isinstance(limit, Concurrency)
