"""What of a rule's match Envoy can see, as conditions on headers, and those as xDS predicates.

Envoy has several lines of a header as one text with commas between. Headgate looks at the first
line for who is asking, and at each line for what must be there; a text that could be either is
taken for what makes a rule fit, so that no rule is escaped by sending a header twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.gateway.envoy.paths import flaw_of, path_regex
from headgate.gateway.envoy.values import extension
from headgate.rules.matching.host import normalised_host

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.gateway.envoy.values import Json
    from headgate.rules.model import Identity, Match

TIER: Final = "tier"
ANYTHING: Final = r"\C*"
STATED: Final = r"[^,\s]\C*"
"""What a header looks like whose first line says something."""

_MORE_LINES: Final = r"(?:,\C*)?"
_LINES_BEFORE: Final = r"(?:\C*,)?"
_BLANKS: Final = f"[\\s{''.join(filter(str.isspace, map(chr, range(0x80, 0x3001))))}]*"
_PLAIN_HOST: Final = re.compile(r"(?:\*\.)?[a-z0-9._-]+")
_INPUT: Final = "envoy.type.matcher.v3.HttpRequestHeaderMatchInput"


@dataclass(frozen=True, slots=True)
class Condition:
    """The text of *header* must look like *regex*, or must not. One that is missing is empty;
    with None for *regex* it must be there, empty or not."""

    header: str
    regex: str | None
    is_inverted: bool = False


def conditions_of(match: Match, identity: Identity) -> tuple[Condition, ...]:
    """What requests look like that *match* may be for: every one that it is for, and those that
    differ from them in what Envoy cannot see."""
    found = []
    path = path_regex(match.endpoints)
    if path is not None:
        found.append(Condition(":path", path))
    if match.methods:
        names = {*match.methods, *(("HEAD",) if "GET" in match.methods else ())}
        found.append(Condition(":method", f"(?i)(?:{_any_of(sorted(names))})"))
    if match.hosts and "*" not in match.hosts:
        found.append(Condition(":authority", host_regex(match.hosts)))
    for name, values in match.headers:
        found.append(Condition(name.lower(), None if values is None else _line_regex(values)))
    if match.tiers and identity.sources[TIER].header is not None:
        found.append(tier_condition(match.tiers, identity))
    return tuple(found)


def unseen_in(match: Match, identity: Identity) -> str:
    """What of *match* Envoy cannot see, in words; "" if it sees all."""
    for endpoint in match.endpoints:
        flaw = flaw_of(endpoint)
        if flaw:
            return f"its endpoint {endpoint} {flaw}"
    if match.cookies:
        return "it matches by a cookie, which Envoy cannot compare"
    if match.attributes:
        return "it matches by an attribute, which Envoy does not have"
    if not all(host == "*" or _PLAIN_HOST.fullmatch(host) for host in match.hosts):
        return "it matches by a host that has many spellings"
    if match.tiers and identity.sources[TIER].header is None:
        return "it matches by a tier that is not in a header, where Envoy could see it"
    return ""


def tier_condition(tiers: Iterable[str], identity: Identity) -> Condition:
    """That the caller's tier is one of *tiers*, where a header tells it."""
    source = identity.sources[TIER]
    names = _any_of(tiers)
    stated = f"(?:{names})?" if source.default in set(tiers) else f"(?:{names})"
    return Condition(source.header or "", f"{stated}{_MORE_LINES}")


def host_regex(hosts: Iterable[str]) -> str:
    """The spellings of *hosts*: in any case, with a user, a port, dots at the end."""
    told = []
    for host in hosts:
        if not _PLAIN_HOST.fullmatch(host):
            return ANYTHING
        wild = host.startswith("*.")
        name = re.escape(normalised_host(host[2:] if wild else host))
        told.append(rf"[^:]*\.{name}" if wild else name)
    return rf"(?i)(?:\C*@)?(?:{'|'.join(told)})\.*(?::[^:]*)?"


def _line_regex(values: Iterable[str]) -> str:
    """One line or more, of which one is one of *values*, with blanks around it or not."""
    return f"{_LINES_BEFORE}{_BLANKS}(?:{_any_of(values)}){_BLANKS}{_MORE_LINES}"


def header_matcher(condition: Condition) -> Json:
    """*condition* as rate limit actions have it. Its expression must be small."""
    made: Json = {"name": condition.header, "invert_match": condition.is_inverted}
    if condition.regex is None:
        return {**made, "present_match": True}
    return {
        **made,
        "string_match": {"safe_regex": {"regex": condition.regex}},
        "treat_missing_header_as_empty": True,
    }


def header_input(name: str) -> Json:
    """The text of a header, as matchers and buckets take it."""
    return extension(name, _INPUT, header_name=name)


def predicate_of(conditions: Sequence[Condition]) -> Json:
    """That all *conditions* hold, of which there is one at least."""
    return _joined("and_matcher", list(map(_predicate, conditions)))


def either(predicates: Sequence[Json]) -> Json:
    """That one of *predicates* holds, of which there is one at least."""
    return _joined("or_matcher", list(predicates))


def negated(predicate: Json) -> Json:
    """That *predicate* does not hold."""
    return {"not_matcher": predicate}


def _predicate(condition: Condition) -> Json:
    regex = condition.regex
    made = _looks(condition.header, ANYTHING if regex is None else regex)
    if regex is not None and re.fullmatch(regex.replace(r"\C", r"[\s\S]"), ""):
        made = either([made, negated(_looks(condition.header, ANYTHING))])
    return negated(made) if condition.is_inverted else made


def _looks(header: str, regex: str) -> Json:
    match = {"safe_regex": {"google_re2": {}, "regex": regex}}
    return {"single_predicate": {"input": header_input(header), "value_match": match}}


def _joined(kind: str, predicates: list[Json]) -> Json:
    return predicates[0] if len(predicates) == 1 else {kind: {"predicate": predicates}}


def _any_of(values: Iterable[str]) -> str:
    return "|".join(map(re.escape, values))
