"""Checks of candidates: rules in shadow that are tried beside the rule that they may replace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.rules.reading.tree import Table, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headgate.rules.model import Rule
    from headgate.rules.reading.fields import Fields
    from headgate.rules.reading.findings import Spot
    from headgate.rules.reading.rules import Read

_FIELD: Final = "candidate_of"


def check_candidate(rule: Rule, fields: Fields) -> None:
    """Note what keeps *rule* from being tried, whatever the other rules are."""
    if rule.candidate_of is None:
        return
    if rule.mode == "enforce":
        told = "a candidate decides nothing, and this rule is in mode enforce"
        hint = f"expected mode: shadow with {_FIELD}; adopt it to have it decide"
        fields.spot_of("mode").wrong(told, hint=hint)
    if rule.candidate_of == rule.id:
        told = "the rule names itself"
        fields[_FIELD].wrong(told, hint="expected the id of the rule that it may replace")
    if rule.fair is not None:
        told = "turns cannot be tried: in shadow nobody takes any, so there is nothing to compare"
        fields["fair"].wrong(told, hint="expected limits, or a rule that is no candidate")


def check_candidates(read: Sequence[Read]) -> None:
    """Note which candidates do not stand beside one rule that decides, each beside its own."""
    rules = {one.rule.id: one.rule for one in read if one.rule is not None}
    unread = {one.id for one in read if one.rule is None}
    first: dict[str, str] = {}
    for one in read:
        rule = one.rule
        if rule is None or rule.candidate_of in (None, rule.id):
            continue
        live = rules.get(rule.candidate_of or "")
        if live is None:
            if rule.candidate_of not in unread:  # what is wrong with it is told of already
                _refuse_unknown(_spot(one), rule, rules.values())
        else:
            _check_pair(one, rule, live, first)


def _refuse_unknown(spot: Spot, rule: Rule, rules: Iterable[Rule]) -> None:
    known = [each.id for each in rules if each.candidate_of is None and each is not rule]
    told = f"there is no rule {shown(rule.candidate_of or '')} that it could be a candidate of"
    if known:
        spot.not_among(rule.candidate_of or "", known, told)
    else:
        spot.wrong(told, hint="expected the id of a rule of this policy")


def _check_pair(one: Read, rule: Rule, live: Rule, first: dict[str, str]) -> None:
    spot = _spot(one)
    if live.candidate_of is not None:
        told = f"the rule {shown(live.id)} is a candidate itself, of {shown(live.candidate_of)}"
        spot.wrong(told, hint="expected a rule that is none")
        return
    other = first.setdefault(live.id, rule.id)
    if other != rule.id:
        told = f"the rule {shown(live.id)} has a candidate already, {shown(other)}"
        spot.wrong(told, hint="expected one for each rule; compare others one after the other")
    elif live.fair is not None:
        told = f"requests under {shown(live.id)} take turns: there is nothing to compare with"
        spot.warn(told)
    elif live.mode == "off" and rule.mode != "off":
        spot.warn(f"the rule {shown(live.id)} is off: there is nothing to compare with")
    elif _content(live) == _content(rule):
        spot.warn(f"it is as the rule {shown(live.id)} is: there is nothing to find out")


def _content(rule: Rule) -> Mapping[str, object]:
    aside = ("id", "mode", "description", _FIELD)
    return {name: getattr(rule, name) for name in rule.__slots__ if name not in aside}


def _spot(one: Read) -> Spot:
    """Where it says what it is a candidate of; of a rule that was known before there is the whole
    rule only."""
    node = one.spot.node
    return (
        one.spot.child(_FIELD) if isinstance(node, Table) and _FIELD in node.entries else one.spot
    )
