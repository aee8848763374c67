"""What a change of turns, reserves, classes and pressure means for a rule, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from headgate.rules.soft import BY_PRIORITY, PRIORITIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from fractions import Fraction

    from headgate.rules.model import Policy, Rule
    from headgate.rules.soft import Priority

    Change = Literal["tighter", "looser", "algorithm", "match"]


def soft_changes(
    old: Rule, new: Rule, before: Policy, after: Policy
) -> Iterator[tuple[Change, str]]:
    """What is otherwise for callers of a rule that was *old*, in the policy *before*: of what kind
    it is, and the words."""
    if old.fair != new.fair:
        yield "algorithm", _turns(old, new)
    for kind in PRIORITIES:
        yield from _share(f"kept for {kind} requests", _kept(old).get(kind), _kept(new).get(kind))
    if old.share_by != new.share_by and new.share_by is not None:
        yield "match", f"shares go by {new.share_by}: callers have other ones"
    yield from _floor(old.floor, new.floor)
    if _goes_by_class(new) and before.priorities != after.priorities:
        yield "match", "other requests matter more, or less, than before"
    if new.floor is not None and before.pressure != after.pressure:
        yield "algorithm", "when its limits are lowered, or how far, is told in another way"


def _turns(old: Rule, new: Rule) -> str:
    if new.fair is None:
        return "requests take no turns any more: they are counted against limits"
    if old.fair is None:
        return "requests take turns in each process: what was counted is left as it is"
    return "requests take turns in another way; those who wait go on waiting"


def _kept(rule: Rule) -> Mapping[Priority, Fraction]:
    return rule.reserve if rule.fair is None else rule.fair.reserve


def _share(what: str, old: Fraction | None, new: Fraction | None) -> Iterator[tuple[Change, str]]:
    if old != new:
        is_more = (new or 0) > (old or 0)
        told = f"{_percent(old)} of the slots was {what}, now {_percent(new)}"
        yield "tighter" if is_more else "looser", told


def _floor(old: Fraction | None, new: Fraction | None) -> Iterator[tuple[Change, str]]:
    if old == new:
        return
    if new is None:
        yield "looser", "pressure does not lower its limits any more"
    elif old is None:
        yield "tighter", f"under pressure its limits are lowered, to no less than {_percent(new)}"
    else:
        told = f"pressure lowers its limits to {_percent(new)} at most, before to {_percent(old)}"
        yield "tighter" if new < old else "looser", told


def _goes_by_class(rule: Rule) -> bool:
    return bool(_kept(rule)) or rule.share_by == BY_PRIORITY


def _percent(share: Fraction | None) -> str:
    return "nothing" if share is None else f"{float(share) * 100:g}%"
