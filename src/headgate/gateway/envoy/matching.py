"""The match of a rule in the form of Envoy: conditions on headers, and their xDS predicates.

Envoy joins several lines of a header with commas. Headgate identifies a caller by the first line
and matches any line. An ambiguous text is read in the way in which the rule matches, so that
no caller escapes a rule by sending a header twice.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headgate.gateway.envoy.values import extension
from headgate.policy.conditions import normalised_host
from headgate.policy.path import ANY, ONE, compiled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.gateway.envoy.values import Json
    from headgate.policy.model import Identity, Match, Rule


# Patterns of endpoints as regular expressions over what Envoy has as the path.
#
# Envoy's paths include the query and are normalised: dots resolved, slashes merged, escaped plain
# letters decoded, escaped slashes rejected. `headgate.policy.path` has the readings of the rest: a
# rule matches a request if it matches any reading.
#
# - Paths of ordinary clients are matched exactly: letters in any case, escapes of `(` and the like,
#   a slash or dots at the end, `;x=1`, `%3F` and `%23` as the end of the path or not.
# - Paths of evasion (control characters, overlong forms, escaped letters and slashes, blanks around
#   segments, segments of only dots or parameters) match every pattern. A rule that does not match
#   them may limit them; a rule that matches them always does.
#
# RE2 matches the whole text. `\C` is any byte.


_PLAIN: Final = re.compile(r"[a-z0-9_~!$&'()*+,=:@.-]+")
_OFTEN_ESCAPED: Final = frozenset("!$&'()*+,=:@")

_REST: Final = r"(?:(?:\?|%3f|%23)\C*)?"
_SEGMENT: Final = "[^/?]+"
_PARAMETERS: Final = "(?:(?:;|%3b)[^/?]*)?"
_LONE_BLANKS: Final = "%85|%a0"
_BLANKS: Final = (
    "%20|%c2%(?:85|a0)|%e1%9a%80|%e2%80%(?:8[0-9a]|a[89]|af)|%e2%81%9f|%e3%80%80|%ef%bb%bf"
)
_ODD_ESCAPES: Final = "[01][0-9a-f]|7f|2[def]|3[0-9]|[46][1-9a-f]|[57][0-9a]|5[cf]|7e|c[01]"
_ODD: Final = (
    r"(?:[^/]\C*)?"
    rf"|[^?]*(?:[^!-~]|[#\\]|%(?:{_ODD_ESCAPES})|/(?:;|%3b|{_BLANKS}|{_LONE_BLANKS}))\C*"
    rf"|[^?]*(?:{_BLANKS}|/\.)(?:\.|{_BLANKS}|{_LONE_BLANKS})*(?:(?:[/;?]|%3[bf]|%23)\C*)?"
)


def path_regex(endpoints: Iterable[str]) -> str | None:
    """The regular expression for the paths of *endpoints*; None if every path matches."""
    patterns = [compiled(one).segments for one in endpoints]
    if not patterns or (ANY,) in patterns:
        return None
    known = dict.fromkeys(map(_pattern, patterns))
    return f"(?i)(?:{'|'.join([*known, _ODD])})"


def flaw_of(endpoint: str) -> str:
    """The reason why the paths of *endpoint* cannot be matched exactly; "" if they can."""
    segments = compiled(endpoint).segments
    if segments.count(ANY) > 1:
        return "has ** in it more than once"
    if all(one in (ONE, ANY) or _PLAIN.fullmatch(one) for one in segments):
        return ""
    return "has letters in it that Envoy sees escaped"


def _pattern(segments: Sequence[str]) -> str:
    if segments.count(ANY) > 1:  # of very long paths the middle is not looked at by rules either
        last = len(segments) - 1 - segments[::-1].index(ANY)
        segments = (*segments[: segments.index(ANY)], *segments[last:])
    if segments[-1:] == (ANY,):
        return f"{_row(segments[:-1])}(?:(?:[/?]|%3f|%23)" + r"\C*)?"
    return f"{_row(segments) or '/'}/*{_REST}"


def _row(segments: Sequence[str]) -> str:
    return "".join(f"(?:/+{_SEGMENT})*" if one == ANY else f"/+{_one(one)}" for one in segments)


def _one(segment: str) -> str:
    if segment == ONE or not _PLAIN.fullmatch(segment):
        return _SEGMENT
    letters = "".join(map(_letter, segment))
    return rf"{letters}(?:\.|{_LONE_BLANKS})*{_PARAMETERS}"


def _letter(letter: str) -> str:
    if letter in _OFTEN_ESCAPED:
        return f"(?:{re.escape(letter)}|%{ord(letter):02x})"
    return re.escape(letter)


TIER: Final = "tier"
ANYTHING: Final = r"\C*"
STATED: Final = r"[^,\s]\C*"
"""Matches a header whose first line is not empty."""

_MORE_LINES: Final = r"(?:,\C*)?"
_LINES_BEFORE: Final = r"(?:\C*,)?"
_MATCHING_BLANKS: Final = f"[\\s{''.join(filter(str.isspace, map(chr, range(0x80, 0x3001))))}]*"
_PLAIN_HOST: Final = re.compile(r"(?:\*\.)?[a-z0-9._-]+")
_INPUT: Final = "envoy.type.matcher.v3.HttpRequestHeaderMatchInput"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on *header*: its text matches *regex*, or does not if *is_inverted*.

    A missing header counts as empty. Without *regex* the header must exist.
    """

    header: str
    regex: str | None
    is_inverted: bool = False


def conditions_of(match: Match, identity: Identity) -> tuple[Condition, ...]:
    """The conditions of requests that *match* may apply to: all that it applies to, and those
    that differ from them only in what Envoy cannot see."""
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


def requests_of(rules: Sequence[Rule], identity: Identity) -> Json | None:
    """The predicate of the requests that any of *rules* may match; None if that is all of them."""
    by_rest: dict[Match, dict[str, None]] = defaultdict(dict)
    for rule in rules:
        everywhere = ("/**",)
        rest = replace(rule.match, endpoints=(), cookies=(), attributes=(), models=())
        by_rest[rest] |= dict.fromkeys(rule.match.endpoints or everywhere)
    rows = [
        conditions_of(replace(rest, endpoints=tuple(endpoints)), identity)
        for rest, endpoints in by_rest.items()
    ]
    if not rows or not all(rows):
        return None
    return either(list(map(predicate_of, rows)))


def unseen_in(match: Match, identity: Identity) -> str:
    """The reason why Envoy cannot decide *match*; "" if it can."""
    for endpoint in match.endpoints:
        flaw = flaw_of(endpoint)
        if flaw:
            return f"its endpoint {endpoint} {flaw}"
    if match.cookies:
        return "it matches by a cookie, which Envoy cannot compare"
    if match.models:
        return "it matches by a model, which is in the body of a request"
    if match.attributes:
        return "it matches by an attribute, which Envoy does not have"
    if not all(host == "*" or _PLAIN_HOST.fullmatch(host) for host in match.hosts):
        return "it matches by a host that has many spellings"
    if match.tiers and identity.sources[TIER].header is None:
        return "it matches by a tier that is not in a header, where Envoy could see it"
    return ""


def tier_condition(tiers: Iterable[str], identity: Identity) -> Condition:
    """The condition that the caller's tier, which is in a header, is one of *tiers*."""
    source = identity.sources[TIER]
    names = _any_of(tiers)
    stated = f"(?:{names})?" if source.default in set(tiers) else f"(?:{names})"
    return Condition(source.header or "", f"{stated}{_MORE_LINES}")


def host_regex(hosts: Iterable[str]) -> str:
    """The regular expression for all spellings of *hosts*: case, user, dots at the end, and any
    text behind what ends a host."""
    names = []
    for host in hosts:
        if not _PLAIN_HOST.fullmatch(host):
            return ANYTHING
        wild = host.startswith("*.")
        name = re.escape(normalised_host(host[2:] if wild else host))
        names.append(rf"[^:]*\.{name}" if wild else name)
    return rf"(?i)(?:\C*@)?(?:{'|'.join(names)})\.*(?:[:/?#\\]\C*)?"


def _line_regex(values: Iterable[str]) -> str:
    """Matches lines of which one is one of *values*, with or without blanks around it."""
    return f"{_LINES_BEFORE}{_MATCHING_BLANKS}(?:{_any_of(values)}){_MATCHING_BLANKS}{_MORE_LINES}"


def header_matcher(condition: Condition) -> Json:
    """*condition* in the form of rate limit actions, which take only small expressions."""
    made: Json = {"name": condition.header, "invert_match": condition.is_inverted}
    if condition.regex is None:
        return {**made, "present_match": True}
    return {
        **made,
        "string_match": {"safe_regex": {"regex": condition.regex}},
        "treat_missing_header_as_empty": True,
    }


def header_input(name: str) -> Json:
    """The text of a header as an input of matchers and buckets."""
    return extension(name, _INPUT, header_name=name)


def predicate_of(conditions: Sequence[Condition]) -> Json:
    """The predicate that all *conditions*, at least one, hold."""
    return _joined("and_matcher", list(map(_predicate, conditions)))


def either(predicates: Sequence[Json]) -> Json:
    """The predicate that one of *predicates*, at least one, holds."""
    return _joined("or_matcher", list(predicates))


def negated(predicate: Json) -> Json:
    """The predicate that *predicate* does not hold."""
    return {"not_matcher": predicate}


def _predicate(condition: Condition) -> Json:
    regex = condition.regex
    made = looks(condition.header, ANYTHING if regex is None else regex)
    if regex is not None and re.fullmatch(regex.replace(r"\C", r"[\s\S]"), ""):
        made = either([made, negated(looks(condition.header, ANYTHING))])
    return negated(made) if condition.is_inverted else made


def looks(header: str, regex: str) -> Json:
    """The predicate that the text of *header* matches *regex*."""
    match = {"safe_regex": {"google_re2": {}, "regex": regex}}
    return {"single_predicate": {"input": header_input(header), "value_match": match}}


def _joined(kind: str, predicates: list[Json]) -> Json:
    return predicates[0] if len(predicates) == 1 else {kind: {"predicate": predicates}}


def _any_of(values: Iterable[str]) -> str:
    return "|".join(map(re.escape, values))
