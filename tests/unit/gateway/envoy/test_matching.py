from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.engine.request import Request
from headgate.gateway.envoy.matching import (
    conditions_of,
    header_matcher,
    predicate_of,
    unseen_in,
)
from headgate.policy.identity import Identifier
from headgate.policy.matcher import Matcher
from tests.examples import example_count
from tests.support.envoy_matchers import fits, headers_of, holds, policy_of

IDENTITY = "{tier: {header: x-tier, default: free}}"
MATCHES = [
    "endpoint: /login",
    "endpoint: [/a/*, /b/**], method: GET",
    "method: [post, PUT]",
    "host: api.example.com",
    "host: ['*.example.com', other.test]",
    "host: '*'",
    "host: '[::1]'",
    "tier: free",
    "tier: [paid, gold]",
    "headers: {x-app: [one, two]}",
    "headers: {x-app: true}",
    "cookies: {seen: true}",
    "endpoint: /login, host: api.example.com, tier: paid, headers: {x-app: one}",
]
REQUESTS = st.builds(
    Request,
    method=st.sampled_from(["GET", "HEAD", "POST", "post", "PUT"]),
    path=st.sampled_from(["/", "/login", "/LOGIN;x", "/a/b", "/b", "/b/c/d", "/%6cogin"]),
    host=st.sampled_from(
        [
            *("", "api.example.com", "API.example.com.:80", "u@x.example.com", "other.test"),
            *("[::1]:8", "api.example.com:80:81", "other.test:80@u", "a:b@other.test"),
        ]
    ),
    headers=st.lists(
        st.sampled_from(
            [
                *(("x-tier", "free"), ("x-tier", "paid"), ("X-Tier", ""), ("x-tier", "gold")),
                *(("x-app", "one"), ("x-app", ""), ("x-app", "three"), ("x-app", "\xa0one\u2003")),
                ("cookie", "seen=1"),
            ]
        ),
        max_size=4,
    ).map(tuple),
)


@settings(max_examples=example_count(300))
@given(st.sampled_from(MATCHES), REQUESTS)
def test_what_a_rule_is_for_always_looks_so(match: str, request: Request) -> None:
    policy = policy_of(f"id: r, match: {{{match}}}, key_by: ip, limit: 1/s", identity=IDENTITY)
    found = Identifier(policy.identity).find(request)
    conditions = conditions_of(policy.rules[0].match, policy.identity)
    headers = headers_of(request, "?q")
    as_predicate = not conditions or holds(predicate_of(conditions), headers)
    as_matchers = all(fits(header_matcher(one), headers) for one in conditions)
    assert as_predicate == as_matchers
    if Matcher(policy).matching(request, found):
        assert as_predicate


@pytest.mark.parametrize(
    ("match", "request_"),
    [
        ("endpoint: /login", Request(path="/logout")),
        ("method: POST", Request(method="GET")),
        ("method: HEAD", Request(method="GET")),
        ("host: api.example.com", Request(host="api.example.com.evil.test")),
        ("host: '*.example.com'", Request(host="example.com")),
        ("tier: paid", Request()),
        ("tier: free", Request(headers=(("x-tier", "paid"),))),
        ("headers: {x-app: one}", Request(headers=(("x-app", "ones"),))),
        ("headers: {x-app: true}", Request()),
    ],
)
def test_what_a_rule_is_not_for_looks_otherwise(match: str, request_: Request) -> None:
    policy = policy_of(f"id: r, match: {{{match}}}, key_by: ip, limit: 1/s", identity=IDENTITY)
    conditions = conditions_of(policy.rules[0].match, policy.identity)
    assert not holds(predicate_of(conditions), headers_of(request_))


@pytest.mark.parametrize(
    ("match", "identity", "told"),
    [
        ("endpoint: /a, method: GET, host: a.b, headers: {x: y}", "{}", ""),
        ("endpoint: /café", "{}", "its endpoint /café has letters"),
        ("cookies: {a: b}", "{}", "a cookie"),
        ("attributes: {a: b}", "{}", "an attribute"),
        ("host: '[::1]'", "{}", "many spellings"),
        ("tier: a", "{tier: {cookie: t}}", "not in a header"),
    ],
)
def test_it_is_said_what_envoy_cannot_see(match: str, identity: str, told: str) -> None:
    policy = policy_of(f"id: r, match: {{{match}}}, key_by: ip, limit: 1/s", identity=identity)
    found = unseen_in(policy.rules[0].match, policy.identity)
    assert told in found
    assert bool(found) == bool(told)


def test_a_rule_for_everything_has_no_conditions() -> None:
    policy = policy_of("id: r, key_by: ip, limit: 1/s")
    found: Any = conditions_of(policy.rules[0].match, policy.identity)
    assert found == ()
