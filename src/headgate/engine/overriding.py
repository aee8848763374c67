"""The overrides of a policy: which counters are blocked, or have more, at this time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.engine.plan import Block
from headgate.errors import LimitError, OptionError
from headgate.limits import with_extra

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.limits import Limit
    from headgate.rules.model import Override, Policy, Rule

    Limits = tuple[Limit, ...]


class Overrides:
    """The overrides of *policy*, by rule and key; those that are over have no effect.

    What is granted under a rule is granted under its candidate as well, as it would be if that took
    its place; who is blocked there is not asked about anyway.

    Raises `OptionError` for one of a rule that is not there, `LimitError` for one that makes a
    limit too large.
    """

    __slots__ = ("_clock", "_found", "_larger")

    def __init__(self, policy: Policy, clock: Clock) -> None:
        self._clock = clock
        self._found: dict[tuple[str, str], Override] = {}
        self._larger: dict[tuple[Limits, int], Limits] = {}
        rules = {rule.id: rule for rule in policy.rules}
        for one in policy.overrides:
            if one.rule not in rules:
                raise OptionError(f"an override is for the rule {one.rule!r}, which is not there")
            self._found[one.rule, one.key] = one
            if one.extra:
                self._enlarge(rules[one.rule], one)
        candidates = [rule for rule in policy.rules if rule.candidate_of is not None]
        for rule in candidates:
            for one in policy.overrides:
                if one.rule == rule.candidate_of and one.extra:
                    self._grant_beside(rule, one)

    def _enlarge(self, rule: Rule, one: Override) -> None:
        for limits in rule.limits.values():
            larger = tuple([with_extra(limit, one.extra) for limit in limits])
            self._larger[limits, one.extra] = larger

    def _grant_beside(self, candidate: Rule, one: Override) -> None:
        if (candidate.id, one.key) in self._found:
            return
        try:
            self._enlarge(candidate, one)
        except LimitError:  # nothing that is only tried keeps a policy from being put in force
            return
        self._found[candidate.id, one.key] = one

    def apply(self, rule: Rule, key: str, limits: Limits) -> tuple[Limits, Block | None]:
        """The limits of *rule* for *key*, *limits* unless they are larger; and whether it is
        blocked."""
        one = self._found.get((rule.id, key))
        if one is None or (wait_ns := one.until_ns - self._clock()) <= 0:
            return limits, None
        if one.block:
            return limits, Block(one.until_ns, wait_ns)
        return self._larger[limits, one.extra], None
