"""Every rule of a policy is accounted for, whatever came of a request."""

from __future__ import annotations

from headgate.engine.request import Request
from headgate.limits import Limit, parse_limits
from headgate.policy.explain import Membership
from headgate.policy.model import Match, Policy, Rule
from headgate.rule_engine import RuleEngine

LIMITS: dict[str | None, tuple[Limit, ...]] = {None: parse_limits("1/minute")}


def membership(*rules: Rule, path: str = "/a") -> Membership:
    engine = RuleEngine(Policy(rules))
    request = Request("GET", path, peer="192.0.2.1")
    try:
        return Membership(engine.in_force.compiled, request, engine.peek(request))
    finally:
        engine.close()


def rule(name: str, *endpoints: str, method: str = "GET", mode: str = "enforce") -> Rule:
    match = Match(endpoints=endpoints, methods=(method,))
    return Rule(name, match, ("ip",), LIMITS, mode="shadow" if mode == "shadow" else "enforce")


def test_all_rules_are_told_in_the_order_of_the_policy() -> None:
    found = membership(rule("far", "/b"), rule("here", "/a"), rule("shy", mode="shadow"))
    assert [(one.rule.id, one.applies) for one in found.all()] == [
        ("far", False),
        ("here", True),
        ("shy", True),
    ]
    assert [one.rule.id for one in found.applied()] == ["here", "shy"]
    assert [bool(one.reason) for one in found.all()] == [True, False, False]


def test_of_more_than_are_wanted_the_nearest_are_told_in_order() -> None:
    rules = [rule(f"far-{n}", f"/b/{n}") for n in range(3)]
    found = membership(*rules, rule("near", "/a", method="POST"), rule("here", "/a"))
    others, count = found.not_applied(2)
    assert [one.rule.id for one in others] == ["far-0", "near"]
    assert count == 4
    assert len(found.not_applied(4)[0]) == 4


def test_whose_counter_it_is_is_told_of_those_that_match() -> None:
    (here,) = membership(rule("here", "/a")).all()
    assert here.account == ("ip: 192.0.2.1, the peer",)
    assert here.verdict is not None
    assert here.verdict.key == "ip=192.0.2.1"
