"""Reading `overrides`: what is otherwise for single counters, for a while."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headgate.errors import LimitError
from headgate.limits import LeakyQueue, with_extra
from headgate.limits.model import LARGEST_QUOTA
from headgate.policy.loader import scalars
from headgate.policy.loader.diagnostics import Listing, Scalar, shown
from headgate.policy.loader.rule_cache import KnownOverride
from headgate.policy.loader.scalars import AN_INSTANT, Fields, instant_ns
from headgate.policy.model import Override

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headgate.policy.loader.diagnostics import Spot
    from headgate.policy.loader.rules import Read
    from headgate.policy.model import Rule

OVERRIDE_FIELDS: Final = ("rule", "key", "block", "extra", "until")

MOST_OVERRIDES: Final = 10_000
"""How many a policy may have."""

LONGEST_KEY: Final = 4_096
KEY: Final = rf"[!-~]{{1,{LONGEST_KEY}}}"
_KEY: Final = re.compile(KEY)
_A_KEY: Final = "the key of a counter as explain shows it, such as ip=203.0.113.7"


def read_overrides(given: Sequence[Spot], rules: Iterable[Read]) -> tuple[Override, ...]:
    """What the lists *given* say of counters of *rules*, in their order. What is wrong is noted."""
    known = {one.id: one.rule for one in rules if one.id is not None}
    found: dict[tuple[str, str], Override] = {}
    for spot in given:
        for child in _items(spot, MOST_OVERRIDES - len(found)):
            one = _read(child, known)
            if one is None:
                continue
            if (one.rule, one.key) in found:
                told = f"the rule {shown(one.rule)} has an override for this key already"
                child.child("key").wrong(told, hint="expected one for each key")
            found[one.rule, one.key] = one
    return tuple(found.values())


def _items(spot: Spot, most: int) -> list[Spot]:
    if not isinstance(spot.node, Listing):
        spot.expected("a list of overrides ([] for none)")
        return []
    if len(spot.node.items) > most:
        spot.wrong(f"more than {MOST_OVERRIDES} overrides; expected at most so many")
        return []
    return list(spot.children())


def _read(spot: Spot, rules: Mapping[str, Rule | None]) -> Override | None:
    if isinstance(spot.node, KnownOverride):
        return spot.node.override
    return _override(spot, rules)


def _override(spot: Spot, rules: Mapping[str, Rule | None]) -> Override | None:
    """One override; None, noted, if something is wrong with it."""
    before = spot.findings.errors
    fields = Fields.of(spot, OVERRIDE_FIELDS, "an override")
    if fields is None:
        return None
    rule = fields.need("rule", lambda own: _rule(own, rules), "the id of a rule")
    key = fields.need("key", _read_key, _A_KEY)
    until = fields.need("until", _until, AN_INSTANT)
    block = fields.read("block", _block, default=False)
    extra = fields.read("extra", _extra, 0)
    what = fields.present(("block", "extra"))
    if len(what) != 1 and not fields.meant.intersection(("block", "extra")):
        told = "found both" if what else "found none"
        spot.wrong(f"{told}, expected exactly one of block and extra")
    if rule is None or key is None or until is None or spot.findings.errors > before:
        return None
    _check_effect(spot, rules[rule])
    _check_extra(fields, rules[rule], extra)
    return Override(rule, key, until, extra, block)


def _rule(spot: Spot, rules: Mapping[str, Rule | None]) -> str | None:
    found = scalars.text(spot, "the id of a rule")
    if found is not None and found not in rules:
        spot.not_among(found, rules, f"there is no rule {shown(found)}")
        return None
    return found


def _read_key(spot: Spot) -> str | None:
    found = scalars.text(spot, _A_KEY)
    if found is not None and not _KEY.fullmatch(found):
        told = f"{shown(found)} is not the key of a counter"
        spot.wrong(told, hint=f"expected 1 to {LONGEST_KEY} printable characters of ASCII")
        return None
    return found


def _until(spot: Spot) -> int | None:
    node = spot.node
    found = instant_ns(node.text) if isinstance(node, Scalar) else None
    if found is None:
        spot.expected(AN_INSTANT)
    return found


def _block(spot: Spot) -> bool | None:
    said = scalars.boolean(spot)
    if said is False:
        spot.wrong("found false, expected true", hint="leave an override out that does nothing")
    return said


def _extra(spot: Spot) -> int | None:
    return scalars.whole(spot, 1, LARGEST_QUOTA)


def _check_effect(spot: Spot, rule: Rule | None) -> None:
    if rule is not None and rule.fair is not None:
        told = f"it has no effect: the rule {shown(rule.id)} has no counters, requests take turns"
        spot.warn(told)


def _check_extra(fields: Fields, rule: Rule | None, extra: int) -> None:
    """Note limits that cannot be larger by *extra*."""
    for limit in () if rule is None else [one for many in rule.limits.values() for one in many]:
        try:
            larger = with_extra(limit, extra)
        except LimitError as error:
            fields["extra"].wrong(f"{limit} cannot be larger by {extra}: {error}")
            return
        if extra and larger.quota == limit.quota:
            told = f"it has no effect on {limit}: it has no counter"
            if isinstance(limit, LeakyQueue):
                told = f"it has no effect on {limit}: the queue is longer, and nobody waits longer"
            fields["extra"].warn(told)
