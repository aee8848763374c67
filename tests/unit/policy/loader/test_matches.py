"""Match, key_by and cost: what they read and what they refuse."""

from typing import Any

import pytest

from headgate.policy.checks import covered
from headgate.policy.fields import checked_pattern
from headgate.policy.loader import examine_policy_data
from headgate.policy.model import Cost, EndpointCost, Match, Rule
from headgate.policy.problems import Diagnostics, PolicyError, Problem
from tests.support.policy_files import only_error, read_rule


def read(**fields: Any) -> Rule:
    return read_rule({"key_by": "ip", "limit": "100/s"} | fields)


def refused(**fields: Any) -> Problem:
    return only_error({"key_by": "ip", "limit": "100/s"} | fields)


def warnings(identity: Any = None, **fields: Any) -> list[str]:
    rule = {"id": "a", "key_by": "ip", "limit": "100/s"} | fields
    if "limits" in fields:
        del rule["limit"]
    data: dict[str, Any] = {"version": 1, "rules": [rule], "identity": identity or {}}
    examined = examine_policy_data(data)
    assert examined.policy is not None, examined.problems
    return [problem.message for problem in examined.problems]


@pytest.mark.parametrize(
    ("match", "meant"),
    [
        ({}, Match()),
        ({"endpoint": "/a"}, Match(endpoints=("/a",))),
        ({"endpoint": ["/a/*", "/b/**/c"]}, Match(endpoints=("/a/*", "/b/**/c"))),
        ({"method": ["get", "Post"]}, Match(methods=("GET", "POST"))),
        ({"host": ["API.example.com", "*.b.org"]}, Match(hosts=("api.example.com", "*.b.org"))),
        (
            {"host": ["::1", "[::1]", "*", "bücher.de"]},
            Match(hosts=("::1", "[::1]", "*", "bücher.de")),
        ),
        ({"tier": ["free", 2]}, Match(tiers=("free", "2"))),
        ({"headers": {"X-A": True}}, Match(headers=(("x-a", None),))),
        (
            {"headers": {"X-A": "1", "b": [2, "3"]}},
            Match(headers=(("x-a", ("1",)), ("b", ("2", "3")))),
        ),
        ({"cookies": {"Sid": 5}}, Match(cookies=(("Sid", ("5",)),))),
        ({"attributes": {"my attribute": "x"}}, Match(attributes=(("my attribute", ("x",)),))),
    ],
)
def test_what_is_matched(match: Any, meant: Match) -> None:
    assert read(match=match).match == meant


@pytest.mark.parametrize(
    ("match", "field", "message"),
    [
        ([], "match", "found a list, expected the requests that the rule is for"),
        ({"path": "/a"}, "match.path", "unknown field"),
        ({"endpoint": "login"}, "match.endpoint", "'login' does not begin with '/'"),
        ({"endpoint": ["/a", "b"]}, "match.endpoint[1]", "'b' does not begin with '/'"),
        ({"endpoint": "/a**"}, "match.endpoint", "'/a**' has a wildcard beside text in 'a**'"),
        ({"endpoint": "/v*/a"}, "match.endpoint", "'/v*/a' has a wildcard beside text in 'v*'"),
        ({"endpoint": "/a?b"}, "match.endpoint", "'/a?b' is not the pattern of a path"),
        ({"endpoint": "/a" * 70}, "match.endpoint", f"{'/a' * 28 + '/...'!r} has more than 64"),
        ({"endpoint": "/" + "a" * 1000}, "match.endpoint", "a text of 1001 characters; expected"),
        ({"endpoint": "/\x00"}, "match.endpoint", "the character U+0000 may not be in it"),
        ({"endpoint": []}, "match.endpoint", "found a list, expected a path that begins with"),
        ({"endpoint": None}, "match.endpoint", "found nothing, expected a path that begins"),
        ({"endpoint": ["/a", "/a"]}, "match.endpoint[1]", "the same value is in the list before"),
        ({"endpoint": {"a": 1}}, "match.endpoint", "found a mapping, expected a path"),
        ({"method": "GET POST"}, "match.method", "'GET POST' is not a method such as POST"),
        ({"method": ["get", "GET"]}, "match.method[1]", "the same value is in the list before"),
        ({"host": "a.b:80"}, "match.host", "'a.b:80' is not a host; expected a name such as"),
        ({"host": "http://a"}, "match.host", "'http://a' is not a host"),
        ({"tier": ""}, "match.tier", "found an empty text, expected text"),
        ({"headers": {}}, "match.headers", "found a mapping, expected names and the values"),
        ({"headers": ["x"]}, "match.headers", "found a list, expected names and the values"),
        ({"headers": {"a b": "c"}}, "match.headers['a b']", "'a b' is not the name of a header"),
        ({"headers": {"a": "1", "A": "2"}}, "match.headers.A", "'a' is given twice; case does"),
        ({"headers": {"a": False}}, "match.headers.a", "found false, expected text"),
        ({"headers": {"a": [True]}}, "match.headers.a[0]", "found true, expected text"),
        ({"headers": {"a": []}}, "match.headers.a", "found a list, expected a value, or a list"),
        ({"headers": {"a": {"b": 1}}}, "match.headers.a", "found a mapping, expected text"),
        ({"cookies": {"a;b": "c"}}, "match.cookies['a;b']", "'a;b' is not the name of a cookie"),
        ({"attributes": {"": "c"}}, "match.attributes['']", "found an empty text, expected"),
    ],
)
def test_a_wrong_match_is_told(match: Any, field: str, message: str) -> None:
    problem = refused(match=match)
    assert problem.field == field
    assert problem.message.startswith(message)


@pytest.mark.parametrize(
    ("key_by", "meant"),
    [
        ("global", ("global",)),
        ("api_key", ("api_key",)),
        (
            ["tenant", "endpoint", "method", "host", "ip"],
            ("tenant", "endpoint", "method", "host", "ip"),
        ),
        ("header:X-Team", ("header:x-team",)),
        (["cookie:Sid", "attribute:My name"], ("cookie:Sid", "attribute:My name")),
    ],
)
def test_what_is_counted_by(key_by: Any, meant: tuple[str, ...]) -> None:
    assert read(key_by=key_by).key_by == meant


@pytest.mark.parametrize(
    ("key_by", "field", "message", "hint"),
    [
        ("api_kye", "key_by", "'api_kye' is not a part of a key", "did you mean 'api_key'?"),
        ([], "key_by", "found a list, expected what to count by, or a list of at least one", ""),
        ("", "key_by", "found an empty text", ""),
        (None, "key_by", "found nothing, expected what to count by, such as ip or api_key", ""),
        (["ip", "ip"], "key_by[1]", "the same value is in the list before", ""),
        (["global", "ip"], "key_by", "global is one counter for all callers", ""),
        ("heder:x", "key_by", "'heder' cannot stand before a name", "did you mean 'header'?"),
        ("header:", "key_by", "found an empty text, expected the name of a header", ""),
        ("cookie:a b", "key_by", "'a b' is not the name of a cookie", ""),
        ({"header": "x"}, "key_by", "found a mapping, expected what to count by", ""),
    ],
)
def test_a_wrong_key_is_told(key_by: Any, field: str, message: str, hint: str) -> None:
    problem = refused(key_by=key_by)
    assert (problem.field, problem.hint) == (field, hint)
    assert problem.message.startswith(message)


@pytest.mark.parametrize(
    ("cost", "meant"),
    [
        (0, Cost(0)),
        (5, Cost(5)),
        ({}, Cost()),
        ({"default": 2}, Cost(2)),
        ({"header": "X-Cost", "max": 50}, Cost(header="x-cost", most=50)),
        (
            {"endpoints": {"post /export/pdf": 10, "/x/*": 0}},
            Cost(endpoints=(EndpointCost("/export/pdf", 10, "POST"), EndpointCost("/x/*", 0))),
        ),
    ],
)
def test_what_a_request_costs(cost: Any, meant: Cost) -> None:
    assert read(cost=cost).cost == meant


@pytest.mark.parametrize(
    ("cost", "field", "message"),
    [
        (-1, "cost", "found '-1', expected a whole number from 0"),
        (1.5, "cost", "found 1.5, expected a whole number from 0"),
        ("5", "cost", "found '5', expected a whole number from 0"),
        (True, "cost", "found true, expected a whole number from 0"),
        ({"defualt": 5}, "cost.defualt", "unknown field"),
        ({"header": "x-cost"}, "cost.max", "missing; header needs max"),
        ({"max": 5}, "cost.header", "missing; max needs header"),
        ({"min": 5}, "cost.min", "min needs header, which is missing"),
        (
            {"header": "x-cost", "min": 6, "max": 5},
            "cost.min",
            "the min of 6 is above the max of 5",
        ),
        ({"header": "x", "max": 5, "default": 6}, "cost.max", "the default of 6 is above the max"),
        ({"endpoints": {}}, "cost.endpoints", "found a mapping, expected costs of endpoints"),
        ({"endpoints": {"x": 1}}, "cost.endpoints.x", "'x' does not begin with '/'"),
        ({"endpoints": {"A B /x": 1}}, "cost.endpoints['A B /x']", "'B /x' does not begin"),
        ({"endpoints": {"/x": "1"}}, "cost.endpoints['/x']", "found '1', expected a whole number"),
        (101, "cost", "a request costs 101, above the limit of 100: it can never pass"),
        (
            {"endpoints": {"/x": 101}},
            "cost",
            "a request to '/x' costs 101, above the limit of 100: it can never pass",
        ),
    ],
)
def test_a_wrong_cost_is_told(cost: Any, field: str, message: str) -> None:
    problem = refused(cost=cost)
    assert problem.field == field
    assert problem.message.startswith(message)


def test_a_cost_above_the_limit_of_one_tier_is_told_with_the_tier() -> None:
    problem = only_error(
        {"key_by": "ip", "limits": {"free": "5/s; 3/s", "paid": "50/s"}, "cost": 4}
    )
    assert "above the limit of 3 in the tier 'free'" in problem.message


def test_a_rule_without_a_limit_for_any_of_its_tiers_is_refused() -> None:
    with pytest.raises(PolicyError, match="no limit for any tier that the rule is for"):
        read_rule({"key_by": "ip", "limits": {"free": "1/s"}, "match": {"tier": "paid"}})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"cost": {"header": "x", "max": 101}}, "costs up to 101 are possible, above the limit"),
        ({"cost": 0}, "every request costs 0: the rule never denies"),
        ({"match": {"method": "PSOT"}}, "'PSOT' is not a usual method"),
        ({"match": {"endpoint": ["/a/b", "/a/*"]}}, "'/a/b' is covered by '/a/*' in the same list"),
        ({"match": {"endpoint": ["/a", "/A/"]}}, "'/A/' is covered by '/a' in the same list"),
        (
            {"cost": {"endpoints": {"/a/**": 1, "POST /a/b": 2}}},
            "'POST /a/b' comes after '/a/**', which covers it: the first that fits counts",
        ),
        (
            {"cost": {"endpoints": {"GET /a": 2, "HEAD /a": 1}}},
            "'HEAD /a' comes after 'GET /a', which covers it: the first that fits counts",
        ),
        (
            {"cost": {"endpoints": {"POST /a": 3, "GET /a": 2, "HEAD /a": 1}}},
            "'HEAD /a' comes after 'GET /a', which covers it: the first that fits counts",
        ),
        (
            {"cost": {"endpoints": {"POST /a": 1}}, "match": {"method": "GET"}},
            "the rule is not for POST: '/a' is never used",
        ),
        (
            {"cost": {"endpoints": {"HEAD /a": 1}}, "match": {"method": ["POST", "PUT"]}},
            "the rule is not for HEAD: '/a' is never used",
        ),
        (
            {"limits": {"free": "1/s"}, "match": {"tier": ["free", "paid"]}},
            "the tier 'paid' is in match, and has no limit",
        ),
        (
            {"limits": {"free": "1/s", "paid": "2/s"}, "match": {"tier": "free"}},
            "the rule is not for the tier 'paid' in its limits",
        ),
        (
            {
                "identity": {"tier": {"lookup": "api_key", "values": {"k": "paid"}}},
                "match": {"tier": "free"},
            },
            "no request can match: no caller is looked up to be 'free'",
        ),
    ],
)
def test_what_its_author_will_regret_is_warned_of(fields: Any, message: str) -> None:
    (found,) = warnings(**fields)
    assert found.startswith(message)


@pytest.mark.parametrize(
    "fields",
    [
        {"cost": {"endpoints": {"POST /a/**": 1, "/a/b": 2}}},
        {"cost": {"endpoints": {"/a/b": 2, "/a/**": 1}}},
        {"cost": {"endpoints": {"HEAD /a": 1, "GET /a": 2}}},
        {"cost": {"endpoints": {"HEAD /a": 1}}, "match": {"method": "GET"}},
        {"cost": {"endpoints": {"GET /a": 2}}, "match": {"method": "HEAD"}},
        {"match": {"endpoint": ["/a/*", "/a/*/b", "/*/b"]}},
        {"match": {"method": ["PROPFIND", "PURGE", "FROB"]}},
        {"match": {"host": "*.a.com", "headers": {"host": "b.a.com"}}},
        {"match": {"tier": "free", "headers": {"x-tier": ["free", "paid"]}}},
        {"limits": {"free": "1/s", "default": "2/s"}, "match": {"tier": ["free", "paid"]}},
        {"match": {"headers": {"x-tier": True}, "tier": "free"}},
    ],
)
def test_what_is_fine_is_not_warned_of(fields: Any) -> None:
    assert warnings(**fields) == []


@pytest.mark.parametrize(
    ("narrow", "wide", "is_covered"),
    [
        ("/a/b", "/a/*", True),
        ("/a/b/c", "/a/*", False),
        ("/a", "/a/**", True),
        ("/a/b/c", "/a/**", True),
        ("/a/*", "/a/**", True),
        ("/a/**", "/a/*", False),
        ("/a/**/b", "/**", True),
        ("/a/**/b", "/a/**/b/**", True),
        ("/**", "/a/**", False),
        ("/", "/**", True),
        ("/", "/*", False),
        ("/x/a/y/b", "/**/a/**/b", True),
        ("/a/*/c", "/a/b/*", False),
        ("/**/a", "/**/*", True),
        ("/**", "/**/*", False),
    ],
)
def test_one_pattern_covers_another(narrow: str, wide: str, is_covered: bool) -> None:
    pairs = covered([narrow, wide], Diagnostics("f"))
    assert ((0, 1) in pairs) is is_covered


@pytest.mark.parametrize("pattern", ["/", "/*", "/**", "/a/*/**/b", "/a.b/c-d_e~", "/é", "/a%20b"])
def test_ordinary_patterns_have_no_flaw(pattern: str) -> None:
    assert checked_pattern(pattern) == pattern


def test_long_lists_are_not_compared_for_ever() -> None:
    endpoints = [f"/*/{n}" for n in range(5_000)] + ["/**"]
    assert warnings(match={"endpoint": endpoints}) == []


def test_identity_of_the_rule_is_asked_for_its_sources() -> None:
    with pytest.raises(PolicyError, match="'team' is not a part of a key"):
        read_rule({"key_by": "team", "limit": "1/s"})
