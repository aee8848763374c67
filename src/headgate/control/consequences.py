"""What a change of rules means for those who are limited, in words."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal

from headgate.control.soft_consequences import soft_changes
from headgate.limits import Concurrency
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headgate.limits import Limit
    from headgate.rules.model import Policy, Rule

Effect = Literal["tighter", "looser", "counters", "algorithm", "mode", "match", "gone", "new"]
"""What kind of consequence it is, for programs."""

_STARTS: Final = "it begins to refuse requests"


@dataclass(frozen=True, slots=True)
class Consequence:
    """What changes for callers under *rule*."""

    rule: str
    effect: Effect
    message: str


def consequences(before: Policy, after: Policy) -> tuple[Consequence, ...]:
    """What it means that *after* takes the place of *before*, rule by rule."""
    old = {rule.id: rule for rule in before.rules}
    new = {rule.id: rule for rule in after.rules}
    found = [one for name in new for one in _of_rule(old.get(name), new[name])]
    for name, rule in new.items():
        if name in old:
            changes = soft_changes(old[name], rule, before, after)
            found += [Consequence(name, effect, told) for effect, told in changes]
    for name, rule in old.items():
        if name not in new and rule.mode != "off" and rule.candidate_of is None:
            found.append(Consequence(name, "gone", "what it limited is not limited by it any more"))
    return tuple(found)


def _of_rule(old: Rule | None, new: Rule) -> Iterator[Consequence]:
    if old is None:
        if new.mode == "enforce":
            yield Consequence(new.id, "new", _STARTS)
        return
    if old.mode != new.mode:
        yield Consequence(new.id, "mode", _mode(old, new))
    if old.key_by != new.key_by:
        told = "it counts by something else: everybody begins with a fresh counter"
        yield Consequence(new.id, "counters", told)
    if old.match != new.match:
        yield Consequence(new.id, "match", "it is for other requests")
    if (old.fair is None) != (new.fair is None):
        return  # it has limits before or after, not both
    for tier in dict.fromkeys((*old.limits, *new.limits)):
        yield from _of_tier(new.id, tier, old.limits, new.limits)


def _mode(old: Rule, new: Rule) -> str:
    if new.mode == "enforce":
        return f"from {old.mode} to enforce: {_STARTS}"
    stops = ": it refuses nothing any more" if old.mode == "enforce" else ""
    return f"from {old.mode} to {new.mode}{stops}"


def _of_tier(
    rule: str,
    tier: str | None,
    old: Mapping[str | None, tuple[Limit, ...]],
    new: Mapping[str | None, tuple[Limit, ...]],
) -> Iterator[Consequence]:
    """What changes for callers of *tier*; those of None are all that no other tier is named for."""
    who = "" if tier is None else f"tier {tier}: "
    before, after = old.get(tier, old.get(None, ())), new.get(tier, new.get(None, ()))
    if before == after:
        return
    if not before:
        yield Consequence(rule, "tighter", f"{who}was not limited, now {_said(after)}")
    elif not after:
        yield Consequence(rule, "looser", f"{who}was {_said(before)}, now not limited")
    elif len(before) != len(after):
        effect: Effect = "tighter" if len(after) > len(before) else "looser"
        yield Consequence(rule, effect, f"{who}was {_said(before)}, now {_said(after)}")
    else:
        for one, other in zip(before, after, strict=True):
            yield from _of_limit(rule, who, one, other)


def _of_limit(rule: str, who: str, old: Limit, new: Limit) -> Iterator[Consequence]:
    if old.algorithm != new.algorithm:
        told = f"{who}{old.algorithm} becomes {new.algorithm}; what was used is carried over"
        if isinstance(old, Concurrency) or isinstance(new, Concurrency):
            told = f"{who}{old.algorithm} becomes {new.algorithm}: the counters begin anew"
        yield Consequence(rule, "algorithm", told)
    for effect in _direction(old, new):
        yield Consequence(rule, effect, f"{who}was {old}, now {new}")
    if isinstance(old, Concurrency) and isinstance(new, Concurrency):
        yield from _of_shares(rule, who, old, new)


def _of_shares(rule: str, who: str, old: Concurrency, new: Concurrency) -> Iterator[Consequence]:
    """Who is guaranteed more slots, or fewer. Slots that are held stay with whom they are."""
    before, after = dict(old.shares), dict(new.shares)
    for name in dict.fromkeys((*before, *after)):
        slots, now = before.get(name, 0), after.get(name, 0)
        if slots != now:
            told = f"{who}{name} was guaranteed {slots or 'no'} slots, now {now or 'none'}"
            yield Consequence(rule, "looser" if now > slots else "tighter", told)
    if old.lends != new.lends:
        told = f"{who}guaranteed slots that lie idle are {'' if new.lends else 'no longer '}lent"
        yield Consequence(rule, "looser" if new.lends else "tighter", told)


def _direction(old: Limit, new: Limit) -> list[Effect]:
    """Whether *new* lets less through, or more, or both, at once and in the long run."""
    less: Effect = "tighter"
    more: Effect = "looser"
    quotas, rates = (old.quota, new.quota), (_per_second(old), _per_second(new))
    is_less = quotas[1] < quotas[0] or rates[1] < rates[0]
    is_more = quotas[1] > quotas[0] or rates[1] > rates[0]
    return [*([less] if is_less else []), *([more] if is_more else [])]


def _per_second(limit: Limit) -> Fraction:
    if isinstance(limit, Concurrency):
        return Fraction(0)
    return Fraction(limit.quota * SECOND, limit.period_ns)


def _said(limits: tuple[Limit, ...]) -> str:
    return "; ".join(str(limit) for limit in limits)
