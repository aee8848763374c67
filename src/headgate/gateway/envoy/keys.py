"""The key of a rule in the form of Envoy: the variants of callers that a rule counts.

A caller identifies itself or does not. Each case is a variant, with its conditions and with the
entries that distinguish callers. `policy.identity.parts` does the same for the service.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.gateway.envoy.matching import STATED, TIER, Condition, tier_condition
from headgate.policy.conditions import normalised_host
from headgate.policy.envoy_config.attributes import ADDRESS, HOST, METHOD
from headgate.policy.identity.identifier import WITH_SCHEME
from headgate.policy.identity.parts import claim_of
from headgate.policy.model import GLOBAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.limits import Limit
    from headgate.policy.model import Fallback, Identity, Rule, Source

_AS_GET: Final = Condition(":method", "(?i)(?:GET|HEAD)")
_USUAL: Final = Condition(":method", "[A-Z-]{1,32}")
_UTF8: Final = (
    r"[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    r"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}"
    r"|\xf4[\x80-\x8f][\x80-\xbf]{2}"
)
"""A letter beyond ASCII: Envoy's expressions see bytes."""

_ONE_LINE: Final = rf"(?:[^,\x80-\xff]|{_UTF8})+"
LONGEST: Final = 2_000
"""The bytes of a header by which callers are distinguished: Envoy keeps all of them, twice."""

_TOO_LONG: Final = rf"\C{{1000}}\C{{{LONGEST - 1000}}}\C+"
_TOGETHER: Final = ","
"""The value of all callers whose header cannot distinguish them: it is too long; it has several
lines or commas where Envoy joins all lines; or it is not UTF-8, since Envoy would then keep the
bucket forever."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A part of a key: the text of *header*, the caller's address if that is None, or *value*."""

    key: str
    header: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """Callers for whom *conditions* hold, with a counter for each value of *entries*.

    With *is_lump* they share a counter although the service distinguishes them.
    """

    conditions: tuple[Condition, ...] = ()
    entries: tuple[Entry, ...] = ()
    is_lump: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Callers of the tier *name*, or of all other tiers, and their *limits*."""

    name: str
    conditions: tuple[Condition, ...]
    limits: tuple[Limit, ...]


def variants_of(rule: Rule, identity: Identity, *, joins_lines: bool) -> tuple[Variant, ...]:
    """All variants of callers that *rule* counts; they exclude each other.

    With *joins_lines* an entry has all lines of a header as one text. Callers that send several
    lines then share a counter; otherwise they could have as many as they like.
    """
    rows = [_alternatives(part, rule, identity, joins_lines=joins_lines) for part in rule.key_by]
    return tuple(_together(row) for row in product(*rows))


def groups_of(rule: Rule, identity: Identity) -> tuple[Group, ...]:
    """The groups of callers with limits of their own under *rule*; they exclude each other."""
    tiers = [tier for tier in rule.limits if tier is not None]
    matched = set(rule.match.tiers or tiers)
    found = []
    for tier in tiers:
        if tier in matched:
            condition = tier_condition([tier], identity)
            found.append(Group(tier, (condition,), rule.limits[tier]))
    others = rule.limits.get(None, ())
    if others and not (rule.match.tiers and matched <= set(tiers)):
        apart = [tier_condition([tier], identity) for tier in tiers]
        rest = tuple(Condition(one.header, one.regex, is_inverted=True) for one in apart)
        found.append(Group("*", rest, others))
    return tuple(one for one in found if one.limits)


def uncountable_in(rule: Rule, identity: Identity, *, has_addresses: bool) -> str:
    """The reason why Envoy cannot count by the key or the limits of *rule*; "" if it can.

    *has_addresses* is False if clients connect to a unix socket, where they have no address.
    """
    for part in rule.key_by:
        flaw = _flaw(part, rule, identity, has_addresses=has_addresses)
        if flaw:
            return flaw
    if all(tier is None for tier in rule.limits):
        return ""
    name = identity.sources[TIER].header
    if name is None:
        return "its limits go by a tier that is not in a header, where Envoy could see it"
    is_key = TIER in rule.key_by or f"header:{name}" in rule.key_by
    return "both its limits and its key go by the tier" if is_key else ""


def _flaw(part: str, rule: Rule, identity: Identity, *, has_addresses: bool) -> str:
    without_address = "clients of a unix socket have no address that Envoy could count by"
    if part == "endpoint":
        return "its key has the endpoint in it, which has many spellings"
    if part == "host" and not _only_host(rule):
        return "its key has the host in it, which has many spellings"
    if part == "ip":
        return "" if has_addresses else without_address
    if part in (GLOBAL, "host", "method"):
        return ""
    source = claim_of(part, identity).source
    if source.cookie is not None:
        return "its key has a cookie in it, which Envoy cannot count by"
    if source.header is None:
        return f"its key has {part} in it, which is not in a header"
    if source.header in WITH_SCHEME:
        return f"its key has {source.header} in it, whose scheme has many spellings"
    falls_back = source.default is None and identity.fallback == "ip"
    return without_address if falls_back and not has_addresses else ""


def _alternatives(
    part: str, rule: Rule, identity: Identity, *, joins_lines: bool
) -> Sequence[Variant]:
    if part == GLOBAL:
        return [Variant()]
    if part == "ip":
        return [Variant(entries=(Entry(ADDRESS),))]
    if part == "host":
        return [Variant(entries=(Entry(HOST, value=normalised_host(_only_host(rule))),))]
    if part == "method":
        return _methods()
    source = claim_of(part, identity).source
    return _claims(source, identity.fallback, joins_lines=joins_lines)


def _methods() -> list[Variant]:
    """HEAD counts as GET; unusual methods share a counter, so that callers cannot invent more."""
    others = Condition(_AS_GET.header, _AS_GET.regex, is_inverted=True)
    odd = Condition(_USUAL.header, _USUAL.regex, is_inverted=True)
    return [
        Variant((_AS_GET,), (Entry(METHOD, value="GET"),)),
        Variant((others, _USUAL), (Entry(METHOD, header=":method"),)),
        Variant((others, odd), (Entry(METHOD, value="-"),)),
    ]


def _claims(source: Source, fallback: Fallback, *, joins_lines: bool) -> list[Variant]:
    name = source.header
    if name is None:
        raise OptionError(f"{source!r} has no header to count by")
    stated = Condition(name, STATED)
    own, together = (Entry(name, header=name),), (Entry(name, value=_TOGETHER),)
    is_long = Condition(name, _TOO_LONG)
    alone = [stated, replace(is_long, is_inverted=True)]
    found = [Variant((stated, is_long), together, is_lump=True)]
    if joins_lines:
        is_one = Condition(name, _ONE_LINE)
        others = (*alone, replace(is_one, is_inverted=True))
        found.append(Variant(others, together, is_lump=True))
        alone.append(is_one)
    found.insert(0, Variant(tuple(alone), own))
    missing = (replace(stated, is_inverted=True),)
    if source.default is not None:
        found.append(Variant(missing, (Entry(name, value=source.default),)))
    elif fallback == "ip":
        found.append(Variant(missing, (Entry(ADDRESS),)))
    elif fallback == "shared":
        found.append(Variant(missing))
    return found


def _only_host(rule: Rule) -> str:
    """The only host that *rule* matches; "" if there are several."""
    hosts = rule.match.hosts
    return hosts[0] if len(hosts) == 1 and "*" not in hosts[0] else ""


def _together(row: Sequence[Variant]) -> Variant:
    conditions = dict.fromkeys(one for variant in row for one in variant.conditions)
    entries = dict.fromkeys(one for variant in row for one in variant.entries)
    return Variant(tuple(conditions), tuple(entries), any(one.is_lump for one in row))
