"""Which rules concern a caller, and what a rule says of what is asked."""

from __future__ import annotations

import pytest

from headgate.engine.request import Request
from headgate.policy.matcher import CallerMatcher, only_endpoint, only_method
from headgate.policy.model import Match, Rule
from tests.support.policies import on, rule


def ids(rules: list[Rule], request: Request, tier: str | None = None) -> list[str]:
    return [each.id for each in CallerMatcher(rules).matching(request, {"tier": tier})]


def test_endpoints_methods_and_routes_do_not_matter() -> None:
    rules = [
        rule("path", on("/login")),
        rule("method", Match(methods=("POST",))),
        rule("route", Match(attributes=(("route", ("/users/{id}",)),))),
    ]
    status = Request(path="/rate_limit", attributes={"route": "/rate_limit"})
    assert ids(rules, status) == ["path", "method", "route"]


def test_all_else_that_a_rule_asks_for_must_fit() -> None:
    rules = [
        rule("tier", Match(endpoints=("/x",), tiers=("paid",))),
        rule("host", Match(hosts=("*.example.com",))),
        rule("header", Match(headers=(("x-app", ("mobile",)),))),
        rule("cookie", Match(cookies=(("plan", None),))),
        rule("attribute", Match(attributes=(("org", ("a",)), ("route", ("/x",))))),
    ]
    assert ids(rules, Request()) == []
    assert ids(rules, Request(), tier="paid") == ["tier"]
    assert ids(rules, Request(host="a.example.com")) == ["host"]
    assert ids(rules, Request(headers=(("X-App", "mobile"),))) == ["header"]
    assert ids(rules, Request(headers=(("Cookie", "plan=a"),))) == ["cookie"]
    assert ids(rules, Request(attributes={"org": "a"})) == ["attribute"]


def test_rules_that_do_not_decide_concern_nobody() -> None:
    rules = [
        rule("off", Match(), mode="off"),
        rule("on", Match()),
        rule("shadow", Match(), mode="shadow"),
    ]
    assert ids(rules, Request()) == ["on"]


def test_of_many_rules_those_of_the_caller_are_found() -> None:
    rules = [rule(str(n), Match(endpoints=(f"/{n}",), tiers=(f"t{n % 50}",))) for n in range(500)]
    assert ids(rules, Request(), tier="t7") == [str(n) for n in range(7, 500, 50)]


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (on("/login"), "/login"),
        (on("/Login/", "//%6Cogin"), "/login"),
        (on("/"), "/"),
        (on("/v*"), "/v*"),
        (on("/login", "/logout"), None),
        (on("/login", "/login/*"), None),
        (on("/users/*"), None),
        (on("/users/**"), None),
        (Match(), None),
        (Match(attributes=(("route", ("/Users/{id}",)),)), "/Users/{id}"),
        (Match(endpoints=("/x",), attributes=(("route", ("/a", "/b")),)), None),
        (Match(endpoints=("/x",), attributes=(("route", None),)), None),
    ],
)
def test_the_only_endpoint_is_a_literal_one_alone(match: Match, expected: str | None) -> None:
    assert only_endpoint(match) == expected


@pytest.mark.parametrize(
    ("methods", "expected"),
    [(("POST",), "POST"), (("post", "POST"), "POST"), (("GET", "PUT"), None), ((), None)],
)
def test_the_only_method_is_one_that_is_named_alone(
    methods: tuple[str, ...], expected: str | None
) -> None:
    assert only_method(Match(methods=methods)) == expected
