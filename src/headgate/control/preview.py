"""Preview of a change: what differs between two documents, and what that means for callers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from headgate.control.documents import differences
from headgate.limits import Concurrency
from headgate.policy.loader import examine_policy_data
from headgate.policy.model import BY_PRIORITY, PRIORITIES, Policy
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headgate.control.documents import Data
    from headgate.control.revision import Revision
    from headgate.engine.plan import Priority
    from headgate.limits import Limit
    from headgate.policy.model import Rule
    from headgate.policy.problems import Problem
    from headgate.policy.rule_cache import RuleCache

    Limits = tuple[Limit, ...]

Effect = Literal["tighter", "looser", "counters", "algorithm", "mode", "match", "gone", "new"]
"""The kind of a consequence, for programs."""


class Consequence(NamedTuple):
    """A change for callers under *rule*."""

    rule: str
    effect: Effect
    message: str


@dataclass(frozen=True, slots=True)
class Preview:
    """The changes that a document makes to revision *number*.

    *differences* is data for JSON. *problems* has the warnings about the document, and the errors
    that make it invalid; *policy* is None then. *before* is the policy of the revision, without
    rules if it is invalid.
    """

    number: int
    differences: Data
    problems: tuple[Problem, ...]
    before: Policy
    policy: Policy | None
    consequences: tuple[Consequence, ...] = ()

    @property
    def rules_changed(self) -> tuple[str, ...]:
        """The ids of the rules that exist before and after, and differ."""
        rules = self.differences["rules"]
        return tuple(one["rule_id"] for one in rules if one["change"] == "changed")


def preview_of(
    newest: Revision, document: Mapping[str, Any], memory: RuleCache | None = None
) -> Preview:
    """Preview *document* in place of *newest*. Rules in *memory* are not validated again."""
    before = examine_policy_data(newest.document, cache=memory).policy or Policy()
    examined = examine_policy_data(document, cache=memory)
    policy = examined.policy
    found = differences(newest.document, document)
    effects = () if policy is None else tuple(consequences(before, policy))
    return Preview(newest.number, found, examined.problems, before, policy, effects)


# ---- consequences for callers --------------------------------------------------------------

_STARTS: Final = "it begins to deny requests"


def consequences(before: Policy, after: Policy) -> Iterator[Consequence]:
    """The consequences of *after* in place of *before*, rule by rule."""
    old = {rule.id: rule for rule in before.rules}
    new = {rule.id: rule for rule in after.rules}
    for name, rule in new.items():
        for effect, message in _of_rule(old.get(name), rule):
            yield Consequence(name, effect, message)
    for name, rule in new.items():
        if name in old:
            for effect, message in _of_overload(old[name], rule, before, after):
                yield Consequence(name, effect, message)
    for name, rule in old.items():
        if name not in new and rule.mode != "off" and rule.candidate_of is None:
            yield Consequence(name, "gone", "it no longer limits anything")


def _of_rule(old: Rule | None, new: Rule) -> Iterator[tuple[Effect, str]]:
    if old is None:
        if new.mode == "enforce":
            yield "new", _STARTS
        return
    if old.mode != new.mode:
        ends = ": it no longer denies requests" if old.mode == "enforce" else ""
        ends = f": {_STARTS}" if new.mode == "enforce" else ends
        yield "mode", f"from {old.mode} to {new.mode}{ends}"
    if old.key_by != new.key_by:
        yield "counters", "it counts by another key: every caller begins with a new counter"
    if old.match != new.match:
        yield "match", "it matches other requests"
    if (old.fair is None) == (new.fair is None):  # else it has limits before or after, not both
        for tier in dict.fromkeys((*old.limits, *new.limits)):
            who = "" if tier is None else f"tier {tier}: "
            usual = old.limits.get(None, ()), new.limits.get(None, ())
            limits = old.limits.get(tier, usual[0]), new.limits.get(tier, usual[1])
            for effect, message in _of_limits(*limits):
                yield effect, f"{who}{message}"


def _of_limits(old: Limits, new: Limits) -> Iterator[tuple[Effect, str]]:
    was, now = ("; ".join(map(str, one)) if one else "not limited" for one in (old, new))
    if len(old) != len(new):
        yield "tighter" if len(new) > len(old) else "looser", f"was {was}, now {now}"
    elif old != new:
        for one, other in zip(old, new, strict=True):
            yield from _of_limit(one, other)


def _of_limit(old: Limit, new: Limit) -> Iterator[tuple[Effect, str]]:
    if old.algorithm != new.algorithm:
        is_reset = isinstance(old, Concurrency) or isinstance(new, Concurrency)
        kept = ": the counters are reset" if is_reset else "; what was used is carried over"
        yield "algorithm", f"{old.algorithm} becomes {new.algorithm}{kept}"
    rates = _per_second(old), _per_second(new)
    if new.quota < old.quota or rates[1] < rates[0]:
        yield "tighter", f"was {old}, now {new}"
    if new.quota > old.quota or rates[1] > rates[0]:
        yield "looser", f"was {old}, now {new}"
    if isinstance(old, Concurrency) and isinstance(new, Concurrency):
        yield from _of_shares(old, new)


def _per_second(limit: Limit) -> Fraction:
    if isinstance(limit, Concurrency):
        return Fraction(0)
    return Fraction(limit.quota * SECOND, limit.period_ns)


def _of_shares(old: Concurrency, new: Concurrency) -> Iterator[tuple[Effect, str]]:
    """Guaranteed slots that change. Slots that are held stay with their holders."""
    before, after = dict(old.shares), dict(new.shares)
    for name in dict.fromkeys((*before, *after)):
        slots, now = before.get(name, 0), after.get(name, 0)
        if slots != now:
            message = f"{name} was guaranteed {slots or 'no'} slots, now {now or 'none'}"
            yield "looser" if now > slots else "tighter", message
    if old.lends != new.lends:
        message = f"others may {'' if new.lends else 'no longer '}use idle guaranteed slots"
        yield "looser" if new.lends else "tighter", message


def _of_overload(
    old: Rule, new: Rule, before: Policy, after: Policy
) -> Iterator[tuple[Effect, str]]:
    """Consequences of fair queues, reserved slots, priorities and pressure."""
    if old.fair != new.fair:
        yield "algorithm", _fair_message(old, new)
    reserved = _reserved(old), _reserved(new)
    for kind in PRIORITIES:
        one, other = (kept.get(kind) for kept in reserved)
        if one != other:
            message = f"{_percent(one)} of the slots was reserved for {kind} requests"
            effect: Effect = "tighter" if (other or 0) > (one or 0) else "looser"
            yield effect, f"{message}, now {_percent(other)}"
    if old.share_by != new.share_by and new.share_by is not None:
        yield "match", f"shares go by {new.share_by}: callers have other ones"
    if old.floor != new.floor:
        # Without a floor pressure does not lower the limits, as if that were 100%.
        is_lower = (1 if new.floor is None else new.floor) < (1 if old.floor is None else old.floor)
        message = f"pressure lowered its limits {_lowered(old)}, now {_lowered(new)}"
        yield "tighter" if is_lower else "looser", message
    goes_by_class = bool(reserved[1]) or new.share_by == BY_PRIORITY
    if goes_by_class and before.priorities != after.priorities:
        yield "match", "the priorities of requests change"
    if new.floor is not None and before.pressure != after.pressure:
        yield "algorithm", "other signals of pressure lower its limits"


def _fair_message(old: Rule, new: Rule) -> str:
    if new.fair is None:
        return "requests no longer queue fairly: they are counted against limits"
    if old.fair is None:
        return "requests queue fairly in each process: the counters stay as they are"
    return "requests queue in another way; waiting requests keep waiting"


def _reserved(rule: Rule) -> Mapping[Priority, Fraction]:
    return rule.reserve if rule.fair is None else rule.fair.reserve


def _lowered(rule: Rule) -> str:
    return "not at all" if rule.floor is None else f"to {_percent(rule.floor)} at the lowest"


def _percent(share: Fraction | None) -> str:
    return "nothing" if share is None else f"{float(share) * 100:g}%"
