"""What came of a request: one verdict, and what each rule had to say."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headgate.decisions import combine
from headgate.engine.holding import Once
from headgate.units import seconds_at_least

if TYPE_CHECKING:
    from headgate.decisions import Decision
    from headgate.engine.holding import Held
    from headgate.engine.plan import Plan
    from headgate.rules.model import Rule
    from headgate.stores.operations import Leave

_MAKING: Final = threading.Lock()


@dataclass(slots=True)
class RuleVerdict:
    """What one rule said to a request that cost *cost*, counted under *key*.

    (Nobody changes a verdict, but for `undone` and `vacated`. It is not frozen because one is made
    for every request, and that would triple the time it takes.)
    """

    rule: Rule
    key: str
    cost: int
    decision: Decision

    @property
    def is_shadow(self) -> bool:
        """Whether the rule only tells what it would have decided."""
        return self.rule.mode == "shadow"


@dataclass(slots=True)
class Verdict:
    """What came of a request under the policy of *revision*: true when it is allowed.

    *rules* are all that matched and apply, in the order of the policy. *is_replay* says that
    it repeats a request that had been charged before under rules that are not among them therefore.
    *slots* is what gives back the slots that it holds under concurrency limits; None if it holds
    none. (*local_slots* is the same for those that this process granted while the store was gone.)
    *held* is what is to be settled when the cost is known. *plan* is what was asked.
    """

    allowed: bool
    revision: int
    rules: tuple[RuleVerdict, ...] = ()
    is_replay: bool = False
    slots: Leave | None = None
    local_slots: Leave | None = None
    held: Held | None = None
    plan: Plan | None = field(default=None, repr=False, compare=False)
    _undone: Once | None = field(default=None, repr=False, compare=False)
    _vacated: Once | None = field(default=None, repr=False, compare=False)

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def undone(self) -> Once:
        """Whether it was given back; made for those who ask, which few do."""
        with _MAKING:
            if self._undone is None:
                self._undone = Once()
            return self._undone

    @property
    def vacated(self) -> Once:
        """Whether its turns were given up; a second time could take them from somebody else."""
        with _MAKING:
            if self._vacated is None:
                self._vacated = Once()
            return self._vacated

    @property
    def enforced(self) -> tuple[RuleVerdict, ...]:
        """What those rules said that decide."""
        return tuple([one for one in self.rules if one.rule.mode != "shadow"])

    @property
    def would_deny(self) -> tuple[RuleVerdict, ...]:
        """What those rules in shadow said that would have refused."""
        return tuple(one for one in self.rules if one.is_shadow and not one.decision.allowed)

    @property
    def decision(self) -> Decision | None:
        """The decisions of all rules that decide, as one; None if there is no such rule."""
        parts = [part for one in self.enforced for part in one.decision.limits]
        return combine(parts) if parts else None

    @property
    def denied_by(self) -> RuleVerdict | None:
        """The rule that refused; of several the one with the longest wait. None if allowed."""
        if self.allowed:
            return None
        refusals = [one for one in self.enforced if not one.decision.allowed]
        never = [one for one in refusals if one.decision.retry_after_ns is None]
        return (
            never[0] if never else max(refusals, key=lambda one: one.decision.retry_after_ns or 0)
        )

    @property
    def retry_after_ns(self) -> int | None:
        """Nanoseconds until the same request would be allowed; 0 if it was, None if never."""
        binding = self.denied_by
        return 0 if binding is None else binding.decision.retry_after_ns

    @property
    def retry_after(self) -> float | None:
        """The same in seconds."""
        wait = self.retry_after_ns
        return None if wait is None else seconds_at_least(wait)

    @property
    def slots_last_ns(self) -> int | None:
        """How long the slots that it holds last unless their leases are renewed; None if it holds
        none."""
        if self.slots is None and self.local_slots is None:
            return None
        held = [*(self.slots.checks if self.slots else ())]
        held += self.local_slots.checks if self.local_slots else ()
        return min((check.limit.period_ns for check in held), default=None)

    @property
    def delay_ns(self) -> int:
        """How long an allowed request is to wait for its turn, in nanoseconds."""
        if not self.allowed:
            return 0
        longest = 0
        for one in self.rules:
            if one.rule.mode != "shadow" and (delay := one.decision.delay_ns) > longest:
                longest = delay
        return longest

    @property
    def delay(self) -> float:
        """The same in seconds."""
        return seconds_at_least(self.delay_ns)

    @property
    def source(self) -> str:
        """Who decided: `store`, or what stood in for it in the rule that binds."""
        binding = self.denied_by
        if binding is not None:
            return binding.decision.source
        others = {one.decision.source for one in self.enforced} - {"store"}
        return min(others) if others else "store"
