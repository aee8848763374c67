"""Callers that apps may read differently: whichever reading is the app's, its limit holds."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from headgate.engine.request import Request
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.conditions import header_readings
from headgate.policy.loader import read_policy
from headgate.rule_engine import RuleEngine
from headgate.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

POLICY = """
version: 1
identity:
  session: {cookie: sid}
  plan: {lookup: api_key, values: {gold: big}}
  tier: {header: x-tier}
rules:
  - {id: r, RULE}
"""


def compiled(rule: str, more: str = "") -> CompiledPolicy:
    policy = read_policy(POLICY.replace("RULE", rule) + more)
    return CompiledPolicy(policy, clock=ManualClock(1_000.0))


def engine(rule: str) -> RuleEngine:
    policy = read_policy(POLICY.replace("RULE", rule))
    return RuleEngine(policy, clock=ManualClock(1_000.0))


def request(*lines: tuple[str, str], **more: Any) -> Request:
    return Request(headers=lines, peer="1.2.3.4", **more)


def keys(rule: str, *lines: tuple[str, str]) -> set[str]:
    """The keys that a request with the header *lines* is charged under."""
    plan = compiled(rule).plan(request(*lines))
    return {check.key for one in plan.rules for check in one.checks}


class TestHeaders:
    @pytest.mark.parametrize(
        ("lines", "readings"),
        [
            ([], [None]),
            ([""], [None]),
            ([" a "], ["a"]),
            (["a", "a"], ["a", "a,a"]),
            (["a", "b"], ["a", "a,b", "b"]),
            (["a", "x", "b"], ["a", "a,x,b", "b"]),
            (["a,b"], ["a", "a,b", "b"]),
            (["a, b"], ["a,b"]),
            (["a ,b"], ["a", "a,b", "b"]),
            (["", "b"], [",b", "b", None]),
            (["a, b", "c"], ["a,b", "a,b,c", "c"]),
            (["Mozilla/5.0 (KHTML, like Gecko)"], ["Mozilla/5.0 (KHTML,like Gecko)"]),
        ],
    )
    def test_the_first_the_last_and_all_lines_are_readings(
        self, lines: list[str], readings: list[str | None]
    ) -> None:
        asked = Request(headers=tuple(("X-Key", line) for line in lines))
        assert sorted(header_readings(asked, "x-key"), key=str) == sorted(readings, key=str)

    def test_lines_that_a_proxy_joins_are_charged_like_those_that_it_does_not(self) -> None:
        rule = "key_by: user_id, limit: 1/s"
        apart = keys(rule, ("X-User-Id", "a"), ("x-user-id", "b"))
        assert apart == keys(rule, ("x-user-id", "a,b"))
        assert apart == {"user_id=a", "user_id=b", "user_id=a,b"}


@pytest.mark.parametrize(
    "sent",
    ["Bearer key", "bearer key", "BEARER key", "bEaReR   key", " bearer \tkey ", "BeareR\tkey"],
)
def test_the_scheme_of_credentials_has_one_spelling(sent: str) -> None:
    rule = "key_by: 'header:authorization', limit: 1/s"
    assert keys(rule, ("Authorization", sent)) == keys(rule, ("authorization", "Bearer key"))
    assert keys(rule, ("authorization", "Bearer KEY")) != keys(rule, ("authorization", sent))


def test_blanks_beyond_ascii_do_not_count_in_credentials_nor_case_without_a_scheme() -> None:
    rule = "key_by: 'header:authorization', limit: 1/s"
    plain = keys(rule, ("authorization", "Bearer key"))
    for sent in ("Bearer key\xa0", "Bearer \udca0key", "Bearer key\x85"):
        assert keys(rule, ("authorization", sent)) == plain
    assert keys(rule, ("authorization", "Key")) != keys(rule, ("authorization", "kEY"))


PARSERS: dict[str, Callable[[list[str]], str]] = {
    "first line": lambda lines: lines[0],
    "last line": lambda lines: lines[-1],
    "CGI": ",".join,
    "Node": ", ".join,
}


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize(
    "rule", ["key_by: user_id, limit: 2/s", "key_by: [user_id, ip], limit: 2/s"]
)
def test_no_app_serves_a_user_more_often_than_the_limit_says(parser: str, rule: str) -> None:
    one, served = engine(rule), Counter[str]()
    pieces = ["v", "w", "", "v,w", "v, w", "w,v"]
    sets = [[first] for first in pieces] + [list(pair) for pair in product(pieces, repeat=2)]
    for lines in sets * 3:
        asked = request(*(("x-user-id", line) for line in lines))
        if one.check(asked):
            served[PARSERS[parser](lines)] += 1
    assert served
    assert max(served.values()) <= 2


class TestPlans:
    def test_every_reading_of_a_cookie_is_charged(self) -> None:
        one = engine("key_by: session, limit: 2/minute")
        allowed = [bool(one.check(request(("cookie", f"sid=v; sid={n}")))) for n in range(4)]
        assert allowed == [True, True, False, False]
        assert not one.check(request(("cookie", "sid=v")))
        assert not one.check(request(("cookie", "sid=new; sid=v")))
        assert one.check(request(("cookie", "sid=0")))  # was charged once

    def test_a_denial_charges_no_reading(self) -> None:
        one = engine("key_by: session, limit: 1/minute")
        assert one.check(request(("cookie", "sid=v")))
        assert not one.check(request(("cookie", "sid=w; sid=v")))
        assert one.check(request(("cookie", "sid=w")))

    @pytest.mark.parametrize(
        ("fallback", "expected"),
        [
            ("ip", {"user_id=a", "user_id!ip=1.2.3.4", "user_id=,a"}),
            ("shared", {"user_id=a", "user_id!shared", "user_id=,a"}),
            ("skip", {"user_id=a", "user_id=,a"}),
        ],
    )
    def test_a_missing_value_is_a_reading_too(self, fallback: str, expected: set[str]) -> None:
        policy = read_policy(
            f"version: 1\nidentity: {{fallback: {fallback}}}\n"
            "rules: [{id: r, key_by: user_id, limit: 1/s}]"
        )
        plan = CompiledPolicy(policy).plan(request(("x-user-id", ""), ("x-user-id", "a")))
        assert {check.key for one in plan.rules for check in one.checks} == expected

    def test_the_readings_of_several_parts_are_combined(self) -> None:
        found = keys(
            "key_by: [user_id, session], limit: 1/s",
            ("x-user-id", "a"),
            ("x-user-id", "b"),
            ("cookie", "sid=1; sid=2"),
        )
        assert len(found) == 6

    def test_a_lookup_has_the_readings_of_its_key(self) -> None:
        lines = ("x-api-key", "silver"), ("x-api-key", "gold")
        assert keys("key_by: plan, limit: 1/s", *lines) == {"plan=big", "plan!ip=1.2.3.4"}

    def test_too_many_readings_are_denied(self) -> None:
        one = engine("key_by: [cookie:a, cookie:b, cookie:c, cookie:d], limit: 9/s")
        cookies = [f"{name}={n} {n}x" for name in "abcd" for n in range(2)]
        denied = one.check(request(("cookie", "; ".join(cookies))))
        assert not denied
        assert denied.retry_after is None
        assert one.check(request(("cookie", "; ".join(cookies[::2]))))

    def test_a_repeated_request_pays_if_it_can_be_read_differently(self) -> None:
        rule = "key_by: user_id, limit: 1/hour, idempotency: {}"
        one = engine(rule)
        retry = ("idempotency-key", '"k"')
        assert one.check(request(("x-user-id", "a"), retry))
        assert one.check(request(("x-user-id", "a"), retry))
        assert not one.check(request(("x-user-id", "a"), ("x-user-id", "b"), retry))

    def test_a_block_of_one_reading_blocks_the_request(self) -> None:
        more = "overrides: [{rule: r, key: user_id=b, block: true, until: 2030-01-01T00:00:00Z}]"
        one = compiled("key_by: user_id, limit: 9/s", more)
        for lines in (["a", "b"], ["b", "a"], ["a", "x", "b"]):
            plan = one.plan(request(*(("x-user-id", line) for line in lines)))
            assert plan.is_denied
        assert not one.plan(request(("x-user-id", "a"))).is_denied


class TestTiers:
    LIMITS = "limits: {big: 9/s, small: 2/s}"

    @pytest.mark.parametrize("tiers", [("big", "small"), ("small", "big"), ("big", "x", "small")])
    def test_a_counter_of_two_tiers_has_the_slower_limit(self, tiers: tuple[str, ...]) -> None:
        plan = compiled(f"key_by: ip, {self.LIMITS}").plan(
            request(*(("x-tier", tier) for tier in tiers))
        )
        assert [check.limit.quota for one in plan.rules for check in one.checks] == [2]

    def test_a_rule_for_one_of_two_tiers_applies(self) -> None:
        one = compiled("key_by: ip, match: {tier: small}, limit: 2/s")
        for tiers in (("big", "small"), ("small", "big"), ("small",)):
            assert one.plan(request(*(("x-tier", tier) for tier in tiers))).rules
        assert not one.plan(request(("x-tier", "big"))).rules

    def test_a_tier_without_a_limit_does_not_hide_the_other(self) -> None:
        plan = compiled(f"key_by: ip, {self.LIMITS}").plan(
            request(("x-tier", "huge"), ("x-tier", "small"))
        )
        assert [check.limit.quota for one in plan.rules for check in one.checks] == [2]
