from __future__ import annotations

import pytest

from headgate.engine.request import Request
from headgate.policy.matcher import Matcher
from headgate.policy.model import Match, Policy
from tests.support.policies import matcher, names, on, rule
from tests.unit.policy.matching.test_path import SPELLINGS_OF_LOGIN


@pytest.mark.parametrize("raw", SPELLINGS_OF_LOGIN)
def test_no_spelling_escapes_the_rule(raw: str) -> None:
    assert "login" in names(matcher(login=on("/login")), Request(path=raw))


@pytest.mark.parametrize(
    "raw",
    [
        "/files/../x",
        "/files/%2e%2e/x",
        "/files/..%2fx",
        "/files/a/..;/..;/x",
        "/files//../x",
        "/files/\\..\\x",
        "/files/ .. /x",
    ],
)
def test_dots_lead_out_of_a_folder_only_for_servers_that_resolve_them(raw: str) -> None:
    assert names(matcher(files=on("/files/**"), x=on("/x")), Request(path=raw)) == ["files", "x"]


@pytest.mark.parametrize(
    "raw", ["/item/a%2fb", "/item/a%5cb", "/item/a\\b", "/item/;b", "/item/%20", "/item/%00b"]
)
def test_what_may_be_one_segment_does_not_escape_an_asterisk(raw: str) -> None:
    assert names(matcher(item=on("/item/*")), Request(path=raw)) == ["item"]


@pytest.mark.parametrize("padding", ["", "a" * 5000])
def test_no_padding_hides_a_reading(padding: str) -> None:
    found = matcher(item=on("/item/*/x"), api=on("/api/*"))
    assert names(found, Request(path=f"/item/..;{padding}%2fx")) == ["item"]
    assert names(found, Request(path=f"/y/../api/..;{padding}")) == ["api"]


def test_rules_are_found_in_the_order_of_the_policy() -> None:
    found = matcher(a=on("/**"), b=on("/x"), c=Match(), d=on("/*"), e=on("/y"))
    assert names(found, Request(path="/x")) == ["a", "b", "c", "d"]


def test_a_rule_is_found_once_whichever_of_its_endpoints_fit() -> None:
    assert names(matcher(a=on("/x", "/*", "/**", "/X")), Request(path="/x")) == ["a"]


def test_a_rule_that_is_off_is_not_found_and_one_in_the_shadow_is() -> None:
    rules = (rule("off", Match(), mode="off"), rule("shadow", Match(), mode="shadow"))
    assert names(Matcher(Policy(rules)), Request()) == ["shadow"]


def test_a_policy_without_rules_has_none_to_find() -> None:
    assert names(Matcher(Policy()), Request()) == []


def test_methods_are_compared_in_upper_case() -> None:
    found = matcher(post=Match(methods=("POST", "PUT")))
    assert names(found, Request(method="post")) == ["post"]
    assert names(found, Request(method="GET")) == []


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("GET", ["get", "both", "any"]),
        ("HEAD", ["get", "head", "both", "any"]),
        ("head", ["get", "head", "both", "any"]),
        ("POST", ["any"]),
        ("OPTIONS", ["any"]),
    ],
)
def test_a_rule_for_get_is_for_head_too_and_not_the_other_way_round(
    method: str, expected: list[str]
) -> None:
    found = matcher(
        get=Match(methods=("GET",)),
        head=Match(methods=("HEAD",)),
        both=Match(methods=("GET", "HEAD")),
        any=Match(),
    )
    assert names(found, Request(method=method)) == expected


def test_head_does_not_slip_past_a_rule_for_get_among_many() -> None:
    methods = ("GET", "POST", "PUT", "HEAD")
    many = {f"{method}{n}": Match(methods=(method,)) for method in methods for n in range(10)}
    found = matcher(**many)
    assert {name[:-1] for name in names(found, Request(method="HEAD"))} == {"GET", "HEAD"}
    assert {name[:-1] for name in names(found, Request(method="GET"))} == {"GET"}


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("example.com", ["exact"]),
        ("Example.COM.:80", ["exact"]),
        ("a.example.com", ["below"]),
        ("a.b.example.com:1", ["below"]),
        ("badexample.com", []),
        ("example.com.evil.test", []),
        ("[::1]:8080", ["six"]),
        ("", []),
    ],
)
def test_a_host_is_itself_or_below_another(host: str, expected: list[str]) -> None:
    found = matcher(
        exact=Match(hosts=("example.com",)),
        below=Match(hosts=("*.example.com",)),
        six=Match(hosts=("[0:0::1]",)),
    )
    assert names(found, Request(host=host)) == expected


def test_a_tier_is_compared_with_what_identity_found() -> None:
    found = matcher(paid=Match(tiers=("paid", "gold")))
    assert names(found, Request(), tier="gold") == ["paid"]
    assert names(found, Request(), tier="free") == []
    assert names(found, Request(), tier=None) == []
    assert found.matching(Request(), {}) == ()


def test_any_line_of_a_header_counts() -> None:
    found = matcher(
        mobile=Match(headers=(("x-app", ("mobile",)),)), any=Match(headers=(("x-app", None),))
    )
    lines = (("X-App", "web"), ("x-app", " mobile "))
    assert names(found, Request(headers=lines)) == ["mobile", "any"]
    assert names(found, Request(headers=lines[:1])) == ["any"]
    assert names(found, Request()) == []


def test_all_conditions_on_one_header_must_hold() -> None:
    found = matcher(both=Match(headers=(("x", ("a",)), ("x", ("b",)))))
    assert names(found, Request(headers=(("x", "a"), ("x", "b")))) == ["both"]
    assert names(found, Request(headers=(("x", "a"),))) == []


def test_values_of_cookies_and_attributes_are_compared_as_they_are() -> None:
    found = matcher(
        cookie=Match(cookies=(("Plan", ("a",)),)), attribute=Match(attributes=(("Org", ("x",)),))
    )
    fitting = Request(headers=(("cookie", "Plan=a"),), attributes={"Org": "x"})
    assert names(found, fitting) == ["cookie", "attribute"]
    others = Request(headers=(("cookie", "Plan=A"),), attributes={"Org": "X", "org": "x"})
    assert names(found, others) == []
    spelled = Request(headers=(("cookie", "plan=a"),))
    assert names(found, spelled) == ["cookie"], "some servers take names in any case"


def test_all_that_a_rule_asks_for_must_fit() -> None:
    asked = Match(endpoints=("/x",), methods=("GET",), hosts=("a",), tiers=("t",))
    assert names(matcher(a=asked), Request(path="/x", host="a"), tier="t") == ["a"]
    assert names(matcher(a=asked), Request(path="/x", host="b"), tier="t") == []
    assert names(matcher(a=asked), Request(path="/x", host="a"), tier="u") == []


def test_a_path_of_ten_thousand_segments_is_matched_at_both_ends() -> None:
    found = matcher(front=on("/a/**"), back=on("/**/z"), one=on("/*"), middle=on("/a/**/b/**/z"))
    long = "/a" + "/b" * 10_000 + "/z"
    assert names(found, Request(path=long)) == ["front", "back", "middle"]


def test_patterns_of_many_asterisks_do_not_make_the_walk_explode() -> None:
    deep = {f"r{n}": on("/**/a" * n + "/b") for n in range(1, 40)}
    assert names(matcher(**deep), Request(path="/a" * 250)) == []
