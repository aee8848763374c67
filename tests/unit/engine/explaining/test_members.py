"""Every rule of a policy is accounted for, whatever came of a request."""

from __future__ import annotations

import asyncio
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

import pytest

from headgate.engine.request import Request
from headgate.errors import StoreError
from headgate.limits import Limit, parse_limits
from headgate.policy.model import Match, Policy, Rule
from headgate.rule_engine import AsyncRuleEngine, RuleEngine
from tests.support.failing_stores import Failing

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.policy.explain import Explanation

LIMITS: dict[str | None, tuple[Limit, ...]] = {None: parse_limits("1/minute")}


def explanation(*rules: Rule, path: str = "/a") -> Explanation:
    engine = RuleEngine(Policy(rules))
    try:
        return engine.explain(Request("GET", path, peer="192.0.2.1"))
    finally:
        engine.close()


def rule(name: str, *endpoints: str, method: str = "GET", mode: str = "enforce") -> Rule:
    match = Match(endpoints=endpoints, methods=(method,))
    return Rule(name, match, ("ip",), LIMITS, mode="shadow" if mode == "shadow" else "enforce")


def test_all_rules_are_told_in_the_order_of_the_policy() -> None:
    found = explanation(rule("far", "/b"), rule("here", "/a"), rule("shy", mode="shadow"))
    assert [(one.rule.id, one.applies) for one in found.all()] == [
        ("far", False),
        ("here", True),
        ("shy", True),
    ]
    assert [one.rule.id for one in found.applied()] == ["here", "shy"]
    assert [bool(one.reason) for one in found.all()] == [True, False, False]


def test_of_more_than_are_wanted_the_nearest_are_told_in_order() -> None:
    rules = [rule(f"far-{n}", f"/b/{n}") for n in range(3)]
    found = explanation(*rules, rule("near", "/a", method="POST"), rule("here", "/a"))
    others, count = found.not_applied(2)
    assert [one.rule.id for one in others] == ["far-0", "near"]
    assert count == 4
    assert len(found.not_applied(4)[0]) == 4


def test_whose_counter_it_is_is_told_of_those_that_match() -> None:
    (here,) = explanation(rule("here", "/a")).all()
    assert here.account == ("ip: 192.0.2.1, the peer",)
    assert here.verdict is not None
    assert here.verdict.key == "ip=192.0.2.1"


@pytest.mark.parametrize("kind", ["blocking", "async"])
def test_a_request_is_explained_and_not_counted_in_both_drivers(kind: str) -> None:
    limited = Policy((rule("far", "/b"), rule("here", "/a")))
    request = Request("GET", "/a", peer="192.0.2.1")
    engine: Any = (RuleEngine if kind == "blocking" else AsyncRuleEngine)(limited)

    async def call(method: Callable[..., Any], **options: Any) -> Any:
        result = method(request, **options)
        return await result if isawaitable(result) else result

    async def main() -> None:
        for _ in range(3):
            found = await call(engine.explain)
            assert found.verdict.allowed
            assert [one.reason for one in found.all()] == ["path is /a, expected /b", ""]
        assert not (await call(engine.explain, cost=2)).verdict
        assert await call(engine.check)
        assert not (await call(engine.explain)).verdict

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["blocking", "async"])
def test_a_store_that_is_gone_is_explained_or_raised(kind: str) -> None:
    store = Failing()
    store.fail()
    rules = Policy((rule("here", "/a"), rule("tried", mode="shadow")))
    request = Request("GET", "/a", peer="192.0.2.1")
    if kind == "blocking":
        blocking = RuleEngine(rules, store=store)
        assert blocking.explain(request).verdict.source == "fail_open"
        with pytest.raises(StoreError, match="no reply"):
            blocking.explain(request, raises=True)
        blocking.close()
        return

    async def main() -> None:
        engine = AsyncRuleEngine(rules, store=store)
        assert (await engine.explain(request)).verdict.source == "fail_open"
        with pytest.raises(StoreError, match="no reply"):
            await engine.explain(request, raises=True)
        await engine.aclose()

    asyncio.run(main())
