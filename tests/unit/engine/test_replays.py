"""Retries with an idempotency key: free up to a number, and only if they are the same request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate.engine.request import Request
from headgate.policy.loader import read_policy_data
from headgate.rule_engine import AsyncRuleEngine, RuleEngine
from headgate.stores import MemoryStore
from headgate.testing import ManualClock

if TYPE_CHECKING:
    from headgate.policy.model import Policy


def policy(*rules: dict[str, Any]) -> Policy:
    plain = {"key_by": "ip", "limit": "3/hour fixed_window"}
    return read_policy_data({"version": 1, "rules": [{**plain, **one} for one in rules]})


def post(key: str = "k", path: str = "/", **headers: str) -> Request:
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    fields = (("idempotency-key", key), *named)
    return Request(method="POST", path=path, headers=fields, peer="192.0.2.1")


def test_one_key_does_not_pass_500_requests_by_a_limit_of_3() -> None:
    engine = RuleEngine(policy({"id": "once", "idempotency": True}), clock=ManualClock())
    verdicts = [engine.check(post(content_length=str(n))) for n in range(500)]
    assert [one.is_replay for one in verdicts[:11]] == [False, *[True] * 10]
    assert sum(one.allowed for one in verdicts) == 3 + 10
    assert verdicts[11].rules[0].decision.remaining == 1, "a retry beyond the free ones pays"
    assert not any(one.allowed or one.is_replay for one in verdicts[13:])


def test_free_retries_are_counted_for_the_lifetime_of_the_key() -> None:
    clock = ManualClock()
    once = {"id": "once", "limit": "100/hour", "idempotency": {"ttl": "10s", "retries": 2}}
    engine = RuleEngine(policy(once), clock=clock)
    assert [engine.check(post()).is_replay for _ in range(4)] == [False, True, True, False]
    assert [engine.check(post("other")).is_replay for _ in range(2)] == [False, True]
    clock.advance(10)
    assert [engine.check(post()).is_replay for _ in range(4)] == [False, True, True, False]


def test_a_retry_that_another_rule_denies_is_not_counted() -> None:
    clock = ManualClock()
    once = {"id": "once", "limit": "100/hour", "idempotency": {"retries": 1}}
    tight = {"id": "tight", "limit": "1/minute fixed_window"}
    engine = RuleEngine(policy(once, tight), clock=clock)
    assert engine.check(post())
    assert not any(engine.check(post()) for _ in range(5))
    clock.advance(60)
    again = engine.check(post())
    assert (again.allowed, again.is_replay) == (True, True)
    clock.advance(60)
    paid = engine.check(post())
    assert (paid.allowed, paid.is_replay) == (True, False)


def test_each_rule_has_its_own_retries() -> None:
    one = {"id": "one", "limit": "100/hour", "idempotency": {"retries": 1}}
    two = {"id": "two", "limit": "100/hour", "idempotency": {"retries": 2}}
    engine = RuleEngine(policy(one, two), clock=ManualClock())
    charged = [[part.rule.id for part in engine.check(post()).rules] for _ in range(4)]
    assert charged == [["one", "two"], [], ["one"], ["one", "two"]]


def test_a_peek_uses_up_no_retry_and_says_what_a_check_would() -> None:
    engine = RuleEngine(policy({"id": "once", "idempotency": {"retries": 1}}), clock=ManualClock())
    assert not engine.peek(post()).is_replay
    engine.check(post())
    assert all(engine.peek(post()).is_replay for _ in range(3))
    engine.check(post())
    assert not engine.peek(post()).is_replay


def test_a_shadow_rule_counts_retries_beyond_the_free_ones() -> None:
    shadow = {"id": "tried", "mode": "shadow", "idempotency": {"retries": 2}}
    engine = RuleEngine(policy(shadow), clock=ManualClock())
    verdicts = [engine.check(post()) for _ in range(7)]
    assert [len(one.rules) for one in verdicts] == [1, 0, 0, 1, 1, 1, 1]
    assert [bool(one.would_deny) for one in verdicts] == [False] * 5 + [True] * 2
    assert all(one.allowed and not one.is_replay for one in verdicts)


def test_a_key_is_bound_to_the_fingerprint_of_its_request() -> None:
    once = {"id": "once", "limit": "100/hour", "idempotency": {"fingerprint": ["content-digest"]}}
    engine = RuleEngine(policy(once), clock=ManualClock())
    assert not engine.check(post(content_digest="a")).is_replay
    assert engine.check(post(content_digest="a", content_length="7")).is_replay
    assert not engine.check(post(content_digest="b")).is_replay, "another body pays"
    assert not engine.check(post()).is_replay
    assert engine.check(post(content_digest="b")).is_replay
    assert not engine.check(post(path="/other", content_digest="a")).is_replay


def test_reservations_of_other_rules_use_up_free_retries_too() -> None:
    once = {"id": "once", "idempotency": {"retries": 1}}
    engine = RuleEngine(policy(once, {"id": "held", "limit": "100/hour"}), clock=ManualClock())
    found = []
    for _ in range(4):
        verdict = engine.reserve(post(), cost={"held": 1})
        found.append((verdict.is_replay, [one.rule.id for one in verdict.rules]))
        engine.settle(verdict)
    paid = (False, ["once", "held"])
    assert found == [paid, (True, ["held"]), paid, paid]
    assert not engine.reserve(post(), cost={"held": 1})


@pytest.mark.parametrize("in_loop", [False, True])
def test_of_several_at_once_one_is_the_first_and_one_is_free(*, in_loop: bool) -> None:
    store = MemoryStore(clock=ManualClock())
    rules = policy({"id": "once", "idempotency": {"retries": 1}})
    if in_loop:

        async def ask() -> list[bool]:
            engine = AsyncRuleEngine(rules, store=store)
            verdicts = await asyncio.gather(*[engine.check(post()) for _ in range(5)])
            return [one.is_replay for one in verdicts]

        found = asyncio.run(ask())
    else:
        engine = RuleEngine(rules, store=store)
        found = [engine.check(post()).is_replay for _ in range(5)]
    assert sorted(found) == [False] * 4 + [True]
