"""Two outcomes of the same traffic, rule by rule: what the second policy changes.

A rule tells of the keys that it denied most, not of all. Where it told of all of them, who is newly
limited and who is relieved is known exactly; where it did not, there are at least as many as can be
seen, and `Shift.is_exact` says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.simulator.results import KeyResult, Outcome, RuleResult


@dataclass(frozen=True, slots=True)
class Shift:
    """Keys that one policy limits and the other does not: how many, and those that are known."""

    number: int
    is_exact: bool
    keys: tuple[KeyResult, ...]

    def __str__(self) -> str:
        if self.is_exact:
            return f"{self.number:,}"
        return f"at least {self.number:,}" if self.number else "not known"


@dataclass(frozen=True, slots=True)
class RuleDifference:
    """A rule under both policies; None where a policy does not have it."""

    rule_id: str
    before: RuleResult | None
    after: RuleResult | None

    @property
    def is_shadow(self) -> bool:
        """Whether it refuses nobody, under either policy."""
        return all(one is None or one.mode != "enforce" for one in (self.before, self.after))

    @property
    def denied(self) -> tuple[int, int]:
        """How many requests were denied before and after."""
        return (
            self.before.denied if self.before else 0,
            self.after.denied if self.after else 0,
        )

    @property
    def change(self) -> int:
        """How many more are denied after."""
        before, after = self.denied
        return after - before

    @property
    def newly(self) -> Shift:
        """Keys that are denied something after, and were denied nothing before."""
        return _shift(self.after, self.before)

    @property
    def relieved(self) -> Shift:
        """Keys that were denied something before, and are denied nothing after."""
        return _shift(self.before, self.after)


def differences(before: Outcome, after: Outcome) -> tuple[RuleDifference, ...]:
    """Every rule of either policy: those that refuse before those in shadow, then those that change
    most first."""
    old = {rule.rule_id: rule for rule in before.rules}
    new = {rule.rule_id: rule for rule in after.rules}
    both = [RuleDifference(one, old.get(one), new.get(one)) for one in {**old, **new}]
    return tuple(sorted(both, key=lambda one: (one.is_shadow, -abs(one.change), -max(one.denied))))


def _shift(here: RuleResult | None, there: RuleResult | None) -> Shift:
    """Keys denied something *here* and nothing *there*."""
    if here is None or not here.keys_denied:
        return Shift(0, is_exact=True, keys=())
    if there is None or not there.keys_denied:
        return Shift(here.keys_denied, is_exact=True, keys=here.top_denied)
    known = {one.key for one in there.top_denied}
    if not _is_whole(there):  # a key that is not told of may have been denied there all the same
        return Shift(max(here.keys_denied - there.keys_denied, 0), is_exact=False, keys=())
    alone = tuple(one for one in here.top_denied if one.key not in known)
    fewest = max(len(alone), here.keys_denied - there.keys_denied)
    return Shift(fewest, is_exact=_is_whole(here), keys=alone)


def _is_whole(rule: RuleResult) -> bool:
    return len(rule.top_denied) >= rule.keys_denied
