"""The matcher beside an oracle that tries every rule; paths under all kinds of noise."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.engine.request import Request
from headgate.limits import TokenBucket
from headgate.policy.conditions import cost_of
from headgate.policy.matcher import CallerMatcher, Matcher
from headgate.policy.model import Cost, EndpointCost, Match, Policy, Rule
from headgate.policy.path import compiled, endpoints_of, normalised_path, readings
from tests.support.histories import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from headgate.engine.plan import Mode
    from headgate.limits import Limit

    Lookup = Callable[[str], Sequence[str]]

LIMITS: Mapping[str | None, tuple[Limit, ...]] = MappingProxyType({None: (TokenBucket(1, 1),)})
MODES: tuple[Mode, ...] = ("enforce", "enforce", "shadow", "off")

# Few words, so that rules and requests meet.
WORDS = ("a", "b", "c")
paths = st.lists(st.sampled_from((*WORDS, "A", "%61", ".", "..", "", "a;b", "b%2fc")), max_size=6)
patterns = st.lists(st.sampled_from((*WORDS, "*", "**", "**")), max_size=6).map(
    lambda segments: "/" + "/".join(segments)
)
some = st.sampled_from(("v", "w")).map(lambda value: (value,)) | st.just(("v", "w")) | st.none()
named = st.lists(st.tuples(st.sampled_from(("x", "y")), some), max_size=2).map(tuple)
hosts = ("a.test", "b.test", "*.test", "*.a.test", "x.a.test", "*")


def _several(values: Sequence[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.just(()) | st.lists(st.sampled_from(values), min_size=1, max_size=2).map(tuple)


matches = st.builds(
    Match,
    endpoints=st.lists(patterns, max_size=2).map(tuple),
    methods=_several(("GET", "POST", "HEAD")),
    hosts=_several(hosts),
    tiers=_several(("free", "paid")),
    headers=named,
    cookies=named,
    attributes=named,
)
sparse = st.sampled_from(
    ("endpoints", "methods", "hosts", "tiers", "headers", "attributes")
).flatmap(lambda kept: matches.map(lambda match: Match(**{kept: getattr(match, kept)})))
policies = st.lists(
    st.tuples(matches | sparse, st.sampled_from(MODES)),
    max_size=30,
).map(
    lambda drawn: Policy(
        tuple(
            Rule(str(at), match, ("ip",), LIMITS, mode=mode)
            for at, (match, mode) in enumerate(drawn)
        )
    )
)
values = st.sampled_from(("v", "w", "z"))
header_lines = st.lists(
    st.tuples(st.sampled_from(("x", "X", "y")), values)
    | st.tuples(st.just("cookie"), st.sampled_from(("x=v", "y=w; x=z", "x=w; x=v"))),
    max_size=4,
).map(tuple)
requests = st.builds(
    Request,
    method=st.sampled_from(("GET", "POST", "post", "HEAD", "head")),
    path=paths.map(lambda segments: "/" + "/".join(segments)),
    host=st.sampled_from(("", "a.test", "A.test:80", "b.test.", "x.a.test", "y.x.a.test", "test")),
    headers=header_lines,
    attributes=st.dictionaries(st.sampled_from(("x", "y")), values),
)
endpoint_costs = st.builds(
    EndpointCost, patterns, st.integers(0, 9), st.sampled_from((None, "GET", "HEAD", "POST"))
)
tiers: st.SearchStrategy[str | None] = st.sampled_from(("free", "paid", None))
callers: st.SearchStrategy[dict[str, str | None]] = st.dictionaries(st.just("tier"), tiers)


def fits(pattern: list[str], path: list[str]) -> bool:
    """Whether *path* fits *pattern*, by the words of the definition."""
    if not pattern:
        return not path
    first, *rest = pattern
    if first == "**":
        return any(fits(rest, path[skipped:]) for skipped in range(len(path) + 1))
    return bool(path) and first in ("*", path[0]) and fits(rest, path[1:])


def path_fits(pattern: str, request: Request) -> bool:
    segments = [segment for segment in pattern.split("/") if segment]
    return any(fits(segments, list(way)) for way in readings(request.path))


def method_fits(wanted: str, request: Request) -> bool:
    method = request.method.upper()
    return wanted == method or (wanted == "GET" and method == "HEAD")


def host_fits(pattern: str, request: Request) -> bool:
    host = request.host.lower().partition(":")[0].rstrip(".")
    if pattern == "*":
        return host != ""
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


def named_fit(wanted: tuple[tuple[str, tuple[str, ...] | None], ...], there: Lookup) -> bool:
    return all(
        bool(there(name)) if values is None else any(value in values for value in there(name))
        for name, values in wanted
    )


def cookie_values(request: Request, wanted: str) -> list[str]:
    pairs = [pair for line in request.header_lines("cookie") for pair in line.split("; ")]
    return [pair.split("=")[1] for pair in pairs if pair.split("=")[0] == wanted]


def rule_fits(rule: Rule, request: Request, found: dict[str, str | None]) -> bool:
    match = rule.match
    return (
        rule.mode != "off"
        and (not match.endpoints or any(path_fits(each, request) for each in match.endpoints))
        and (not match.methods or any(method_fits(each, request) for each in match.methods))
        and (not match.hosts or any(host_fits(each, request) for each in match.hosts))
        and (not match.tiers or found.get("tier") in match.tiers)
        and named_fit(match.headers, request.header_lines)
        and named_fit(match.cookies, lambda name: cookie_values(request, name))
        and named_fit(
            match.attributes, lambda name: [v for n, v in request.attributes.items() if n == name]
        )
    )


@examples(250)
@given(policies, st.lists(requests, min_size=1, max_size=5), callers)
def test_it_finds_the_rules_that_fit_when_each_is_tried(
    policy: Policy, asked: list[Request], found: dict[str, str | None]
) -> None:
    matcher = Matcher(policy)
    for request in asked:
        expected = tuple(rule for rule in policy.rules if rule_fits(rule, request, found))
        assert matcher.matching(request, found) == expected


@examples(150)
@given(policies, st.lists(requests, min_size=1, max_size=5), callers)
def test_what_is_asked_does_not_matter_for_what_concerns_the_caller(
    policy: Policy, asked: list[Request], found: dict[str, str | None]
) -> None:
    matcher = CallerMatcher(policy.rules)
    for request in asked:
        expected = []
        for rule in policy.rules:
            anything = replace(rule, match=replace(rule.match, endpoints=(), methods=()))
            if rule.mode == "enforce" and rule_fits(anything, request, found):
                expected.append(rule)
        assert matcher.matching(request, found) == tuple(expected)


@examples(400)
@given(patterns, st.lists(st.sampled_from(WORDS), max_size=8))
@example("/**/a/**/a", ["a", "b", "a", "a", "b"])
def test_a_pattern_fits_what_its_definition_says(pattern: str, path: list[str]) -> None:
    segments = [segment for segment in pattern.split("/") if segment]
    assert compiled(pattern).fits(tuple(path)) == fits(segments, path)


@examples(200)
@given(st.lists(endpoint_costs, max_size=4), requests)
def test_a_request_costs_what_its_dearest_reading_costs(
    endpoints: list[EndpointCost], request: Request
) -> None:
    def price(way: tuple[str, ...]) -> int:
        for each in endpoints:
            segments = [segment for segment in each.endpoint.split("/") if segment]
            named = each.method is None or method_fits(each.method, request)
            if named and fits(segments, list(way)):
                return each.cost
        return 1

    cost = Cost(endpoints=tuple(endpoints))
    path = normalised_path(request.path)
    assert cost_of(cost, request, path) == max(map(price, readings(request.path)))


# What paths are made of: anything, and more often what has a meaning in some server.
PIECES = (
    "/", "//", ".", "..", "%2e", "%2F", "%5c", "\\", ";", "%3b", "?", "%3F", "#", "%23", "%", "%25",
    "%00", "\0", "\n", "%09", "%20", " ", "%ff", "%c3", "%a9", "%C0", "%C1", "%80", "%85", "%a0",
    "%AE", "%AF", "é", "e\u0301", "\u2028", "\udcc3", "\udca9", "\ud800", "\udfff", "a", "A", "%41",
    "*", "**", "http://", "host", ":", "%2", "%c", "\u00a0", "\ufeff", "\u0085",
)  # fmt: skip
odd_paths = st.text() | st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@examples(2000)
@given(odd_paths)
def test_what_is_normalised_stays_as_it_is(raw: str) -> None:
    path = normalised_path(raw)
    assert normalised_path(path) == path
    assert readings(path) == (readings(raw)[0],)


@examples(1000)
@given(odd_paths)
def test_a_normalised_path_has_a_slash_in_front_and_no_loose_ends(raw: str) -> None:
    path = normalised_path(raw)
    segments = path[1:].split("/")
    assert path.startswith("/")
    assert path == "/" or all(segment.strip() == segment != "" for segment in segments)
    assert not {".", ".."} & set(segments)
    assert not set(path) & {*map(chr, range(32)), "\x7f", "\\", "?", "#", ";"}
    assert path.encode()


@examples(1000)
@given(odd_paths)
def test_no_reading_of_a_path_has_another_counter_than_the_plain_path(raw: str) -> None:
    endpoints = endpoints_of(Request(path=raw))
    for way in readings(raw):
        assert normalised_path("/" + "/".join(way)) in endpoints


@examples(1000)
@given(odd_paths)
def test_the_first_reading_is_the_normalised_path_and_all_differ(raw: str) -> None:
    ways = readings(raw)
    assert "/" + "/".join(ways[0]) == normalised_path(raw)
    assert len(set(ways)) == len(ways) <= 13


words = st.text("abcxyz0189-_~", min_size=1, max_size=5)


SLASHES = (
    "/", "//", "/./", "/%2e/", "\\", "%2f", "%5C", "/x/../", "/x/%2E./", "/;p/", "/.;p/", "/ /",
)  # fmt: skip
TAILS = (
    "", "/", "//", "/.", "/x/..", ";p=1", "%3bp", "%00", "%00x", "?q", "#f", "%3fq", "%20", "%09",
    "\n", ".", "/%2e", "%2F", "\\", "%85", "%A0",
)  # fmt: skip
FRONTS = ("", "/", "http://host/", "HTTPS://user@host:80/", "/x/..", "/..", "/.")
AFTER_A_SEGMENT = ("", "", ";p=1", "%3B", " ", ".")
AFTER_A_LETTER = ("", "", "", "", "%01", "\x1f", "%7F")


def spellings(letter: str) -> tuple[str, ...]:
    small, large = ord(letter), ord(letter.upper())
    return (letter, letter.upper(), f"%{small:02x}", f"%{small:02X}", f"%{large:02x}")


@examples(1500)
@given(st.lists(words, min_size=1, max_size=5), st.randoms(use_true_random=True))
def test_no_noise_makes_another_path_of_it(segments: list[str], random: Random) -> None:
    choose = random.choice
    noisy = choose(FRONTS)
    for segment in segments:
        noisy += choose(SLASHES)
        noisy += "".join(choose(spellings(each)) + choose(AFTER_A_LETTER) for each in segment)
        noisy += choose(AFTER_A_SEGMENT)
    noisy += choose(TAILS)
    assert normalised_path(noisy) == "/" + "/".join(segments), noisy


@examples(500)
@given(st.lists(words, min_size=1, max_size=3), words, st.sampled_from(SLASHES))
def test_no_slash_in_a_segment_leads_out_of_a_pattern(
    segments: list[str], value: str, slash: str
) -> None:
    """Whether a server takes the value for one segment or for more, some rule for it is found."""
    base = "/" + "/".join(segments)
    one = Rule("one", Match(endpoints=(base + "/*",)), ("ip",), LIMITS)
    below = Rule("below", Match(endpoints=(base + "/**",)), ("ip",), LIMITS)
    matcher = Matcher(Policy((one, below)))
    found = matcher.matching(Request(path=f"{base}/{value}{slash.replace('/', '%2f')}{value}"), {})
    assert found == (one, below)
