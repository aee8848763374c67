"""What would change if a document became the policy. Nothing is changed."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal

from headgate.control.documents import rules_by_id
from headgate.limits import Concurrency
from headgate.policy.loader import RuleMemory, examine_policy_data
from headgate.policy.model import BY_PRIORITY, PRIORITIES, Policy
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headgate.control.documents import Data
    from headgate.control.revision import Revision
    from headgate.engine.rule import Priority
    from headgate.limits import Limit
    from headgate.policy.model import Rule
    from headgate.policy.problems import Problem


# What a change of turns, reserves, classes and pressure means for a rule, in words.


if TYPE_CHECKING:
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


# What a change of rules means for those who are limited, in words.


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


# What differs between two documents: rules added, removed, moved, changed field by field.


Kind = Literal["added", "removed", "changed"]


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field, as a dotted path, that is otherwise; None where it is not there."""

    field: str
    before: Any = None
    after: Any = None


@dataclass(frozen=True, slots=True)
class RuleChange:
    """A rule that is new, gone or otherwise."""

    rule: str
    kind: Kind
    fields: tuple[FieldChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Differences:
    """All that differs. *is_reordered*: the rules that stay are in another order."""

    rules: tuple[RuleChange, ...] = ()
    is_reordered: bool = False
    identity: tuple[FieldChange, ...] = ()
    overrides_added: tuple[Data, ...] = ()
    overrides_removed: tuple[Data, ...] = ()
    priority: tuple[FieldChange, ...] = ()
    pressure: tuple[FieldChange, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs."""
        return self == Differences()


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Differences:
    """What is otherwise in *after* than in *before*."""
    old, new = rules_by_id(before), rules_by_id(after)
    changes = [*_changed(old, new)]
    stay = [name for name in old if name in new]
    old_overrides, new_overrides = _listed(before), _listed(after)
    return Differences(
        tuple(changes),
        is_reordered=stay != [name for name in new if name in old],
        identity=tuple(_fields("identity", before.get("identity"), after.get("identity"))),
        overrides_added=tuple(one for one in new_overrides if one not in old_overrides),
        overrides_removed=tuple(one for one in old_overrides if one not in new_overrides),
        priority=tuple(_fields("priority", before.get("priority"), after.get("priority"))),
        pressure=tuple(_fields("pressure", before.get("pressure"), after.get("pressure"))),
    )


def to_data(found: Differences) -> Data:
    """The same for JSON."""
    return {
        "rules": [
            {"rule_id": one.rule, "change": one.kind, "fields": _fields_to_data(one.fields)}
            for one in found.rules
        ],
        "reordered": found.is_reordered,
        "identity": _fields_to_data(found.identity),
        "overrides": {
            "added": list(found.overrides_added),
            "removed": list(found.overrides_removed),
        },
        "priority": _fields_to_data(found.priority),
        "pressure": _fields_to_data(found.pressure),
    }


def _fields_to_data(fields: Sequence[FieldChange]) -> list[Data]:
    return [{"field": one.field, "before": one.before, "after": one.after} for one in fields]


def _changed(old: Mapping[str, Data], new: Mapping[str, Data]) -> Iterator[RuleChange]:
    for name, rule in new.items():
        if name not in old:
            yield RuleChange(name, "added", tuple(_fields("", {}, _bare(rule))))
        elif old[name] != rule:
            yield RuleChange(name, "changed", tuple(_fields("", _bare(old[name]), _bare(rule))))
    for name, rule in old.items():
        if name not in new:
            yield RuleChange(name, "removed", tuple(_fields("", _bare(rule), {})))


def _bare(rule: Mapping[str, Any]) -> Data:
    return {name: value for name, value in rule.items() if name != "id"}


def _fields(path: str, before: object, after: object) -> Iterator[FieldChange]:
    """The fields that differ, mappings gone through (documents are not deep)."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            inner = f"{path}.{name}" if path else str(name)
            yield from _fields(inner, before.get(name), after.get(name))
    else:
        yield FieldChange(path, before, after)


def _listed(document: Mapping[str, Any]) -> list[Data]:
    found = document.get("overrides")
    return found if isinstance(found, list) else []


@dataclass(frozen=True, slots=True)
class Preview:
    """What *after* would change of revision *number*.

    *problems* has the warnings about it, and the errors that would keep it out of force; *policy*
    is None then. *before* is the policy of the revision, without rules if it cannot be read.
    """

    number: int
    differences: Differences
    problems: tuple[Problem, ...]
    before: Policy
    policy: Policy | None
    consequences: tuple[Consequence, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether it could be put in force."""
        return self.policy is not None

    @property
    def rules_changed(self) -> tuple[str, ...]:
        """The ids of the rules that are there before and after, and are otherwise."""
        return tuple(one.rule for one in self.differences.rules if one.kind == "changed")


def preview_of(
    newest: Revision, document: Mapping[str, Any], memory: RuleMemory | None = None
) -> Preview:
    """What *document* would change of *newest*. What is in *memory* is not read again."""
    before = examine_policy_data(newest.document, memory=memory).policy or Policy()
    examined = examine_policy_data(document, memory=memory)
    policy = examined.policy
    found = differences(newest.document, document)
    told = () if policy is None else consequences(before, policy)
    return Preview(newest.number, found, examined.problems, before, policy, told)
